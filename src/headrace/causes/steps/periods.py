"""Whether slow steps come at equal distances, and at which."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..logs import Series

_LONGEST_LAG = 256
_LUCK = 0.01  # how unlikely an accident must be before we call a distance a period


@dataclass(frozen=True)
class Period:
    """Slow steps `steps` apart; `kept` of their distances are whole multiples of it."""

    steps: int
    kept: float
    num_slow: int
    phase: int | None  # remainder that the slow steps share, where they share one


def find_period(slow_steps: Sequence[Sequence[float]]) -> Period | None:
    """Return the distance at which slow steps come; each sequence holds those of one stretch (an epoch), in order.

    >>> find_period([[2950, 2982, 3014, 3046, 3110, 3142]])
    Period(steps=32, kept=1.0, num_slow=6, phase=6)
    >>> find_period([[10, 17, 40, 41, 90]]) is None
    True
    """
    distances = [int(b - a) for steps in slow_steps for a, b in pairwise(steps) if b > a]
    num_slow = sum(len(steps) for steps in slow_steps)
    if len(distances) < 2:
        return None
    best: tuple[float, int] | None = None
    for candidate in {*Counter(distances), *_gcds(distances)}:
        if candidate < 2:
            continue
        kept = sum(distance % candidate == 0 for distance in distances)
        exact = sum(distance == candidate for distance in distances)
        share = kept / len(distances)
        # The first distance fits by choice; each further one would fit by accident once in `candidate` times.
        luck = _at_least(kept - 1, len(distances) - 1, 1 / candidate)
        if exact == len(distances) == 2:
            luck /= 2  # two equal distances are less of an accident than two multiples
        if share < 0.75 or exact < 0.3 * kept or luck > _LUCK:
            continue
        if best is None or luck < best[0]:  # of 16 and 32 that fit alike, 32 is the less likely accident
            best = (luck, candidate)
    if best is None:
        return None
    period = best[1]
    kept_share = sum(distance % period == 0 for distance in distances) / len(distances)
    phases = Counter(int(step) % period for steps in slow_steps for step in steps)
    phase, count = phases.most_common(1)[0]
    return Period(period, kept_share, num_slow, phase if count >= 0.75 * num_slow else None)


def find_rhythm(values: NDArray[np.float64]) -> Period | None:
    """Return the lag at which a series of waits repeats itself, for slow steps that wander from slot to slot."""
    if len(values) < 24:
        return None
    clipped = np.minimum(values, np.quantile(values, 0.98))
    centred = clipped - clipped.mean()
    power = float(centred @ centred)
    if power <= 0:
        return None
    most = min(_LONGEST_LAG, len(values) // 3)
    likeness = np.array([float(centred[:-lag] @ centred[lag:]) / power for lag in range(1, most + 1)])
    for lag in range(2, most):
        here = likeness[lag - 1]
        is_peak = here > likeness[lag - 2] and here >= likeness[lag]
        if is_peak and here >= 0.85 * float(likeness[1:].max()) and here > max(0.3, 4 / math.sqrt(len(values))):
            return Period(lag, round(float(here), 2), 0, None)
    return None


def by_step(series: Series, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values on an axis of steps, from the longest stretch of a series; steps without a record have none."""
    numbers, counts = np.unique(series.segment, return_counts=True)
    chosen = series.segment == numbers[int(np.argmax(counts))]
    steps = (series.step[chosen] - series.step[chosen].min()).astype(int)
    if steps.max() > 16 * len(steps):
        return np.asarray(values[chosen])
    line = np.full(int(steps.max()) + 1, float(np.median(values[chosen])))
    line[steps] = values[chosen]
    return line


def _gcds(distances: Sequence[int]) -> set[int]:
    common = Counter(distances).most_common(6)
    return {math.gcd(a, b) for a, _ in common for b, _ in common}


def _at_least(hits: int, trials: int, chance: float) -> float:
    """Return the probability of at least so many hits."""
    if hits <= 0:
        return 1.0
    return (
        sum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))
        if (trials < 200)
        else math.exp(-trials * max(0.0, hits / trials - chance) ** 2 * 2)
    )
