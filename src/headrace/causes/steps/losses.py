"""Where the time of a series of steps went: to data, to what the log speaks of, or to nobody knows what. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import Cause, Confidence, Finding, Text, Verdict, format_seconds

from ..logs import FEWEST, FILE_STRIDE, Doing, Marker, Series
from .data_waits import SUPPLY_CAUSES, judge_waits, lockstep_rounds, supply_and_demand, waits_evidence
from .periods import Judged, LostTime, by_segment, by_step, find_period, find_rhythm, judge_period
from .stalls import Flags, Floats, Stalls, cost_of, find_drift, find_stalls, of_weight

_CAUSE_OF = {Doing.CHECKPOINT: Cause.CHECKPOINT, Doing.EVALUATION: Cause.EVALUATION, Doing.LOGGING: Cause.LOGGING}
# Below these shares of the wall time nothing is reported: every healthy training saves, evaluates and now and then
# has a slow step.
_REPORT_FROM = {Cause.EVALUATION: 0.10, Cause.EPOCH_START: 0.10}
_REPORT_FROM_ELSE = 0.05
_REPORT_ONCE_FROM = 0.10  # what happened once is no pattern
_VERDICT_FROM = 0.10  # of the time: a few percent are not what a training is like
PLENTY = 0.5  # of a loader's time: one that needs no more for what the loop takes has as much again to give
_BEHIND_WAITS = {Cause.MEMORY_PRESSURE, Cause.CPU_CONTENDED}  # reads that were not needed, cores that others had
_BOUND_BY = dict.fromkeys((*SUPPLY_CAUSES, *_BEHIND_WAITS), _VERDICT_FROM) | {Cause.STRAGGLER_SAMPLE: 0.5}
# A cost that was chosen, or one that every step has, makes no training stutter.
_NO_STUTTER = {*_BEHIND_WAITS, Cause.EVALUATION, Cause.H2D_COPY, Cause.CPU_THROTTLED, Cause.SWAP}
SLOW_STEPS = Text(
    "slow steps: {count} ({where}), {lost} in all, {each}",
    "{count} 个慢步（{where}）共损失 {lost}，{each}",
)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One series, taken apart."""

    series: Series
    stalls: Stalls
    wall_s: float  # that the records cover, without the start of the run and without holes
    num_steps: float
    losses: tuple[LostTime, ...]
    minor: tuple[LostTime, ...] = ()  # too small to report
    wait_share: float | None = None
    start_s: float = 0.0  # what was left out as the start of the run
    settings: Mapping[str, int] = field(default_factory=dict)

    def share(self, loss: LostTime) -> float:
        """Return the share of the wall time that a loss has."""
        return min(1.0, loss.lost_s / self.wall_s) if self.wall_s > 0 else 0.0

    @property
    def step_mean_s(self) -> float:
        """Return what a step takes, without what the loop did besides training."""
        beside = {Cause.EVALUATION, Cause.CHECKPOINT, Cause.LOGGING, Cause.EPOCH_START}
        lost = (loss for loss in (*self.losses, *self.minor) if loss.cause in beside and loss.because != "wait")
        beside_s = sum(loss.lost_s for loss in lost)
        return max(0.0, self.wall_s - beside_s) / max(1.0, self.num_steps)

    @property
    def lost_share(self) -> float:
        """Return the share of all that is reported."""
        return min(1.0, sum(self.share(loss) for loss in self.losses))


