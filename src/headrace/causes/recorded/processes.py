"""The processes of a recording, each with its events in order, and the time that those take. Pure."""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.model import EventKind, LoaderSettings
from headrace.signals.recording import Recording

Times = NDArray[np.int64]
_L = TypeVar("_L", bound=Hashable)


@dataclass(frozen=True, eq=False)
class ProcessEvents:
    """What one process recorded. `events` is a structured array, ordered by `start_ns`."""

    pid: int
    parent_pid: int
    role: str
    events: NDArray[Any]
    names: Mapping[int, str] = field(default_factory=dict)

    def of(self, *kinds: EventKind, thread: int | None = None) -> NDArray[Any]:
        """Return the events of some kinds, of one thread if it is named."""
        chosen = np.isin(self.events["kind"], [int(kind) for kind in kinds])
        if thread is not None:
            chosen &= self.events["thread"] == thread
        return self.events[chosen]

    def loader_settings(self) -> dict[str, LoaderSettings]:
        """Return what the loaders of this process were asked for, by their names; what was said last holds."""
        return {
            self.names.get(int(said["value"]), ""): LoaderSettings.from_text(self.names.get(int(said["arg"]), ""))
            for said in self.of(EventKind.LOADER)
        }


def processes_of(recording: Recording) -> list[ProcessEvents]:
    """Return the processes that recorded anything."""
    names: dict[int, dict[int, str]] = {}
    for (pid, number), text in recording.names.items():
        names.setdefault(pid, {})[number] = text
    order = np.argsort(recording.events["pid"], kind="stable")
    events = recording.events[order]
    found = []
    for process in recording.processes:
        start, end = np.searchsorted(events["pid"], [process.pid, process.pid + 1])
        if end > start:
            found.append(
                ProcessEvents(process.pid, process.parent, process.role, events[start:end], names.get(process.pid, {}))
            )
    return found


def family_of(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process with those that it started: a worker's parent may be one that a trainer started for it."""
    family = {pid}
    for _ in range(8):
        family |= {child for child, parent in parents.items() if parent in family}
    return family


def starts_of(events: NDArray[Any]) -> Times:
    """Return when events began, as signed numbers that may be subtracted."""
    return np.asarray(events["start_ns"]).astype(np.int64)


def ends_of(events: NDArray[Any]) -> Times:
    return np.asarray(events["start_ns"] + events["duration_ns"]).astype(np.int64)


def total_s(processes: Iterable[ProcessEvents], kind: EventKind) -> float:
    """Return how long the events of a kind took, of some processes together."""
    return sum(float(one.of(kind)["duration_ns"].sum()) for one in processes) / 1e9


class Coverage:
    """How much of a stretch of time is covered by any of some intervals.

    >>> covered = Coverage(np.array([0, 5, 20]), np.array([10, 12, 30]))
    >>> covered.between(np.array([0, 8]), np.array([40, 25])).tolist()
    [22.0, 9.0]
    """

    def __init__(self, starts: Times, ends: Times) -> None:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        if len(starts):
            reach = np.maximum.accumulate(ends)
            is_new = np.concatenate(([True], starts[1:] > reach[:-1]))
            starts, ends = starts[is_new], reach[np.concatenate((np.flatnonzero(is_new)[1:] - 1, [len(reach) - 1]))]
        self._at = np.empty(2 * len(starts), np.int64)
        self._at[0::2], self._at[1::2] = starts, ends
        self._sum = np.zeros(2 * len(starts))
        self._sum[1::2] = np.cumsum(ends - starts)
        self._sum[2::2] = self._sum[1:-1:2]

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The intervals, those that overlap joined."""
        return [*zip(self._at[0::2].tolist(), self._at[1::2].tolist(), strict=True)]

    def between(self, starts: Times, ends: Times) -> NDArray[np.float64]:
        if not len(self._at):
            return np.zeros(len(starts))
        zero = int(self._at[0])  # the distance from here fits a float
        at = (self._at - zero).astype(float)
        upper = np.interp((ends - zero).astype(float), at, self._sum)
        return np.asarray(upper - np.interp((starts - zero).astype(float), at, self._sum))


def covering(*events: NDArray[Any]) -> Coverage:
    none = np.empty(0, np.int64)
    return Coverage(*(np.concatenate([none, *map(edge, events)]) for edge in (starts_of, ends_of)))


# ---------------------------------------------------------------------------------------- every moment once

# Each moment belongs to the event that began last among those that are open, so what lies inside another event is taken
# from it. An *opaque* event keeps what lies inside it (the waits of an evaluation are evaluation), but for what *shows
# through*: a checkpoint is one, in an evaluation too.


@dataclass(frozen=True)
class Span(Generic[_L]):
    """Something that a thread was in, from `start` to `end`, by a label."""

    start: int
    end: int
    label: _L
    is_opaque: bool = False
    shows_through: bool = False


def seen(spans: Iterable[Span[_L]]) -> Iterator[Span[_L]]:
    """Yield those spans, in their order, that no opaque one keeps."""
    reach: float = -math.inf
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if span.start >= reach or span.shows_through:
            yield span
        if span.is_opaque:
            reach = max(reach, span.end)


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
