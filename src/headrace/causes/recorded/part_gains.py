"""What it would bring to make one part of a sample cheaper: Amdahl's law on measured shares, with its error. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Bottleneck, Cause, PartKind

from .data_waits import DataVerdict
from .sample_parts import Part

_DATA = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
_WORTH = 0.05  # of gain from a part that is twice as fast: less is not worth a change
_FEWEST_SAMPLES = 12


@dataclass(frozen=True)
class CheaperPart:
    """A part twice as fast would make the training so many times as fast, give or take; free, at most so many."""

    part: Part
    share: float  # of a task's time
    twice_gain: float
    error: float
    most_gain: float


def estimate_cheaper_part(verdict: DataVerdict, train_s: float) -> CheaperPart | None:
    """Estimate for the part that takes most of a task, where computing is what takes long.

    The other parts stay as they are, and the loop is not fed faster than it works. Nothing is said where standing
    still is the limit, or where the gain is within twice its error.
    """
    parts = verdict.parts
    if parts is None or verdict.cause not in _DATA or parts.num_samples < _FEWEST_SAMPLES or train_s <= 0:
        return None
    if verdict.bottleneck not in {Bottleneck.CPU_DECODE, Bottleneck.GIL}:
        return None
    candidates = [part for part in parts.parts if part.kind is not PartKind.READ]
    part = max(candidates, key=_worked, default=None)
    if part is None or parts.total_s <= 0:
        return None
    share = _worked(part) / parts.total_s * parts.task_share
    error_of_share = part.error * parts.task_share
    gain = _gain(verdict, train_s, share / 2)
    error = _gain(verdict, train_s, (share + error_of_share) / 2) - gain
    if gain - 1 < max(_WORTH, 2 * error):
        return None
    return CheaperPart(part, share, gain, error, _gain(verdict, train_s, share))


def _worked(part: Part) -> float:
    return part.own_s - part.still_s


def _gain(verdict: DataVerdict, train_s: float, saved: float) -> float:
    """Return how many times as fast the training is if tasks take this share of their time less."""
    count = len(verdict.wait_s)
    period_s = 1 / verdict.supply_per_s
    if verdict.loader.num_workers:
        faster_s = max(verdict.step_s, period_s * (1 - min(1.0, saved)))
    else:  # fetched by the loop itself: what waits is the task
        faster_s = period_s - verdict.lost_s / count * min(1.0, saved)
    saved_s = min(verdict.lost_s, max(0.0, count * (period_s - faster_s)))
    return train_s / max(train_s - saved_s, 0.01 * train_s)
