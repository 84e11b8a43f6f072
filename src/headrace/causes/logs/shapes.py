"""Lines that differ in their numbers only: read the first one with care, the others by the place of each number.

A log repeats a few lines a million times. What a line's numbers mean is learned once for each shape (the line with its
numbers blanked out), by reading it again with other numbers in their places and seeing which of them come out where.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, isnan

from .fields import NAN, Measures, Position, read_measures, read_position, read_rate_s

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SENTINEL = 700_000
_FACTORS = (1.0, 1e-3, 1e-6, 60.0)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Where in a line of one shape the numbers of a step stand: which number, and what to multiply it by."""

    step: int
    of: int | None
    epoch: int | None
    took: tuple[int, float] | None  # a negative factor: a rate, so the number goes below the line
    wait: tuple[int, float] | None
    unit_known: bool

    def apply(self, numbers: Sequence[str]) -> tuple[int, int, float, float, float]:
        """Return step, steps an epoch (0: not told), epoch, step time and wait from a line's numbers."""
        return (
            int(float(numbers[self.step])),
            int(float(numbers[self.of])) if self.of is not None else 0,
            float(numbers[self.epoch]) if self.epoch is not None else NAN,
            _value(numbers, self.took),
            _value(numbers, self.wait),
        )


def _value(numbers: Sequence[str], place: tuple[int, float] | None) -> float:
    if place is None:
        return NAN
    number, factor = float(numbers[place[0]]), place[1]
    if factor > 0:
        return number * factor
    return 1 / number if number > 0 else NAN


def shape_of(line: str) -> str:
    """Return a line with its numbers blanked out.

    >>> shape_of("step 12 time 0.203s"), numbers_of("step 12 time 0.203s")
    ('step 0 time 0s', ['12', '0.203'])
    """
    return _NUMBER.sub("0", line)


def numbers_of(line: str) -> list[str]:
    """Return the numbers of a line, in their order."""
    return _NUMBER.findall(line)


def learn_plan(line: str, position: Position, took_s: float, measures: Measures) -> StepPlan | None:
    """Return where the numbers of this line stand that were read from it, or None where that is not clear."""
    numbers = numbers_of(line)
    count = iter(range(len(numbers)))
    probe = _NUMBER.sub(lambda match: f"{_SENTINEL + next(count)}" + (".5" if "." in match[0] else ""), line)
    seen = read_position(probe)
    if seen is None:
        return None
    seen_measures = read_measures(probe)
    seen_took = seen_measures.took_s if seen_measures is not None else NAN
    if isnan(seen_took):
        seen_took = read_rate_s(probe)
    places = {
        "step": _index(seen.step, len(numbers)),
        "of": _index(seen.of, len(numbers)),
        "epoch": _index(seen.epoch, len(numbers)),
    }
    if places["step"] is None:
        return None
    plan = StepPlan(
        step=places["step"],
        of=places["of"],
        epoch=places["epoch"],
        took=_place(seen_took, len(numbers)),
        wait=_place(seen_measures.wait_s if seen_measures is not None else NAN, len(numbers)),
        unit_known=measures.unit_known,
    )
    expected = (
        position.step,
        position.of or 0,
        NAN if position.epoch is None else float(position.epoch),
        took_s,
        measures.wait_s,
    )
    got = plan.apply(numbers)
    return plan if all(_same(a, b) for a, b in zip(expected, got, strict=True)) else None


def _index(value: int | None, count: int) -> int | None:
    index = -1 if value is None else value - _SENTINEL
    return index if 0 <= index < count else None


def _place(seconds: float, count: int) -> tuple[int, float] | None:
    if isnan(seconds) or seconds <= 0:
        return None
    for factor in _FACTORS:
        index = int(seconds / factor + 0.25) - _SENTINEL
        if 0 <= index < count and isclose((seconds / factor) % 0.5, 0, abs_tol=0.01):
            return index, factor
    index = int(1 / seconds + 0.25) - _SENTINEL
    return (index, -1.0) if 0 <= index < count else None


def _same(a: float, b: float) -> bool:
    return (isnan(a) and isnan(b)) or isclose(a, b, rel_tol=1e-9)