def analyse(series: Series, markers: Sequence[Marker], settings: Mapping[str, int]) -> Analysis:
    """Take a series apart. A cause is named only where the log itself carries it."""
    counted = ~series.is_hole
    is_short = len(series) < FEWEST or series.is_epochs
    # the start of the run: imports, workers, compilation, caches
    is_start = bool(series.step[0] <= 3 * series.median_span)  # else the log begins in the middle
    series = replace(series, is_first=series.is_first & ((np.arange(len(series)) > 0) | is_start))
    is_odd = len(series) > 2 and series.wall_s[0] > 3 * series.wall_s[1:].max()
    is_told = series.wall_s[0] > 0 and ((is_short and not is_odd) or series.median_span > 1 or not is_start)
    start = slice(0, 0 if is_told else 3 if len(series) > 30 and series.median_span <= 1 else 1)
    counted[start] = False
    for marker in markers:
        if marker.doing is Doing.RESTART:  # the record behind it holds the start
            counted[np.searchsorted(series.line, marker.line) :][:1] = False
    drift = find_drift(series, counted)
    stalls = find_stalls(series, changes_at=drift.index if drift else None)
    slow = stalls.is_stall & counted & (not is_short)  # a few lines have no pattern
    doing = _believable(series, stalls, slow, _marked_by(series, slow, markers))
    wall_s = float(series.wall_s[counted].sum())
    losses = [_marked_loss(series, stalls, doing, kind) for kind in _CAUSE_OF if kind in doing.values()]
    if between_s := _evaluated_between_s(series, markers):
        wall_s += sum(between_s)
        cost = cost_of(np.array(between_s))
        losses.append(LostTime(cause=Cause.EVALUATION, **cost, confidence=Confidence.LIKELY, because="bars"))
    rest = slow.copy()
    rest[list(doing)] = False
    starts = rest & series.is_first
    if starts.any():
        losses.append(_start_loss(series, stalls, starts))
    rest &= ~series.is_first
    told = counted & (series.wall_s > 0)  # in training steps, the first ones of epochs too
    told[list(doing)] = False
    free = told & (~series.is_first | is_short)
    waited = judge_waits(series, stalls, free, settings) if series.has_wait else None
    if waited is not None:
        rest &= ~waited[2]
        if (loss := waited[0]) is not None:
            if loss.cause is Cause.LOADER_THROUGHPUT:  # and so it does in the steps that no line tells of
                loss = replace(loss, lost_s=waited[1] * max(0.0, wall_s - sum(other.lost_s for other in losses)))
            losses.append(loss)
    if not rest.any() and waited is None and drift is None and (rhythm := _rhythm_loss(series, stalls, free, settings)):
        losses.append(rhythm)
    if rest.any():
        losses += _open_losses(series, stalls, rest, settings, knows_waits=waited is not None)
    if drift is not None and (waited is None or waited[0] is None):
        likely = Confidence.LIKELY
        losses += [LostTime(cause=Cause.UNKNOWN, lost_s=drift.lost_s, confidence=likely, drift=drift, because="drift")]
    kept = [loss for loss in losses if loss.lost_s >= report_from(loss.cause, loss.count) * wall_s]
    kept.sort(key=lambda loss: -loss.lost_s)
    return Analysis(
        series=series,
        stalls=stalls,
        wall_s=wall_s,
        num_steps=float(series.span[counted].sum()),
        start_s=float(series.wall_s[start].sum()),
        losses=tuple(kept),
        minor=tuple(loss for loss in losses if loss not in kept),
        wait_share=float(np.nansum(series.wait_s[told]) / max(series.wall_s[told].sum(), 1e-9)) if waited else None,
        settings=settings,
    )


def report_from(cause: Cause, count: int) -> float:
    """Return the share of the time from which on so many interruptions of a kind are a finding.

    >>> report_from(Cause.CHECKPOINT, 5), report_from(Cause.CHECKPOINT, 1)
    (0.05, 0.1)
    """
    share = _REPORT_FROM.get(cause, _REPORT_FROM_ELSE)
    return max(share, _REPORT_ONCE_FROM) if count == 1 else share


def verdict_of(
    found: Sequence[Finding], wait_share: float | None, *, num_steps: float = math.inf, has_plenty: bool = False
) -> Verdict:
    """Return a run in one word, by what cost its time: data, the host, or whatever else is the largest.

    `has_plenty`: the loader could give far more than the loop takes, so what little it waits is no lack of data.
    """
    largest = max(found, key=lambda one: one.share, default=None)
    for one in found if largest is None or largest.cause is not Cause.EVALUATION else ():
        waited = min(one.share, wait_share or 0.0) if one.cause in _BEHIND_WAITS else one.share
        is_small = largest is not None and largest.cause not in _BOUND_BY and waited < 0.5 * largest.share
        if waited >= _BOUND_BY.get(one.cause, math.inf) and not is_small:
            return Verdict.DATA_BOUND
        if one.cause is Cause.HOST_BOUND:
            return Verdict.HOST_BOUND
    if largest is not None and largest.share >= _VERDICT_FROM:
        is_usual = 2 * largest.figures.get("count", 0.0) >= num_steps > 0
        return Verdict.ELSEWHERE if is_usual or largest.cause in _NO_STUTTER else Verdict.STUTTERING
    if wait_share is None:
        return Verdict.UNKNOWN
    return Verdict.COMPUTE_BOUND if wait_share < (_VERDICT_FROM if has_plenty else 0.05) else Verdict.BALANCED


