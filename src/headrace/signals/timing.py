"""Timing what a loader does: samples and their parts, tasks and what they used, every `next`.

A part is a call that is known to read, decode or transform, or a stage that the user named. What lies inside another
part is taken from it, so the parts of a sample and the rest add up to the sample. A thread that is not fetching a
sample is not timed: there a part costs one look at a variable.

Looking into a task costs microseconds, which would show where it takes less than a thousand of them. Whether a task is
looked into depends on those before it alone, so what is seen is not chosen by what it shows.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from headrace.model import EventKind

from .system import read_stat

_SAMPLE, _PART, _OFF_CORE = int(EventKind.SAMPLE), int(EventKind.PART), int(EventKind.OFF_CORE)
# To ask for a thread's CPU time is a system call of half a microsecond, where the clock costs a tenth of it: of short
# samples one in so many is looked at.
_SHORT_NS = 10_000_000
_LOOK_AGAIN = 8
_OFF_CORE_FROM_NS = 20_000  # of a part: less is the noise of two clocks
SHORT_TASK_NS = 5_000_000  # below this, looking at /proc for each task would show in the rate
TINY_SAMPLE_NS = 100_000  # below this, looking at the clock for each sample would
_FIRST_LOOKS = 8  # tasks: the first ones of a fetcher are all looked at
_LEAST_APART, _MOST_APART = 8, 256  # short tasks from one look at /proc to the next,
_LOOK_EVERY_NS = 100_000_000  # as far apart as makes it so many nanoseconds: a look takes 50 us
_TASKS_APART = 32  # tasks: of tiny samples every so many tasks have theirs timed
_TINIEST_NS = 50_000  # below this, so many times more tasks: timing a sample takes more than a microsecond
_MOST_TASKS = 512
_READ, _CPU = int(EventKind.READ), int(EventKind.CPU)
_OWN_BYTES = 1024  # what looking at /proc reads itself

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


# ---------------------------------------------------------------------------------------- tasks


class TaskPace:
    """The tasks of one fetcher, by their number from 0 on."""

    def __init__(self, *, times_samples: bool = True) -> None:
        self._next_samples = 0 if times_samples else sys.maxsize
        self._next_resources = 0
        self._samples_apart = _TASKS_APART
        self._apart, self._looked_ns = _LEAST_APART, 0

    def __repr__(self) -> str:
        return f"TaskPace(samples={self._next_samples}, resources={self._next_resources})"

    def times_samples(self, number: int) -> bool:
        return number >= self._next_samples

    def looks(self, number: int) -> bool:
        """Whether a task's resources are looked at."""
        return number >= self._next_resources

    def looked(self, number: int, start_ns: int, duration_ns: int, samples: int = 0, samples_ns: int = 0) -> int:
        """Take in a task that was looked into, with its timed samples; return the number of the next one."""
        looked = self.looks(number)
        if samples:
            sample_ns = samples_ns // samples
            is_tiny = sample_ns < TINY_SAMPLE_NS
            self._samples_apart = min(_MOST_TASKS, _TASKS_APART * max(1, _TINIEST_NS // max(1, sample_ns)))
            self._next_samples = number + (self._samples_apart if is_tiny else 1)
        elif self.times_samples(number):  # it came to none
            self._next_samples = number + self._samples_apart
        if duration_ns >= SHORT_TASK_NS or number + 1 < _FIRST_LOOKS:
            self._next_resources = number + 1
        elif looked:
            apart_ns = start_ns - self._looked_ns  # how far the last two looks were from each other
            if apart_ns < _LOOK_EVERY_NS:
                self._apart = min(_MOST_APART, 2 * self._apart)
            elif apart_ns > 4 * _LOOK_EVERY_NS:
                self._apart = max(_LEAST_APART, self._apart // 2)
            self._next_resources = number + self._apart
        if looked:
            self._looked_ns = start_ns
        return min(self._next_samples, self._next_resources)

    def long_task(self, number: int) -> int:
        """Take in that a task which was not looked into was long; return the number of the next one to look into."""
        self._next_resources = number + 1
        return self._next_resources


class TaskUsage:
    """CPU time, time without a core and bytes read of this process, over a task."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink

    def start(self) -> None:
        self._cpu_ns = time.process_time_ns()
        self._delay_ns, self._bytes = _run_delay_ns(), _bytes_read()

    def write(self, start: int, duration: int) -> None:
        cpu_ns = time.process_time_ns() - self._cpu_ns
        delay_us = (_run_delay_ns() - self._delay_ns) // 1000
        self._sink.write(_CPU, start, duration, cpu_ns, max(0, delay_us))
        if (read := _bytes_read() - self._bytes) > _OWN_BYTES:
            self._sink.write(_READ, start, 0, read)


def _run_delay_ns() -> int:
    """How long the calling thread was ready to run and had no core."""
    fd = _opened("/proc/thread-self/schedstat", os.getpid(), threading.get_native_id())
    return int(os.pread(fd, 128, 0).split()[1]) if fd >= 0 else 0


def _bytes_read() -> int:
    """Bytes that went through `read` and its like; of a mapped file nothing is seen."""
    fd = _opened("/proc/self/io", os.getpid())
    if fd < 0:
        return 0
    text = os.pread(fd, 64, 0)
    return int(text[7 : text.index(b"\n")])


@cache
def _opened(path: str, _pid: int, _thread: int = 0) -> int:
    """Open a file of /proc, once for all the loaders that a process ever has; -1 where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.pread(fd, 128, 0)
    except OSError:
        return -1
    return fd


def born_ns() -> int:
    """When this process was started, on the clock of the events."""
    stat = read_stat("self")
    if stat is None:  # no /proc
        return now()
    since_boot = stat.born_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - now())


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
