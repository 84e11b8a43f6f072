"""Where a thread's time went, from events that lie inside each other: every moment is counted exactly once. Pure.

Each moment belongs to the event that began last among those that are open, so what lies inside another event is taken
from it. An *opaque* event keeps what lies inside it (the waits of an evaluation are evaluation), but for what *shows
through*: a checkpoint is one, in an evaluation too.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_L = TypeVar("_L", bound=Hashable)


@dataclass(frozen=True)
class Span(Generic[_L]):
    """Something that a thread was in, from `start` to `end`, by a label."""

    start: int
    end: int
    label: _L
    is_opaque: bool = False
    shows_through: bool = False


def exclusive_times(spans: Sequence[Span[_L]], start: int, end: int, *, rest: _L) -> Mapping[_L, int]:
    """Return for each label the time that was its alone; `rest` gets what no span covers. They add up to end - start.

    >>> step = [Span(0, 100, "step"), Span(10, 40, "wait"), Span(20, 30, "gc"), Span(120, 150, "wait")]
    >>> exclusive_times(step, 0, 200, rest="other")
    {'step': 70, 'wait': 50, 'gc': 10, 'other': 70}
    """
    totals: dict[_L, int] = {}
    open_spans: list[tuple[int, _L, bool]] = []  # end, label, is_opaque; the innermost last
    cursor = start

    def advance(to: int) -> None:
        nonlocal cursor
        while open_spans and open_spans[-1][0] <= to:
            last, label, _ = open_spans.pop()
            if last > cursor:
                totals[label] = totals.get(label, 0) + last - cursor
                cursor = last
        if to > cursor:
            label = open_spans[-1][1] if open_spans else rest
            totals[label] = totals.get(label, 0) + to - cursor
            cursor = to

    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        first, last = max(span.start, start), min(span.end, end)
        if last <= first:
            continue
        advance(first)
        inside = open_spans[-1] if open_spans else None
        if inside is not None and inside[2] and not span.shows_through:
            open_spans.append((last, inside[1], True))
        else:
            open_spans.append((last, span.label, span.is_opaque))
    advance(end)
    return totals