def _believable(series: Series, stalls: Stalls, slow: Flags, doing: dict[int, Doing]) -> dict[int, Doing]:
    """Drop lines that merely stand beside slow steps which come without them, too, and are as long.

    A checkpoint every 100 steps beside a pause every 50 explains nothing: half of the pauses have no checkpoint.
    """
    others = slow & ~series.is_first
    others[list(doing)] = False
    # The first step of an epoch that waits for its batch is a slow start, whatever was saved before it.
    waited = _excess_wait_s(series) >= 0.7 * stalls.excess_s
    # And a bar of its own, with a clock of its own, does not run while something is saved before it.
    started = series.is_first & (waited | series.is_new_bar)
    believed = {index: one for index, one in doing.items() if not started[index]}
    for kind in set(doing.values()):
        marked = [index for index, one in doing.items() if one is kind and not series.is_first[index]]
        everywhere = sorted({*marked, *np.flatnonzero(others).tolist()})
        is_outnumbered = marked and others.sum() >= max(4, 0.5 * len(marked))
        period = find_period(by_segment(series, everywhere)) if is_outnumbered else None
        if period is None:
            continue
        likeness = float(np.median(stalls.excess_s[marked]) / np.median(stalls.excess_s[others]))
        in_step = sum(int(series.step[index]) % period.steps == period.phase for index in marked)
        if 0.5 < likeness < 1.8 and (period.phase is None or in_step >= 0.7 * len(marked)):
            believed = {index: one for index, one in believed.items() if one is not kind}
    return believed


def _marked_loss(series: Series, stalls: Stalls, doing: dict[int, Doing], kind: Doing) -> LostTime:
    chosen = np.array(sorted(index for index, one in doing.items() if one is kind))
    # What happened once may have been anything between two lines, a night between two starts, too; and at the end of
    # an epoch of unknown length there are steps that no line tells of.
    is_told = series.has_time and len(chosen) > 1 and (series.per_epoch > 0 or not series.is_first[chosen].any())
    confidence = Confidence.CERTAIN if is_told else Confidence.LIKELY
    period = find_period(by_segment(series, chosen.tolist()))
    cost = _cost_of_steps(series, stalls.excess_s, chosen)
    return LostTime(cause=_CAUSE_OF[kind], confidence=confidence, period=period, because="text", **cost)


def _cost_of_steps(series: Series, excess_s: Floats, chosen: NDArray[np.int64]) -> dict[str, Any]:
    return cost_of(excess_s[chosen]) | {"steps": series.some_steps(chosen)}


def _excess_wait_s(series: Series) -> Floats:
    """Return how much longer each record waits for data than so many steps do: its excess is no other time."""
    usual = ~series.is_first if (~series.is_first & ~np.isnan(series.wait_s)).any() else np.full(len(series), True)
    typical_s = np.nanmedian((series.wait_s / series.span)[usual]) if series.has_wait else 0.0
    return np.nan_to_num(series.wait_s - typical_s * series.span)


def _start_loss(series: Series, stalls: Stalls, starts: Flags) -> LostTime:
    cost = _cost_of_steps(series, stalls.excess_s, np.flatnonzero(starts))
    because, confidence = "place", Confidence.POSSIBLE if series.has_time else Confidence.LIKELY
    if series.has_wait and _excess_wait_s(series)[starts].sum() >= 0.5 * cost["lost_s"]:
        because, confidence = "wait", Confidence.CERTAIN
    return LostTime(cause=Cause.EPOCH_START, confidence=confidence, because=because, **cost)


def _open_losses(
    series: Series, stalls: Stalls, rest: Flags, settings: Mapping[str, int], *, knows_waits: bool
) -> list[LostTime]:
    """Slow steps that no line and no wait explains: one loss, with a cause only if the log names their distance."""
    chosen = np.flatnonzero(rest)
    heavy = chosen[of_weight(stalls.excess_s[chosen])]
    period = find_period(by_segment(series, heavy.tolist()))
    if period is None and len(chosen) > 0.05 * len(series) and series.median_span <= 1:
        period = find_rhythm(by_step(series, np.where(series.is_first, stalls.base_s, series.wall_s)))
    judged = None
    if period is not None and not knows_waits:
        judged = judge_period(period, settings, records_cover=series.median_span)
    if judged is not None and judged.is_normal:
        return []
    if judged is None or judged.cause is Cause.UNKNOWN:
        # Without a known reason only what is far off counts: three times a typical step, or that much more.
        chosen = chosen[stalls.excess_s[chosen] >= 2 * stalls.base_s]
        # Once is no pattern, and any machine has one bad moment, unless it cost a tenth of the time.
        if len(chosen) < 2 and stalls.excess_s[chosen].sum() < 0.1 * series.wall_s.sum():
            return []
    judged = judged or Judged(Cause.UNKNOWN, Confidence.LIKELY, "not data" if knows_waits else "no text")
    cost = _cost_of_steps(series, stalls.excess_s, chosen)
    return [LostTime(cause=judged.cause, confidence=judged.confidence, period=period, because=judged.because, **cost)]


