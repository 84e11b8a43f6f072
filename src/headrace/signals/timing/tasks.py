"""Which tasks of a worker are looked into, and what they used: CPU time, time without a core and bytes read.

Each look costs microseconds, which would show where a task takes less than a thousand of them. Whether a task is looked
into depends on those before it alone, so what is seen is not chosen by what it shows.
"""

import os
import sys
import threading
import time
from functools import cache

from headrace.model import EventKind

from ..system import read_stat
from .sample_clock import EventSink

SHORT_TASK_NS = 5_000_000  # below this, looking at /proc for each task would show in the rate
TINY_SAMPLE_NS = 100_000  # below this, looking at the clock for each sample would
_FIRST_LOOKS = 8  # tasks: the first ones of a fetcher are all looked at
_LEAST_APART, _MOST_APART = 8, 256  # short tasks from one look at /proc to the next,
_LOOK_EVERY_NS = 100_000_000  # as far apart as makes it so many nanoseconds: a look takes 50 us
_LOOK_AGAIN = 32  # tasks: of tiny samples every so many tasks have theirs timed
_TINIEST_NS = 50_000  # below this, so many times more tasks: timing a sample takes more than a microsecond
_MOST_TASKS = 512
_READ, _CPU = int(EventKind.READ), int(EventKind.CPU)
_OWN_BYTES = 1024  # what looking at /proc reads itself


class TaskPace:
    """The tasks of one fetcher, by their number from 0 on."""

    def __init__(self, *, times_samples: bool = True) -> None:
        self._next_samples = 0 if times_samples else sys.maxsize
        self._next_resources = 0
        self._samples_apart = _LOOK_AGAIN
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
            self._samples_apart = min(_MOST_TASKS, _LOOK_AGAIN * max(1, _TINIEST_NS // max(1, sample_ns)))
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
        return time.monotonic_ns()
    since_boot = stat.born_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns())
