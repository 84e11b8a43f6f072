"""What a task of a worker used: CPU time, time without a core and bytes read of its process."""

from __future__ import annotations

import os
import threading
import time

from headrace.model import EventKind

from ..system import read_stat
from .sample_clock import EventSink

_READ, _CPU = int(EventKind.READ), int(EventKind.CPU)
_OWN_BYTES = 1024  # what looking at /proc reads itself


class _Files:
    """The files of /proc about this process and its threads, held open: once for all the loaders that it ever has."""

    def __init__(self) -> None:
        self.pid, self.io = 0, -1
        self._schedules: dict[int, int] = {}  # by thread

    def open(self) -> None:
        for fd in (*self._schedules.values(), self.io):  # of the process that this one was forked from
            if fd >= 0:
                os.close(fd)
        self.pid, self.io = os.getpid(), _opened("/proc/self/io")
        self._schedules = {}

    def schedule(self) -> int:
        """Return the file about the calling thread."""
        thread = threading.get_native_id()
        fd = self._schedules.get(thread)
        if fd is None:
            fd = self._schedules[thread] = _opened("/proc/thread-self/schedstat")
        return fd


_files = _Files()


class TaskResources:
    """CPU time, time without a core and bytes read of this process, over a task."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink

    def start(self) -> None:
        """Begin a task."""
        if _files.pid != os.getpid():
            _files.open()
        self._cpu_ns = time.process_time_ns()
        self._delay_ns, self._bytes = self._run_delay_ns(), self._bytes_read()

    def write(self, start: int, duration: int) -> None:
        """End it."""
        cpu_ns = time.process_time_ns() - self._cpu_ns
        delay_us = (self._run_delay_ns() - self._delay_ns) // 1000
        self._sink.write(_CPU, start, duration, cpu_ns, max(0, delay_us))
        if (read := self._bytes_read() - self._bytes) > _OWN_BYTES:
            self._sink.write(_READ, start, 0, read)

    def _run_delay_ns(self) -> int:
        """How long the calling thread was ready to run and had no core."""
        fd = _files.schedule()
        return int(os.pread(fd, 128, 0).split()[1]) if fd >= 0 else 0

    def _bytes_read(self) -> int:
        """Bytes that went through `read` and its like; of a mapped file nothing is seen."""
        if _files.io < 0:
            return 0
        text = os.pread(_files.io, 64, 0)
        return int(text[7 : text.index(b"\n")])


def _opened(path: str) -> int:
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