def _rhythm_loss(series: Series, stalls: Stalls, free: Flags, settings: Mapping[str, int]) -> LostTime | None:
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
    cost = _cost_of_steps(series, excess, slow) | {"lost_s": float(excess.sum())}
    likely = Confidence.LIKELY
    return LostTime(cause=Cause.BATCH_LOCKSTEP, confidence=likely, period=period, because="workers", **cost)


def _marked_by(series: Series, is_stall: Flags, markers: Sequence[Marker]) -> dict[int, Doing]:
    """Return what the loop was doing at each slow record that a line speaks of.

    A line belongs to the record that it stands before; if that one is not slow, to the one that it stands behind, for
    some loops report a save when it is done. A line in another file belongs to the record whose step or time it names.
    """
    own_files = {int(number) for number in np.unique(series.line // FILE_STRIDE)}
    doing: dict[int, Doing] = {}
    # A checkpoint in the middle of an evaluation is part of it; so the order of the enum does not matter, the first
    # line of a pause names it, except that an evaluation is never named a checkpoint for the save that follows it.
    for marker in markers:
        if marker.doing is Doing.RESTART:
            continue
        index = _record_of(series, is_stall, marker, is_own=int(marker.line // FILE_STRIDE) in own_files)
        if index is None or (index in doing and marker.doing is not Doing.EVALUATION):
            continue
        # Before the save another line stands, with a time of its own: what lies before that is no save.
        is_later = (
            marker.doing is not Doing.EVALUATION and 0 <= series.at_s[index] - marker.at_s <= series.wall_s[index]
        )
        if not (is_later and series.at_s[index] - marker.since_s < 0.5 * series.wall_s[index]):
            doing[index] = marker.doing
    return doing


def _record_of(series: Series, is_stall: Flags, marker: Marker, *, is_own: bool) -> int | None:
    if is_own:
        after = int(np.searchsorted(series.line, marker.line))
    elif marker.step == marker.step:
        at = np.flatnonzero(series.step == marker.step)
        at = at if len(at) else np.flatnonzero(series.step > marker.step)[:1]
        if not len(at):
            return None
        after = int(at[0])
    elif marker.at_s == marker.at_s and not np.isnan(series.at_s).any():
        after = int(np.searchsorted(series.at_s, marker.at_s))
    else:
        return None
    # What is reported when it is done may stand behind its step; an evaluation never does.
    places = [after] if marker.doing is Doing.EVALUATION else [after, after - 1]
    if not is_own and marker.step == marker.step:  # whether a step is counted before or after it is done
        places = [after, after + 1, after - 1]
    return next((index for index in places if 0 <= index < len(series) and is_stall[index]), None)


def _evaluated_between_s(series: Series, markers: Sequence[Marker]) -> list[float]:
    """Return how long each evaluation took that tells its own time between two training bars or lines without a clock.

    That time is not in the series.
    """
    if series.has_time and not series.is_new_bar.any():
        return []
    starts = np.flatnonzero(series.is_new_bar if series.has_time else np.ones(len(series), dtype=bool))
    lengths: dict[int, list[float]] = {}
    for marker in markers:
        if marker.doing is not Doing.EVALUATION or marker.took_s != marker.took_s or marker.at_s == marker.at_s:
            continue
        after = int(np.searchsorted(series.line, marker.line))
        if after == len(series) or after in starts[1:]:
            known = lengths.setdefault(after, [])
            if known and marker.took_s >= known[-1]:
                known[-1] = marker.took_s  # the same bar, further on
            else:
                known.append(marker.took_s)
    return [sum(parts) for parts in lengths.values()]


def evidence_of(loss: LostTime, analysis: Analysis) -> Iterator[Text]:
    """Yield the sentences that carry a loss, the strongest first."""
    if (drift := loss.drift) is not None:
        yield Text(
            "from step {step} on a step takes {after} where it took {before}, and the log does not say why",
            "从第 {step} 步起，单步耗时从 {before} 变为 {after}，日志没有说明原因",
        ).filled(step=drift.step, after=format_seconds(drift.after_s), before=format_seconds(drift.before_s))
        return
    workers = analysis.settings.get("num_workers")
    if loss.cause is Cause.BATCH_LOCKSTEP:
        yield from lockstep_rounds(loss.period, loss, workers)
    elif loss.cause is Cause.LOADER_THROUGHPUT:
        yield waits_evidence(analysis.share(loss), loss.median_wait_s, loss.worst_s)
    else:
        yield from _slow_steps(loss)
    if loss.supply is not None:
        yield supply_and_demand(*loss.supply)


def _slow_steps(loss: LostTime) -> Iterator[Text]:
    if loss.because == "bars":
        yield Text(
            "{count:evaluation(s)} between the training bars took {lost} in all, {each}, by their own bars",
            "训练进度条之间有 {count} 次评估，按其自身的进度条共用 {lost}，{each}",
        ).filled(**loss.blanks)
        return
    where = ", ".join(str(step) for step in loss.steps[:5]) + (" …" if loss.count > 5 else "")
    yield SLOW_STEPS.filled(where=where, **loss.blanks)
    if loss.period is not None:
        yield Text("they come every {period} steps", "每 {period} 步一次").filled(period=loss.period.steps)
    yield _WHY.get((loss.cause, loss.because)) or _WHY_ANY.get(loss.because) or _WHY_ANY["no text"]


_WHY = {
    (Cause.CHECKPOINT, "text"): Text(
        "the log itself says at these steps that a checkpoint is saved", "日志在这些步上写明了正在保存检查点"
    ),
    (Cause.EVALUATION, "text"): Text(
        "the log itself says at these steps that the model is evaluated", "日志在这些步上写明了正在评估模型"
    ),
    (Cause.LOGGING, "text"): Text(
        "the log itself says at these steps that something is uploaded or written", "日志在这些步上写明了正在上传或写入"
    ),
    (Cause.EPOCH_START, "wait"): Text(
        "they are the first steps of epochs, and they wait for their batch",
        "它们是各 epoch 的第一步，时间花在等待 batch 上",
    ),
    (Cause.EPOCH_START, "place"): Text(
        "they are the first steps of epochs; whatever runs between two epochs without a line in the log is counted "
        "here, too",
        "它们是各 epoch 的第一步；两个 epoch 之间没有写进日志的工作也会算在这里",
    ),
    (Cause.STRAGGLER_SAMPLE, "wait"): Text(
        "they wait for their batch, at irregular distances, while the others find theirs ready: single late batches, "
        "not a slow pool",
        "这些步在等 batch，间隔没有规律，而其他步的 batch 早已就绪：是个别 batch 迟到，不是整池太慢",
    ),
}
_WHY_ANY = {
    "interval": Text(
        "the log's own settings name this interval, though no line speaks of it at these steps",
        "日志中的配置写有这个间隔，但这些步附近没有相应的文字",
    ),
    "several intervals": Text(
        "the log's settings name this interval for more than one thing, so it stays open which it is",
        "日志的配置里有不止一项用这个间隔，无法确定是哪一项",
    ),
    "data at a distance": Text(
        "these steps wait for their batch, at a distance that is not num_workers: the end of a shard, of an epoch or "
        "of a file list would look like this",
        "这些步在等 batch，而间隔不等于 num_workers：分片、epoch 或文件列表的末尾都会是这个样子",
    ),
    "few data": Text(
        "these steps wait for their batch; there are too few of them to see whether they come at equal distances",
        "这些步在等 batch；次数太少，看不出间隔是否有规律",
    ),
    "not data": Text(
        "the log tells the wait for data at these steps, and it is short: the loader is not the reason",
        "日志给出了这些步的数据等待时间，都很短：原因不在加载器",
    ),
    "not the workers": Text(
        "no line in the log says what happened there, and the distance is not num_workers",
        "日志没有说明当时发生了什么，这个间隔也不等于 num_workers",
    ),
    "no text": Text(
        "no line in the log says what happened there; a save or an evaluation is possible and would be a guess",
        "日志没有说明当时发生了什么；可能是保存或评估，但那只是猜测",
    ),
}
