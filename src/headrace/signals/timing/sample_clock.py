"""What is timed from outside: a sample with its parts, of which every moment counts once, and every `next` of a loader.

A part is a call that is known to read, decode or transform, or a stage that the user named. What lies inside another
part is taken from it, so the parts of a sample and the rest add up to the sample. A thread that is not fetching a
sample is not timed: there a part costs one look at a variable.
"""

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from headrace.model import EventKind

_SAMPLE, _PART, _OFF_CORE = int(EventKind.SAMPLE), int(EventKind.PART), int(EventKind.OFF_CORE)
# To ask for a thread's CPU time is a system call of half a microsecond, where the clock costs a tenth of it: of short
# samples one in so many is looked at.
_SHORT_NS = 10_000_000
_LOOK_AGAIN = 8
_OFF_CORE_FROM_NS = 20_000  # of a part: less is the noise of two clocks

now = time.monotonic_ns
_cpu_ns = time.thread_time_ns

PartFrame = tuple[int, int, int, int]  # when a part began and what was inside of the one around it, on both clocks


class EventSink(Protocol):
    """Where events go: a process's `Lane`, or whoever opens one when the first comes."""

    def name(self, text: str) -> int:
        """Return the number by which an event may name a text."""

    @property
    def write(self) -> Callable[..., None]:
        """Record an event: kind, start, duration, value, arg."""


class SampleClock:
    """A sample under way in one thread."""

    __slots__ = ("inner_cpu_ns", "inner_ns", "looks", "parts", "start_cpu_ns", "start_ns")

    def __init__(self, *, looks: bool) -> None:
        self.looks = looks  # at the thread's CPU time, too
        self.inner_ns = self.inner_cpu_ns = 0
        self.parts: dict[str, list[int]] = {}  # own time, bytes, time of it without a core
        self.start_cpu_ns = _cpu_ns() if looks else 0
        self.start_ns = now()

    def enter(self) -> PartFrame:
        """Begin a part, inside of the one that is open."""
        outer_ns, outer_cpu_ns = self.inner_ns, self.inner_cpu_ns
        self.inner_ns = self.inner_cpu_ns = 0
        return now(), outer_ns, _cpu_ns() if self.looks else 0, outer_cpu_ns

    def leave(self, frame: PartFrame, name: str, nbytes: int) -> None:
        """End a part: what was not spent in parts inside it is its own."""
        start_ns, outer_ns, start_cpu_ns, outer_cpu_ns = frame
        elapsed_ns = now() - start_ns
        own_ns = elapsed_ns - self.inner_ns
        self.inner_ns = outer_ns + elapsed_ns
        part = self.parts.get(name)
        if part is None:
            part = self.parts[name] = [0, 0, 0]
        part[0] += own_ns
        part[1] += nbytes
        if self.looks:
            used_ns = _cpu_ns() - start_cpu_ns
            part[2] += own_ns - (used_ns - self.inner_cpu_ns)
            self.inner_cpu_ns = outer_cpu_ns + used_ns


class _Now(threading.local):
    sample: SampleClock | None = None


class _Pace:
    """How often this process looks at the CPU time of its samples."""

    samples = 0
    last_ns = 0


current_sample = _Now()  # of this thread: whoever times a part looks here
_pace = _Pace()


def begin_sample() -> SampleClock | None:
    """Begin a sample in this thread; None where one is under way already, to which this one then belongs."""
    if current_sample.sample is not None:
        return None
    _pace.samples += 1
    clock = SampleClock(looks=_pace.last_ns >= _SHORT_NS or _pace.samples % _LOOK_AGAIN == 1)
    current_sample.sample = clock
    return clock


def end_sample(clock: SampleClock | None, index: int, sink: EventSink) -> int:
    """End a sample and write what it took; return its nanoseconds. `index` -1: not known, -n: n samples at once."""
    if clock is None:
        return 0
    start_ns = clock.start_ns
    duration_ns = now() - start_ns
    current_sample.sample = None
    _pace.last_ns = duration_ns
    sink.write(_SAMPLE, start_ns, duration_ns, index)
    for name, (own_ns, nbytes, off_core_ns) in clock.parts.items():
        number = sink.name(name)
        sink.write(_PART, start_ns, own_ns, nbytes, number)
        if off_core_ns >= _OFF_CORE_FROM_NS:
            sink.write(_OFF_CORE, start_ns, off_core_ns, 0, number)
    if clock.looks:
        used_ns = _cpu_ns() - clock.start_cpu_ns
        sink.write(_OFF_CORE, start_ns, max(0, duration_ns - used_ns), 0, 0)
    return duration_ns


# ---------------------------------------------------------------------------------------- every next

Take = Callable[[Any], Any]  # takes the iterator, returns the next batch


class NextWatch:
    """Who watches every `next` of our loader in this process: `wrap` is None, or makes of it what is called instead.

    Whoever records a program (`headrace run`) times each `next` and may give a batch of its own; torch's iterators are
    wrapped for that, ours ask here.
    """

    wrap: Callable[[Take], Take] | None = None

    @classmethod
    def install(cls, wrap: Callable[[Take], Take] | None) -> None:
        cls.wrap = None if wrap is None else cache(wrap)

    @classmethod
    def take(cls, take: Take) -> Take:
        """How an iterator is to take its next batch, where somebody watches."""
        return take if cls.wrap is None else cls.wrap(take)
