"""Which steps took much longer than they typically do, for once or from some step on, and by how much."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import Text, format_seconds

from ..logs import Series

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
AT_LEAST_S = 0.05  # shorter ones cost nothing that anybody would notice
_FEWEST = 24  # steps on either side
_RATIO = 1.4
_WINDOW = 15  # steps over which a median is taken: a slow step in a round of workers does not show


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What slow things of one kind cost: so many of them, in all, one of them typically and at worst."""

    count: int = 0
    lost_s: float = 0.0
    typical_s: float = 0.0
    worst_s: float = 0.0

    @property
    def blanks(self) -> dict[str, object]:
        """Return it for a sentence with `{count}`, `{lost}` and `{each}`; a median times the count is not the sum."""
        lost, typical, worst = map(format_seconds, (self.lost_s, self.typical_s, self.worst_s))
        each = Text("typically {typical} each ({worst} at worst)", "每次通常 {typical}（最长 {worst}）")
        return {"count": self.count, "lost": lost, "each": each.filled(typical=typical, worst=worst)}


def cost_of(seconds: Floats) -> dict[str, Any]:
    """Return the fields of a `Cost`, from what each of some slow things cost; there is at least one."""
    return {
        "count": len(seconds),
        "lost_s": float(seconds.sum()),
        "typical_s": float(np.median(seconds)),
        "worst_s": float(seconds.max()),
    }


@dataclass(frozen=True)
class Stalls:
    """Slow records of a series. `base_s` is the step without a stall, `excess_s` what a slow record took beyond."""

    base_s: float
    spread: float  # of the logarithm of undisturbed steps
    is_stall: Flags
    excess_s: Floats  # 0 for a record that is not slow


def find_stalls(series: Series, *, changes_at: int | None = None) -> Stalls:
    """Return the slow records; the first of an epoch are among them, records behind a hole are not.

    From the record `changes_at` on steps are slower for good: what is typical is taken on either side of it.
    """
    borders = [0, len(series)] if changes_at is None else [0, changes_at, len(series)]
    parts = [_stalls_within(series, slice(begin, end)) for begin, end in pairwise(borders)]
    return Stalls(
        parts[0].base_s,
        max(part.spread for part in parts),
        np.concatenate([part.is_stall for part in parts]),
        np.concatenate([part.excess_s for part in parts]),
    )


def _stalls_within(series: Series, part: slice) -> Stalls:
    wall_s, span, is_hole = series.wall_s[part], series.span[part], series.is_hole[part]
    inside = ~series.is_first[part] & ~is_hole
    per_step = wall_s / np.maximum(span, 1)
    usual = per_step[inside] if inside.any() else per_step
    # From the lower quarter: with two workers in lock-step half of all steps are slow.
    p5, p25, p50 = (float(value) for value in np.quantile(usual, (0.05, 0.25, 0.5)))
    spread = max(0.02, float(np.log(p25 / p5)) / 0.97) if p5 > 0 else 0.5
    base_s = min(p50, p25 * float(np.exp(0.674 * spread)))
    excess = wall_s - base_s * span
    ratio = max(1.15, float(np.exp(4.5 * spread)))
    # A slow step is at least twice as long as a typical one; within a record of many steps, one step's worth more.
    is_stall = (excess >= max(base_s, AT_LEAST_S)) & (per_step >= ratio * base_s) & ~is_hole
    return Stalls(base_s, spread, is_stall, np.where(is_stall, excess, 0.0))


def of_weight(lost_s: Floats) -> Flags:
    """Return which slow steps carry the loss: at least half as long as the one in the middle of the lost time.

    >>> of_weight(np.array([2.0, 0.2, 1.9, 0.0, 0.3, 2.1])).tolist()
    [True, False, True, False, False, True]
    """
    ordered = np.sort(lost_s)[::-1]
    sums = np.cumsum(ordered)
    if not len(ordered) or sums[-1] <= 0:
        return np.zeros(len(lost_s), dtype=bool)
    middle = float(ordered[int(np.searchsorted(sums, sums[-1] / 2))])
    return lost_s >= 0.5 * middle


@dataclass(frozen=True)
class Drift:
    """From `step` (record `index`) on a step takes `after_s` where it took `before_s`."""

    index: int
    step: int
    before_s: float
    after_s: float
    lost_s: float


def find_drift(series: Series, counted: Flags) -> Drift | None:
    """Return where steps became slower for good; None where they did not. Single slow steps do not matter."""
    chosen = np.flatnonzero(counted & ~series.is_first)
    if len(chosen) < 2 * _FEWEST:
        return None
    per_step = np.maximum((series.wall_s / series.span)[chosen], 1e-6)
    calm = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(per_step, _WINDOW // 2, "edge"), _WINDOW), axis=1)
    logs = np.log(calm)
    sums = np.cumsum(logs)
    count = np.arange(1, len(logs) + 1)
    before = sums / count
    after = (sums[-1] - sums) / np.maximum(len(logs) - count, 1)
    gain = (after - before) * np.sqrt(count * (len(logs) - count))
    inner = gain[_FEWEST - 1 : len(logs) - _FEWEST]
    if not len(inner):
        return None
    cut = int(np.argmax(inner)) + _FEWEST
    before_s, after_s = float(np.median(calm[:cut])), float(np.median(calm[cut:]))
    noise = float(np.median(np.abs(logs[:cut] - np.log(before_s)))) * 1.4826
    # It stays so: hardly any step before is as slow as those after, and the other way round.
    middle = np.sqrt(before_s * after_s)
    is_lasting = (calm[:cut] < middle).mean() > 0.8 and (calm[cut:] > middle).mean() > 0.8
    if (series.is_hole & series.is_first)[chosen[cut] - 2 : chosen[cut] + 3].any():
        return None  # another run
    if after_s < _RATIO * before_s or np.log(after_s / before_s) < 4 * noise or not is_lasting:
        return None
    lost_s = (after_s - before_s) * float(series.span[chosen[cut:]].sum())
    return Drift(int(chosen[cut]), int(series.step[chosen[cut]]), before_s, after_s, lost_s)
