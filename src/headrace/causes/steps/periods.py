"""Whether slow steps come at equal distances, at which, and what such a distance may be called."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headrace.model import Cause, Confidence

from ..logs import Series
from .stalls import Cost, Drift, Floats

_LONGEST_LAG = 256
_LUCK = 0.01  # how unlikely an accident must be before we call a distance a period
_INTERVALS = {"checkpoint": Cause.CHECKPOINT, "evaluation": Cause.EVALUATION, "logging": Cause.LOGGING}
_MOST_WORKERS = 128


@dataclass(frozen=True)
class StepPeriod:
    """Slow steps `steps` apart; `kept` of their distances are whole multiples of it."""

    steps: int
    kept: float
    num_slow: int
    phase: int | None  # remainder that the slow steps share, where they share one


@dataclass(frozen=True, kw_only=True)
class LostTime(Cost):
    """Time lost to one cause, in slow steps."""

    cause: Cause
    confidence: Confidence
    period: StepPeriod | None = None
    steps: tuple[int, ...] = ()  # the first few
    because: str = ""  # a word for the report: which of several reasons
    median_wait_s: float = 0.0  # for data, of all steps
    supply: tuple[float, float] | None = None  # where waits are told: steps a second that were fed, and could have been
    drift: Drift | None = None


def find_period(slow_steps: Sequence[Sequence[float]]) -> StepPeriod | None:
    """Return the distance at which slow steps come; each sequence holds those of one stretch (an epoch), in order.

    >>> find_period([[2950, 2982, 3014, 3046, 3110, 3142]])
    StepPeriod(steps=32, kept=1.0, num_slow=6, phase=6)
    >>> find_period([[10, 17, 40, 41, 90]]) is None
    True
    """
    distances = [int(b - a) for steps in slow_steps for a, b in pairwise(steps) if b > a]
    num_slow = sum(len(steps) for steps in slow_steps)
    if len(distances) < 2:
        return None
    best: tuple[float, int, float] | None = None
    counts = Counter(distances)
    common = [distance for distance, _ in counts.most_common(6)]
    for candidate in {*counts, *(math.gcd(a, b) for a in common for b in common)}:
        if candidate < 2:
            continue
        kept = sum(distance % candidate == 0 for distance in distances)
        exact = counts[candidate]
        share = kept / len(distances)
        # The first distance fits by choice; each further one would fit by accident once in `candidate` times.
        luck = _at_least(kept - 1, len(distances) - 1, 1 / candidate)
        if exact == len(distances):  # equal distances are less of an accident than multiples
            luck = min(luck, ((1 - 1 / candidate) ** (candidate - 1) / candidate) ** (exact - 1))
        if share < 0.75 or exact < 0.3 * kept or luck > _LUCK:
            continue
        if best is None or luck < best[0]:  # of 16 and 32 that fit alike, 32 is the less likely accident
            best = (luck, candidate, share)
    if best is None:
        return None
    _, period, kept_share = best
    phases = Counter(int(step) % period for steps in slow_steps for step in steps)
    phase, count = phases.most_common(1)[0]
    return StepPeriod(period, kept_share, num_slow, phase if count >= 0.75 * num_slow else None)


def find_rhythm(values: Floats) -> StepPeriod | None:
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
            return StepPeriod(lag, round(float(here), 2), 0, None)
    return None


def by_segment(series: Series, indices: Iterable[int]) -> list[list[float]]:
    """Return the steps of some records, those of each stretch of a series apart."""
    groups: dict[float, list[float]] = {}
    for index in indices:
        groups.setdefault(float(series.segment[index]), []).append(float(series.step[index]))
    return list(groups.values())


def by_step(series: Series, values: Floats) -> Floats:
    """Return values on an axis of steps, from the longest stretch of a series; steps without a record have none."""
    numbers, counts = np.unique(series.segment, return_counts=True)
    chosen = series.segment == numbers[int(np.argmax(counts))]
    steps = (series.step[chosen] - series.step[chosen].min()).astype(int)
    if steps.max() > 16 * len(steps):
        return np.asarray(values[chosen])
    line = np.full(int(steps.max()) + 1, float(np.median(values[chosen])))
    line[steps] = values[chosen]
    return line


def _at_least(hits: int, trials: int, chance: float) -> float:
    """Return the probability of at least so many hits."""
    if hits <= 0:
        return 1.0
    if trials >= 200:
        return math.exp(-trials * max(0.0, hits / trials - chance) ** 2 * 2)
    return sum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))


@dataclass(frozen=True)
class Judged:
    """A cause for a distance, or a word on why there is none; `is_normal` where nothing is wrong."""

    cause: Cause
    confidence: Confidence
    because: str
    is_normal: bool = False


def judge_period(period: StepPeriod, settings: Mapping[str, int], *, records_cover: float = 1.0) -> Judged:
    """Return what slow steps at equal distances may be called.

    The log's own settings decide. Without them a distance that looks like a number of workers is called lock-step,
    as a possibility; a round decimal (10, 50, 500) looks like an interval that somebody set, and nobody says for what.

    >>> judge_period(StepPeriod(32, 1.0, 9, 6), {"num_workers": 32}).cause.value
    'batch_lockstep'
    >>> every_500 = StepPeriod(500, 1.0, 9, 0)
    >>> judge_period(every_500, {}).cause.value, judge_period(every_500, {"checkpoint": 500}).cause.value
    ('unknown', 'checkpoint')
    """
    steps = period.steps
    workers = settings.get("num_workers")
    named = [cause for name, cause in _INTERVALS.items() if settings.get(name) == steps]
    if settings.get("accumulate", 1) == steps > 1 and steps != workers:
        return Judged(Cause.COMPUTE, Confidence.LIKELY, "accumulate", is_normal=True)
    if named and workers != steps:
        if len(named) == 1:
            return Judged(named[0], Confidence.LIKELY, "interval")
        return Judged(Cause.UNKNOWN, Confidence.LIKELY, "several intervals")
    if steps == workers and not named:
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.LIKELY, "workers")
    if records_cover > 1:
        return Judged(Cause.UNKNOWN, Confidence.LIKELY, "no text")
    if workers is not None:
        return Judged(Cause.UNKNOWN, Confidence.LIKELY, "several intervals" if named else "not the workers")
    if _looks_like_workers(steps) and steps % 10 != 0 and period.num_slow >= 4:
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.POSSIBLE, "pattern")
    return Judged(Cause.UNKNOWN, Confidence.LIKELY, "no text")


def judge_data_period(period: StepPeriod, settings: Mapping[str, int]) -> Judged:
    """Return what waits for data at equal distances may be called: lock-step, if the distance can be the workers'.

    >>> judge_data_period(StepPeriod(10, 1.0, 9, 0), {}).cause.value
    'batch_lockstep'
    >>> judge_data_period(StepPeriod(120, 1.0, 9, 0), {"num_workers": 8}).cause.value
    'unknown'
    """
    workers = settings.get("num_workers")
    if workers == period.steps:
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.LIKELY, "workers")
    if workers is None and _looks_like_workers(period.steps):
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.POSSIBLE, "pattern")
    return Judged(Cause.UNKNOWN, Confidence.LIKELY, "data at a distance")


def _looks_like_workers(steps: int) -> bool:
    return steps <= _MOST_WORKERS and (steps == 3 or steps % 2 == 0)
