"""Readers that keep a number of reads in flight for a while, each timed.

A reader is a thread with its own buffer; `preadv` lets the others run while it waits. Three things make a rate true:

- the window opens when every reader has a first read behind it, and not before `RAMP_S`: until then queues fill, and
  a disk with a limit gives its savings away;
- readers go on until it has closed, so that the depth is kept all the time;
- a read counts evenly over the time that it took, so one that is under way when the window opens or closes counts for
  the part inside; and the middle of the window counts more than its ends (a Hann window). A disk with a limit delivers
  in bursts, every 100 ms say, and whether a window holds two of them or three is chance: counted evenly that is half as
  much again, with soft ends under 5 %.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, UnusableInput

Job = Callable[[mmap.mmap], int]  # reads something into a buffer, and returns how many bytes it was
NextJob = Callable[[int], "Job | None"]  # the next one for a reader; None: there is no more

RAMP_S = 0.1
_NUM_BINS = 64
_STUCK_AFTER_S = 30.0  # beyond the window: a read of a healthy storage is back by then


@dataclass(frozen=True)
class Window:
    """What some readers did in a window of time."""

    seconds: float
    bytes_per_s: float
    total_bytes: int  # of all reads, also those before and after
    latencies: tuple[float, ...]
    processors: float  # how many were busy, by the processor time of this process


@dataclass
class _Record:
    """What one reader did."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    error: BaseException | None = None


class _Clock:
    """When a window opens and closes, as all readers see it."""

    def __init__(self, depth: int, seconds: float) -> None:
        self.begin = self.open = self.close = math.inf
        self._seconds = seconds
        self._unprimed = depth
        self._lock = threading.Lock()

    def start(self) -> None:
        self.begin = time.perf_counter()

    def note_first(self, now: float) -> None:
        """A reader has its first read behind it; the last one of them opens the window."""
        with self._lock:
            self._unprimed -= 1
            if self._unprimed == 0:
                self.open = max(now, self.begin + min(RAMP_S, self._seconds))
                self.close = self.open + self._seconds


class Readers:
    """Buffers for reader threads, kept from one window to the next."""

    def __init__(self, buffer_bytes: int) -> None:
        self._buffer_bytes = buffer_bytes
        self._buffers: list[mmap.mmap] = []

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Readers({len(self._buffers)} buffers of {self._buffer_bytes} bytes)"

    def close(self) -> None:
        """Give the buffers back."""
        while self._buffers:
            with contextlib.suppress(BufferError):  # a reader that hangs in a read still holds it
                self._buffers.pop().close()

    def run(self, next_job: NextJob, *, depth: int, seconds: float) -> Window:
        """Keep `depth` reads in flight for a while, or until there are no more jobs."""
        while len(self._buffers) < depth:
            buffer = mmap.mmap(-1, self._buffer_bytes)  # aligned to pages, as direct reads want it
            buffer.write(bytes(self._buffer_bytes))  # touched now, so that no read pays for fresh memory
            self._buffers.append(buffer)
        records = [_Record() for _ in range(depth)]
        go, stop, clock = threading.Event(), threading.Event(), _Clock(depth, seconds)
        threads = [
            threading.Thread(
                target=_read,
                args=(reader, next_job, self._buffers[reader], records[reader], go, stop, clock),
                name=f"headrace-probe-{reader}",
                daemon=True,  # one that hangs in a dead mount must not hold up the end of the process
            )
            for reader in range(depth)
        ]
        started: list[threading.Thread] = []
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
            busy = time.process_time()
            clock.start()
            go.set()
            _wait_for(threads, seconds)
            busy = time.process_time() - busy
        finally:
            stop.set()
            go.set()
            for thread in started:
                thread.join(timeout=0.5 if thread.is_alive() else None)
        for record in records:
            if record.error is not None:
                raise record.error
        return _window(records, clock, busy)


