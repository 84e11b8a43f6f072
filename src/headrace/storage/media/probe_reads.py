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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import HeadraceError, UnusableInput

RAMP_S = 0.1
_NUM_BINS = 64
_STUCK_AFTER_S = 30.0  # beyond the window: a read of a healthy storage is back by then


class Job(NamedTuple):
    """Something to read: a buffer full of an open file at an offset, or, without a descriptor, a whole file."""

    path: str
    fd: int | None = None
    offset: int = 0

    def read(self, buffer: mmap.mmap) -> int:
        """Do it; return how many bytes it was. A whole file that is gone meanwhile counts as nothing."""
        try:
            if self.fd is None:
                return self._read_whole(buffer)
            got = os.preadv(self.fd, [buffer], self.offset)
        except OSError as error:
            raise UnusableInput(
                f"cannot read {self.path}: {error.strerror or error}",
                offset=self.offset,
                next_step="`dmesg` tells more about disk errors",
            ) from error
        if got < len(buffer):
            raise UnusableInput(
                f"{self.path} became shorter while it was read", offset=self.offset, asked=len(buffer), got=got
            )
        return got

    def _read_whole(self, buffer: mmap.mmap) -> int:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        total = 0
        try:
            while got := os.preadv(fd, [buffer], total):
                total += got
        finally:
            os.close(fd)
        return total


@dataclass(frozen=True)
class Window:
    """What some readers did in a window of time."""

    seconds: float
    bytes_per_s: float
    total_bytes: int  # of all reads, also those before and after
    latencies: tuple[float, ...]
    processors: float  # how many were busy, by the processor time of this process


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

    def run(self, lanes: Sequence[Iterator[Job]], *, seconds: float, most_bytes: int) -> Window:
        """Let one reader for each lane do its jobs for a while: until the time, the jobs or the bytes are used up.

        Lanes may be one and the same iterator, if its `next` is one step of the interpreter.
        """
        while len(self._buffers) < len(lanes):
            buffer = mmap.mmap(-1, self._buffer_bytes)  # aligned to pages, as direct reads want it
            buffer.write(bytes(self._buffer_bytes))  # touched now, so that no read pays for fresh memory
            self._buffers.append(buffer)
        watch = _ReadWatch(most_bytes)
        readers = [_Reader(number, lane, self._buffers[number], watch) for number, lane in enumerate(lanes)]
        try:
            for reader in readers:
                reader.start()
            begin, busy = time.perf_counter(), time.process_time()
            watch.go.set()  # to all at once: starting threads is no part of a rate
            for reader in readers:
                if not reader.has_begun.wait(max(0.0, begin + seconds + _STUCK_AFTER_S - time.perf_counter())):
                    raise _stuck(readers, seconds)
            opened = max(time.perf_counter(), begin + min(RAMP_S, seconds))
            for patience_s in (seconds, seconds + _STUCK_AFTER_S):
                for reader in readers:
                    reader.join(max(0.0, opened + patience_s - time.perf_counter()))
                watch.stop.set()  # the window has closed: what is under way ends
            if any(reader.is_alive() for reader in readers):
                raise _stuck(readers, seconds)
            busy = time.process_time() - busy
        finally:
            watch.stop.set()
            watch.go.set()
            for reader in readers:
                if reader.ident is not None:
                    reader.join(0.5)
        if watch.errors:
            raise watch.errors[0]
        ended = max((end for _, end, _ in watch.reads), default=begin)
        # Where the jobs ran out before the window closed, it closes with them; before it opened, all of it counts.
        first, last = (opened, min(opened + seconds, ended)) if opened < ended else (begin, ended)
        return Window(
            seconds=last - first,
            bytes_per_s=rate_of(watch.reads, first, last),
            total_bytes=sum(size for _, _, size in watch.reads),
            latencies=tuple(end - start for start, end, _ in watch.reads),
            processors=busy / (ended - begin) if ended > begin else 0.0,
        )


class _ReadWatch:
    """What the readers of one window share. They only append to it: no lock is needed."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.num_bytes = most_bytes, 0
        self.go, self.stop = threading.Event(), threading.Event()
        self.reads: list[tuple[float, float, int]] = []  # start, end, bytes
        self.errors: list[BaseException] = []


class _Reader(threading.Thread):
    def __init__(self, number: int, jobs: Iterator[Job], buffer: mmap.mmap, watch: _ReadWatch) -> None:
        # one that hangs in a dead mount must not hold up the end of the process
        super().__init__(name=f"headrace-probe-{number}", daemon=True)
        self._jobs, self._buffer, self._watch = jobs, buffer, watch
        self.has_begun = threading.Event()  # its first read is behind it, or there is none

    def run(self) -> None:
        watch = self._watch
        watch.go.wait()
        try:
            while not watch.stop.is_set() and watch.num_bytes < watch.most_bytes:
                start = time.perf_counter()
                job = next(self._jobs, None)
                if job is None:
                    return
                size = job.read(self._buffer)
                watch.reads.append((start, time.perf_counter(), size))
                watch.num_bytes += size  # a lost update would only let one more read through
                if not self.has_begun.is_set():
                    self.has_begun.set()
        except BaseException as error:  # told in the thread that waits
            watch.errors.append(error)
            watch.stop.set()
        finally:
            self.has_begun.set()


def _stuck(readers: Sequence[_Reader], seconds: float) -> HeadraceError:
    stuck = sum(reader.is_alive() for reader in readers)
    return HeadraceError(
        f"{stuck} of {len(readers)} reads have not come back after {seconds + _STUCK_AFTER_S:.0f} s",
        next_step="look at the mount (`dmesg`, for NFS `nfsstat -m`): a server that is gone blocks every read",
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
