"""Where the time of a series of steps went: to data, to what the log speaks of, or to nobody knows what. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.model import Cause, Confidence

from ..logs import Doing, Marker, Series
from .data_waits import DataWaits, judge_waits
from .drift import Drift, find_drift
from .marks import evaluated_between_bars_s, marked_by, restarts
from .periods import Period, by_step, find_period, find_rhythm
from .stalls import Humps, Stalls, find_humps, find_stalls, of_weight
from .unexplained import judge_period

Flags = NDArray[np.bool_]
_CAUSE_OF = {Doing.CHECKPOINT: Cause.CHECKPOINT, Doing.EVALUATION: Cause.EVALUATION, Doing.LOGGING: Cause.LOGGING}
# Below these shares of the wall time nothing is reported: every healthy training saves, evaluates and now and then
# has a slow step.
REPORT_FROM = {Cause.EVALUATION: 0.10, Cause.EPOCH_START: 0.10}
REPORT_FROM_ELSE = 0.05
REPORT_ONCE_FROM = 0.10  # what happened once is no pattern


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Time lost to one cause."""

    cause: Cause
    lost_s: float
    confidence: Confidence
    count: int = 0  # slow steps
    typical_s: float = 0.0  # what one of them cost
    worst_s: float = 0.0
    period: Period | None = None
    steps: tuple[int, ...] = ()  # the first few
    because: str = ""  # a word for the report: which of several reasons
    waits: DataWaits | None = None
    drift: Drift | None = None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One series, taken apart."""

    series: Series
    stalls: Stalls
    humps: Humps | None
    wall_s: float  # that the records cover, without the start of the run and without holes
    num_steps: float
    losses: tuple[Loss, ...]
    minor: tuple[Loss, ...] = ()  # too small to report
    wait_share: float | None = None
    settings: Mapping[str, int] = field(default_factory=dict)

    def share(self, loss: Loss) -> float:
        """Return the share of the wall time that a loss has."""
        return min(1.0, loss.lost_s / self.wall_s) if self.wall_s > 0 else 0.0

    @property
    def lost_share(self) -> float:
        """Return the share of all that is reported."""
        return min(1.0, sum(self.share(loss) for loss in self.losses))


def analyse(series: Series, markers: Sequence[Marker], settings: Mapping[str, int]) -> Analysis:
    """Take a series apart. A cause is named only where the log itself carries it."""
    counted = ~series.is_hole
    counted[: 3 if len(series) > 30 else 1] = False  # the start of the run: imports, workers, compilation, caches
    for index in restarts(series, markers):
        if index < len(series):
            counted[index] = False
    drift = find_drift(series, counted)
    stalls = find_stalls(series, changes_at=drift.index if drift else None)
    slow = stalls.is_stall & counted
    doing = _believable(series, stalls, slow, marked_by(series, slow, markers))
    wall_s = float(series.wall_s[counted].sum())
    losses = [_marked_loss(series, stalls, doing, kind) for kind in _CAUSE_OF if kind in doing.values()]
    if between_s := evaluated_between_bars_s(series, markers):
        wall_s += sum(between_s)
        losses.append(_evaluation_loss(between_s))
    rest = slow.copy()
    rest[list(doing)] = False
    starts = rest & series.is_first
    if starts.any():
        losses.append(_start_loss(series, stalls, starts))
    rest &= ~series.is_first
    free = counted & ~series.is_first
    free[list(doing)] = False
    waits = judge_waits(series, stalls, free, settings) if series.has_wait else None
    if waits is not None:
        rest &= ~waits.explains
        if waits.cause is not None:
            losses.append(_data_loss(series, waits))
    if not rest.any() and waits is None and drift is None and (rhythm := _rhythm_loss(series, stalls, free, settings)):
        losses.append(rhythm)
    if rest.any():
        losses += _open_losses(series, stalls, rest, settings, knows_waits=waits is not None)
    if drift is not None and (waits is None or waits.cause is None):
        losses.append(
            Loss(cause=Cause.UNKNOWN, lost_s=drift.lost_s, confidence=Confidence.CERTAIN, drift=drift, because="drift")
        )
    kept = [loss for loss in losses if loss.lost_s >= _report_from(loss) * wall_s]
    kept.sort(key=lambda loss: -loss.lost_s)
    return Analysis(
        series=series,
        stalls=stalls,
        humps=find_humps((series.wall_s / series.span)[counted & ~series.is_first]),
        wall_s=wall_s,
        num_steps=float(series.span[counted].sum()),
        losses=tuple(kept),
        minor=tuple(loss for loss in losses if loss not in kept),
        wait_share=waits.share if waits is not None else None,
        settings=settings,
    )


def _report_from(loss: Loss) -> float:
    share = REPORT_FROM.get(loss.cause, REPORT_FROM_ELSE)
    return max(share, REPORT_ONCE_FROM) if loss.count == 1 else share


def _believable(series: Series, stalls: Stalls, slow: Flags, doing: dict[int, Doing]) -> dict[int, Doing]:
    """Drop lines that merely stand beside slow steps which come without them, too, and are as long.

    A checkpoint every 100 steps beside a pause every 50 explains nothing: half of the pauses have no checkpoint.
    """
    others = slow & ~series.is_first
    others[list(doing)] = False
    # The first step of an epoch that waits for its batch is a slow start, whatever was saved before it.
    waited = np.nan_to_num(series.wait_s) >= 0.7 * stalls.excess_s
    # And a bar of its own, with a clock of its own, does not run while something is saved before it.
    started = series.is_first & (waited | series.is_new_bar)
    believed = {index: one for index, one in doing.items() if not started[index]}
    for kind in set(doing.values()):
        marked = [index for index, one in doing.items() if one is kind and not series.is_first[index]]
        if len(marked) < 1 or others.sum() < max(4, 0.5 * len(marked)):
            continue
        everywhere = sorted({*marked, *np.flatnonzero(others).tolist()})
        period = find_period(_steps_by_segment(series, everywhere))
        if period is None:
            continue
        excess = stalls.excess_s
        likeness = float(np.median(excess[marked]) / np.median(excess[others]))
        in_step = sum(int(series.step[index]) % period.steps == period.phase for index in marked)
        if 0.5 < likeness < 1.8 and (period.phase is None or in_step >= 0.7 * len(marked)):
            believed = {index: one for index, one in believed.items() if one is not kind}
    return believed


def _marked_loss(series: Series, stalls: Stalls, doing: dict[int, Doing], kind: Doing) -> Loss:
    chosen = np.array(sorted(index for index, one in doing.items() if one is kind))
    return Loss(
        cause=_CAUSE_OF[kind],
        lost_s=float(stalls.excess_s[chosen].sum()),
        confidence=Confidence.CERTAIN,
        count=len(chosen),
        typical_s=float(np.median(stalls.excess_s[chosen])),
        worst_s=float(stalls.excess_s[chosen].max()),
        period=find_period(_steps_by_segment(series, chosen.tolist())),
        steps=_some(series, chosen),
        because="text",
    )


def _evaluation_loss(lengths_s: Sequence[float]) -> Loss:
    return Loss(
        cause=Cause.EVALUATION,
        lost_s=sum(lengths_s),
        confidence=Confidence.CERTAIN,
        count=len(lengths_s),
        typical_s=float(np.median(lengths_s)),
        worst_s=max(lengths_s),
        because="bars",
    )


def _start_loss(series: Series, stalls: Stalls, starts: Flags) -> Loss:
    chosen = np.flatnonzero(starts)
    excess = stalls.excess_s[chosen]
    waits = series.wait_s[chosen]
    is_data = bool(series.has_wait and np.nansum(waits) >= 0.5 * excess.sum())
    return Loss(
        cause=Cause.EPOCH_START,
        lost_s=float(excess.sum()),
        confidence=Confidence.CERTAIN if is_data else Confidence.LIKELY if not series.has_time else Confidence.POSSIBLE,
        count=len(chosen),
        typical_s=float(np.median(excess)),
        worst_s=float(excess.max()),
        steps=_some(series, chosen),
        because="wait" if is_data else "place",
    )


def _data_loss(series: Series, waits: DataWaits) -> Loss:
    assert waits.cause is not None
    return Loss(
        cause=waits.cause,
        lost_s=waits.lost_s,
        confidence=waits.confidence,
        count=int(waits.is_slow.sum()),
        typical_s=waits.slow_median_s,
        worst_s=waits.worst_s,
        period=waits.period,
        steps=_some(series, np.flatnonzero(waits.is_slow)),
        because="wait" if waits.cause is not Cause.UNKNOWN else "data at a distance" if waits.period else "few data",
        waits=waits,
    )


def _open_losses(
    series: Series, stalls: Stalls, rest: Flags, settings: Mapping[str, int], *, knows_waits: bool
) -> list[Loss]:
    """Slow steps that no line and no wait explains: one loss, with a cause only if the log names their distance."""
    chosen = np.flatnonzero(rest)
    heavy = chosen[of_weight(stalls.excess_s[chosen])]
    period = find_period(_steps_by_segment(series, heavy.tolist()))
    if period is None and len(chosen) > 0.05 * len(series) and series.median_span <= 1:
        period = find_rhythm(by_step(series, np.where(series.is_first, stalls.base_s, series.wall_s)))
    base = stalls.base_s
    judged = None
    if period is not None and not knows_waits:
        judged = judge_period(period, settings, records_cover=series.median_span)
    if judged is not None and judged.is_normal:
        return []
    if judged is None or judged.cause is Cause.UNKNOWN:
        # Without a known reason only what is far off counts: three times a typical step, or that much more.
        far = stalls.excess_s[chosen] >= 2 * base
        chosen = chosen[far]
        # Once is no pattern, and any machine has one bad moment, unless it cost a tenth of the time.
        if len(chosen) < 2 and stalls.excess_s[chosen].sum() < 0.1 * series.wall_s.sum():
            return []
    excess = stalls.excess_s[chosen]
    return [
        Loss(
            cause=judged.cause if judged else Cause.UNKNOWN,
            lost_s=float(excess.sum()),
            confidence=judged.confidence if judged else Confidence.CERTAIN,
            count=len(chosen),
            typical_s=float(np.median(excess)),
            worst_s=float(excess.max()),
            period=period,
            steps=_some(series, chosen),
            because=judged.because if judged else ("not data" if knows_waits else "no text"),
        )
    ]


def _rhythm_loss(series: Series, stalls: Stalls, free: Flags, settings: Mapping[str, int]) -> Loss | None:
    """Return uneven steps without a clear slow one, if they repeat themselves at the distance of the log's workers."""
    if stalls.spread < 0.3 or series.median_span > 1:
        return None
    period = find_rhythm(by_step(series, np.where(free, series.wall_s, stalls.base_s)))
    if period is None or settings.get("num_workers") != period.steps:
        return None
    fast_s = float(np.quantile(series.wall_s[free], 0.05))
    excess = np.where(free, np.maximum(series.wall_s - fast_s, 0.0), 0.0)
    slow = np.flatnonzero(excess > fast_s)
    if not len(slow):
        return None
    return Loss(
        cause=Cause.BATCH_LOCKSTEP,
        lost_s=float(excess.sum()),
        confidence=Confidence.LIKELY,
        count=len(slow),
        typical_s=float(np.median(excess[slow])),
        worst_s=float(excess.max()),
        period=period,
        steps=_some(series, slow),
        because="workers",
    )


def _steps_by_segment(series: Series, indices: Sequence[int]) -> list[list[float]]:
    groups: dict[float, list[float]] = {}
    for index in indices:
        groups.setdefault(float(series.segment[index]), []).append(float(series.step[index]))
    return list(groups.values())


def _some(series: Series, indices: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(step) for step in series.step[indices[:12]])
