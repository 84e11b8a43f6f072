"""What one worker leaves in a recording: its tasks, samples and their parts, collations, what it hands over, idling."""

import time
from typing import Any

from headrace.model import EventKind
from headrace.signals import SHORT_TASK_NS, SampleClock, TaskPace, TaskUsage, begin_sample, born_ns, end_sample
from headrace.signals.recording import KeptEvents, Lane

_FETCH, _COLLATE, _SEND, _IDLE, _WORKER_START = (
    int(kind) for kind in (EventKind.FETCH, EventKind.COLLATE, EventKind.SEND, EventKind.IDLE, EventKind.WORKER_START)
)
_FIRST_EVENTS = 512  # that are written at once: a worker that is killed after a few tasks has those at least

_now = time.perf_counter_ns


class WorkerEvents:
    """The events of one worker, made and used in its own thread. Where nobody records there is none of these."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        # pages come one by one: hundreds of workers would hold a megabyte each from the start
        self._keep = KeptEvents(lane, first=_FIRST_EVENTS, populates=False)
        self._pace, self._resources = TaskPace(), TaskUsage(lane)
        self._task, self._next_look = -1, 0
        self._looks = False  # at the task in hand
        self._times_samples = False
        self._samples = self._samples_ns = 0
        self._clock: SampleClock | None = None
        self._has_begun = False
        self._idle_since_ns = self._task_since_ns = self._waited_ns = 0

    def __repr__(self) -> str:
        return f"WorkerEvents(tasks={self._task + 1}, {self._lane!r})"

    def begin_idle(self) -> None:
        self._idle_since_ns = _now()
        if not self._has_begun:
            self._has_begun = True
            born = born_ns()
            self._lane.write(_WORKER_START, born, max(0, self._idle_since_ns - born))
        self._lane.mark_task(0)

    def end_idle(self) -> None:
        now = _now()
        self._lane.mark_task(now)
        self._keep.keep(_IDLE, self._idle_since_ns, now - self._idle_since_ns)

    def begin_task(self) -> None:
        """A task is in hand; some are looked into."""
        self._task += 1
        self._looks = self._times_samples = False
        if self._task >= self._next_look:
            self._samples = self._samples_ns = 0
            self._looks, self._times_samples = self._pace.looks(self._task), self._pace.times_samples(self._task)
            if self._looks:
                self._resources.start()
        self._task_since_ns = _now()

    def end_task(self, rows: int) -> None:
        since = self._task_since_ns
        duration = _now() - since
        self._keep.keep(_FETCH, since, duration, rows)
        if self._looks:
            self._resources.write(since, duration)
        if self._task >= self._next_look:
            self._next_look = self._pace.looked(self._task, since, duration, self._samples, self._samples_ns)
        elif duration >= SHORT_TASK_NS:
            self._next_look = self._pace.long_task(self._task)

    def begin_sample(self) -> None:
        """The data set is asked for a sample, or for several at once."""
        if self._times_samples:
            self._clock = begin_sample()

    def end_sample(self, index: Any, count: int = 1) -> None:
        """It has given it, or failed. `count`: of samples that it was asked for at once."""
        clock, self._clock = self._clock, None
        if clock is not None:
            number = -count if count > 1 else index if type(index) is int else -1
            self._samples += count
            self._samples_ns += end_sample(clock, number, self._lane)

    def collated(self, since_ns: int) -> None:
        self._lane.write(_COLLATE, since_ns, _now() - since_ns)

    def handed_over(self, since_ns: int) -> None:
        """What was made has been written, into its rows or into a block, since then; waiting for room is not that."""
        waited_ns, self._waited_ns = self._waited_ns, 0
        now = _now()
        self._lane.write(_SEND, since_ns + waited_ns, max(0, now - since_ns - waited_ns))

    def waited(self, since_ns: int) -> None:
        """There was no room for what is done, since then."""
        waited_ns = _now() - since_ns
        self._waited_ns += waited_ns
        self._lane.write(_IDLE, since_ns, waited_ns)

    def close(self) -> None:
        """Write what was kept: the worker ends. Safe to call twice."""
        self._lane.mark_task(0)
        self._keep.write()
