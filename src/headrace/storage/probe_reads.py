"""Readers that keep a number of reads in flight for a while, each timed.

A reader is a thread with its own buffer; `preadv` lets the others run while it waits. Rates are of a window of time: a
read that is still under way when the window ends counts for the part of it that lies inside, so that slow storage with
few, long reads gets neither more nor less than it delivers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import HeadraceError, UnusableInput

Job = Callable[[mmap.mmap], int]  # reads something into a buffer, and returns how many bytes it was
NextJob = Callable[[int], "Job | None"]  # the next one for a reader; None: there is no more

_STUCK_AFTER_S = 30.0  # beyond the window: a read of a healthy storage is back by then


@dataclass(frozen=True)
class Window:
    """What some readers did in a window of time."""

    seconds: float
    num_bytes: float  # with parts of reads
    total_bytes: int  # of whole reads, also those that ended after the window
    latencies: tuple[float, ...]
    processor_s: float  # processor time of this process, user and system

    @property
    def bytes_per_s(self) -> float:
        return self.num_bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass
class _Record:
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    error: BaseException | None = None


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
        go, stop = threading.Event(), threading.Event()
        clock: list[float] = []
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
            clock += [time.perf_counter(), seconds]
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
        return _window(records, clock[0], seconds, busy)


def _read(
    reader: int,
    next_job: NextJob,
    buffer: mmap.mmap,
    record: _Record,
    go: threading.Event,
    stop: threading.Event,
    clock: Sequence[float],
) -> None:
    go.wait()
    if not clock:
        return
    end = clock[0] + clock[1]
    try:
        while not stop.is_set():
            start = time.perf_counter()
            job = next_job(reader) if start < end else None
            if job is None:
                return
            size = job(buffer)
            record.ends.append(time.perf_counter())
            record.starts.append(start)
            record.sizes.append(size)
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


def _window(records: list[_Record], begin: float, seconds: float, processor_s: float) -> Window:
    reads = [read for record in records for read in zip(record.starts, record.ends, record.sizes, strict=True)]
    end = begin + seconds
    last = max((finish for _, finish, _ in reads), default=begin)
    end = min(end, last)  # it is earlier where the jobs ran out
    counted = 0.0
    for start, finish, size in reads:
        counted += size if finish <= end else size * (end - start) / (finish - start)
    return Window(
        seconds=end - begin,
        num_bytes=counted,
        total_bytes=sum(size for _, _, size in reads),
        latencies=tuple(finish - start for start, finish, _ in reads),
        processor_s=processor_s * (end - begin) / (last - begin) if last > begin else 0.0,
    )


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
