"""Whether steps became slower at some point and stayed so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..logs import Series

_FEWEST = 24  # steps on either side
_RATIO = 1.4
_WINDOW = 15  # steps over which a median is taken: a slow step in a round of workers does not show


@dataclass(frozen=True)
class Drift:
    """From `step` (record `index`) on a step takes `after_s` where it took `before_s`."""

    index: int
    step: int
    before_s: float
    after_s: float
    lost_s: float


def find_drift(series: Series, counted: NDArray[np.bool_]) -> Drift | None:
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
    if after_s < _RATIO * before_s or np.log(after_s / before_s) < 4 * noise or not is_lasting:
        return None
    lost_s = (after_s - before_s) * float(series.span[chosen[cut:]].sum())
    return Drift(int(chosen[cut]), int(series.step[chosen[cut]]), before_s, after_s, lost_s)
