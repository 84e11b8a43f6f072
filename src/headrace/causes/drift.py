"""Whether steps became slower at some point and stayed so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .logs.series import Series

_FEWEST = 24  # steps on either side
_RATIO = 1.4


@dataclass(frozen=True)
class Drift:
    """From `step` on a step takes `after_s` where it took `before_s`."""

    step: int
    before_s: float
    after_s: float
    lost_s: float


def find_drift(series: Series, usual: NDArray[np.bool_]) -> Drift | None:
    """Return where steps became slower for good, from those not slow by themselves; None where they did not."""
    chosen = np.flatnonzero(usual)
    if len(chosen) < 2 * _FEWEST:
        return None
    logs = np.log(np.maximum((series.wall_s / series.span)[chosen], 1e-6))
    sums = np.cumsum(logs)
    count = np.arange(1, len(logs) + 1)
    before = sums / count
    after = (sums[-1] - sums) / np.maximum(len(logs) - count, 1)
    gain = (after - before) * np.sqrt(count * (len(logs) - count))
    inner = slice(_FEWEST - 1, len(logs) - _FEWEST)
    if not len(gain[inner]):
        return None
    cut = int(np.argmax(gain[inner])) + _FEWEST
    per_step = np.exp(logs)
    before_s, after_s = float(np.median(per_step[:cut])), float(np.median(per_step[cut:]))
    noise = float(np.median(np.abs(logs[:cut] - np.log(before_s)))) * 1.4826
    if after_s < _RATIO * before_s or np.log(after_s / before_s) < 4 * noise:
        return None
    later = chosen[cut:]
    lost_s = float(np.maximum(series.wall_s[later] - before_s * series.span[later], 0).sum())
    return Drift(int(series.step[chosen[cut]]), before_s, after_s, lost_s)