def _read(
    reader: int,
    next_job: NextJob,
    buffer: mmap.mmap,
    record: _Record,
    go: threading.Event,
    stop: threading.Event,
    clock: _Clock,
) -> None:
    go.wait()
    is_first = True
    try:
        while not stop.is_set():
            start = time.perf_counter()
            job = next_job(reader) if start < clock.close else None
            if job is None:
                return
            size = job(buffer)
            end = time.perf_counter()
            record.ends.append(end)
            record.starts.append(start)
            record.sizes.append(size)
            if is_first:
                clock.note_first(end)
                is_first = False
    except BaseException as error:  # told in the thread that waits
        record.error = error
        stop.set()


def _wait_for(threads: list[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds + _STUCK_AFTER_S
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in threads)
    if stuck:
        raise HeadraceError(
            f"{stuck} of {len(threads)} reads have not come back after {seconds + _STUCK_AFTER_S:.0f} s",
            next_step="look at the mount (`dmesg`, for NFS `nfsstat -m`): a server that is gone blocks every read",
        )


def _window(records: list[_Record], clock: _Clock, busy_s: float) -> Window:
    reads = [read for record in records for read in zip(record.starts, record.ends, record.sizes, strict=True)]
    last = max((end for _, end, _ in reads), default=clock.begin)
    # Where the jobs ran out before the window closed, it closes with them; before it opened, all of it counts.
    opened, closed = (clock.open, min(clock.close, last)) if clock.open < last else (clock.begin, last)
    return Window(
        seconds=closed - opened,
        bytes_per_s=rate_of(reads, opened, closed),
        total_bytes=sum(size for _, _, size in reads),
        latencies=tuple(end - start for start, end, _ in reads),
        processors=busy_s / (last - clock.begin) if last > clock.begin else 0.0,
    )


def rate_of(reads: Sequence[tuple[float, float, int]], opened: float, closed: float) -> float:
    """Return bytes a second from reads (start, end, bytes) inside a window, its middle counting most.

    >>> round(rate_of([(0.0, 2.0, 100), (2.0, 4.0, 100)], 1.0, 3.0), 6)
    50.0
    """
    width = (closed - opened) / _NUM_BINS
    if width <= 0:
        return 0.0
    bins = [0.0] * _NUM_BINS
    for start, end, size in reads:
        first, last = max(start, opened), min(end, closed)
        if last <= first:
            continue
        density = size / (end - start)
        left, right = int((first - opened) / width), min(_NUM_BINS - 1, int((last - opened) / width))
        for number in range(left, right + 1):
            low, high = opened + number * width, opened + (number + 1) * width
            bins[number] += density * max(0.0, min(last, high) - max(first, low))
    weights = [math.sin(math.pi * (number + 0.5) / _NUM_BINS) ** 2 for number in range(_NUM_BINS)]
    return sum(count * weight for count, weight in zip(bins, weights, strict=True)) / sum(weights) / width


def read_extent(fd: int, offset: int, size: int, path: str) -> Job:
    """Return a job that reads a part of an open file."""

    def read(buffer: mmap.mmap) -> int:
        try:
            with memoryview(buffer) as view, view[:size] as part:
                got = os.preadv(fd, [part], offset)
        except OSError as error:
            raise _unreadable(path, offset, error) from error
        if got < size:
            raise UnusableInput(f"{path} became shorter while it was read", offset=offset, asked=size, got=got)
        return got

    return read


def read_whole_file(path: str) -> Job:
    """Return a job that opens a file and reads all of it; one that is gone counts as nothing."""

    def read(buffer: mmap.mmap) -> int:
        total = 0
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _unreadable(path, 0, error) from error
        try:
            while got := os.preadv(fd, [buffer], total):
                total += got
        except OSError as error:
            raise _unreadable(path, total, error) from error
        finally:
            os.close(fd)
        return total

    return read


def _unreadable(path: str, offset: int, error: OSError) -> UnusableInput:
    return UnusableInput(
        f"cannot read {path}: {error.strerror or error}",
        offset=offset,
        next_step="`dmesg` tells more about disk errors",
    )
