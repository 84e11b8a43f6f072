"""What a distance between slow steps may be called when no line and no wait explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model import Cause, Confidence

from .periods import Period

_INTERVALS = {"checkpoint": Cause.CHECKPOINT, "evaluation": Cause.EVALUATION, "logging": Cause.LOGGING}
_MOST_WORKERS = 128


@dataclass(frozen=True)
class Judged:
    """A cause for a distance, or a word on why there is none; `is_normal` where nothing is wrong."""

    cause: Cause
    confidence: Confidence
    because: str
    is_normal: bool = False


def judge_period(period: Period, settings: Mapping[str, int], *, records_cover: float = 1.0) -> Judged:
    """Return what slow steps at equal distances may be called.

    The log's own settings decide. Without them a distance that looks like a number of workers is called lock-step,
    as a possibility; a round decimal (10, 50, 500) looks like an interval that somebody set, and nobody says for what.

    >>> judge_period(Period(32, 1.0, 9, 6), {"num_workers": 32}).cause.value
    'batch_lockstep'
    >>> every_500 = Period(500, 1.0, 9, 0)
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
        return Judged(Cause.UNKNOWN, Confidence.CERTAIN, "several intervals")
    if steps == workers and not named:
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.LIKELY, "workers")
    if records_cover > 1:
        return Judged(Cause.UNKNOWN, Confidence.CERTAIN, "no text")
    if workers is not None:
        return Judged(Cause.UNKNOWN, Confidence.CERTAIN, "several intervals" if named else "not the workers")
    if _looks_like_workers(steps) and steps % 10 != 0 and period.num_slow >= 4:
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.POSSIBLE, "pattern")
    return Judged(Cause.UNKNOWN, Confidence.CERTAIN, "no text")


def judge_data_period(period: Period, settings: Mapping[str, int]) -> Judged:
    """Return what waits for data at equal distances may be called: lock-step, if the distance can be the workers'.

    >>> judge_data_period(Period(10, 1.0, 9, 0), {}).cause.value
    'batch_lockstep'
    >>> judge_data_period(Period(120, 1.0, 9, 0), {"num_workers": 8}).cause.value
    'unknown'
    """
    workers = settings.get("num_workers")
    if workers == period.steps:
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.LIKELY, "workers")
    if workers is None and _looks_like_workers(period.steps):
        return Judged(Cause.BATCH_LOCKSTEP, Confidence.POSSIBLE, "pattern")
    return Judged(Cause.UNKNOWN, Confidence.CERTAIN, "data at a distance")


def _looks_like_workers(steps: int) -> bool:
    return steps <= _MOST_WORKERS and (steps == 3 or steps % 2 == 0)
