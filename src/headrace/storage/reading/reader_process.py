"""The reader process: I/O threads that bring blocks in the planned order, and the loop that tells them what to read.

It is started as a fresh interpreter that loads nothing of ours but what it names here, and no package from outside
the standard library: it is there in a few dozen milliseconds and takes a few megabytes. It ends with its parent.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from .block_table import ASIDE, BlockTable, Futex, HeadWord, Row, State, path_key
from .extents import OpenFiles
from .read_plan import GRANULE, BlockState, FilePlan, Read, ReadDepth, ReadPeriod, ReadPlan

_LENGTH = struct.Struct("<I")
# between withdrawing a block and looking for who still refers to it: far longer than a store takes to be seen
_MOMENT_S = 0.001
_PERIOD_S = 0.5
_MOST_OPEN = 256
_TOUCH_BYTES = 1 << 20
_MOST_PATHS = 1 << 16  # whose keys are remembered, to know again what workers say


@dataclass(frozen=True, kw_only=True)
class ReaderSettings:
    """What the training process decides for its reader."""

    space_bytes: int
    block_bytes: int
    depth: int
    most_depth: int  # above `depth`: it may grow while that helps
    gap_bytes: int = 64 << 10
    num_workers: int = 1


@dataclass(frozen=True)
class _Touch:
    """A file to be brought into the page cache."""

    seq: int
    path: str


def as_message(*values: Any) -> bytes:
    """What travels to the reader."""
    data = pickle.dumps(values, 5)
    return _LENGTH.pack(len(data)) + data


class Reader:
    """The loop and its threads."""

    def __init__(self, table: BlockTable, control: socket.socket, settings: ReaderSettings) -> None:
        self._table, self._control, self._settings = table, control, settings
        self._words = table.words
        self._plan = ReadPlan(
            depth=settings.depth,
            block_bytes=settings.block_bytes,
            space_bytes=settings.space_bytes,
            gap_bytes=settings.gap_bytes,
        )
        self._files = FilePlan(depth=settings.depth, ahead_bytes=max(64 << 20, 2 * settings.space_bytes))
        self._depth = ReadDepth(settings.depth, most=settings.most_depth)
        self._path_of_key: dict[int, str] = {}
        self._jobs: queue.SimpleQueue[Read | _Touch] = queue.SimpleQueue()
        self._ended: deque[tuple[Read | _Touch, int | None]] = deque()
        self._threads = 0
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if hasattr(os, "eventfd") else -1
        self._bells = (self._bell, self._bell) if self._bell >= 0 else os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake = Futex(table.map, 8 * HeadWord.WAKE)
        self._open = OpenFiles(_MOST_OPEN)
        self._incoming = bytearray()
        self._heard: dict[int, int] = {}  # row -> how many of its own reads we know of
        self._leaving: deque[tuple[float, int]] = deque()  # withdrawn blocks, and when
        self._is_over = False
        self._turn_s = 0.0
        self._period_at = time.monotonic()
        self._period_bytes = self._period_waits = 0
        self._looks = self._full_looks = 0

    # ------------------------------------------------------------------------------------ the loop

    def run(self, parent: int) -> None:
        """Work until told to stop or the parent is gone."""
        poller = select.poll()
        for fd in (self._control.fileno(), self._bells[0]):
            poller.register(fd, select.POLLIN)
        watch = -1
        with contextlib.suppress(OSError, AttributeError):
            watch = os.pidfd_open(parent)
            poller.register(watch, select.POLLIN)
        self._words[HeadWord.STATE] = State.ON
        while not self._is_over and os.getppid() == parent:
            ready = {fd for fd, _ in poller.poll(1000 * self._sleep_s())}
            if watch in ready:
                break
            if self._control.fileno() in ready:
                self._listen()
            if self._bells[0] in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bells[0], 4096)
            started = time.monotonic()
            self._turn()
            self._turn_s = time.monotonic() - started
        self._words[HeadWord.STATE] = State.GONE
        self._wake.wake_all()

    def _sleep_s(self) -> float:
        """Workers do not ring when they have used a block: look often while room is what is missing."""
        plan = self._plan
        if self._leaving or (plan.is_held_up and plan.in_flight < plan.depth):
            return max(_MOMENT_S, min(0.01, 4 * self._turn_s))  # many blocks take a while to look at
        if plan.blocks or self._files.is_held_up:
            return 0.01
        return 0.5

    def _turn(self) -> None:
        plan, words = self._plan, self._words
        while self._ended:
            self._note(*self._ended.popleft())
        self._hear_of_own_reads()
        for block in plan.ready:
            first = block.place // GRANULE
            if plan.used(block.number, bytes(self._table.marks[first : first + block.size // GRANULE])):
                self._withdraw(block.number)
        passed = words[HeadWord.PASSED]
        self._files.passed(passed)
        for block in plan.passed(passed):
            self._withdraw(block.number)
        self._free_left()
        for read in plan.next_reads():
            block = plan.blocks[read.block]
            if read.offset == block.start:
                self._table.publish(block.number, block.path, block.start, block.end, block.place)
            self._give(read)
        for seq, path in self._files.next_files():
            self._give(_Touch(seq, path))
        self._looks += 1
        self._full_looks += plan.in_flight >= plan.depth
        self._measure()

    def _withdraw(self, number: int) -> None:
        self._table.withdraw(number)
        self._leaving.append((time.monotonic() + _MOMENT_S, number))

    def _free_left(self) -> None:
        now = time.monotonic()
        if not self._leaving or self._leaving[0][0] > now:
            return
        leased = self._table.leased()
        for _ in range(len(self._leaving)):
            due, number = self._leaving.popleft()
            if due > now or number in leased:
                self._leaving.append((due, number))
            else:
                self._plan.gone(number)

    def _hear_of_own_reads(self) -> None:
        """Workers that came before us have read some extents themselves: do not read these again."""
        words = self._words
        for row in range(words[HeadWord.ROWS]):
            at = self._table.row(row)
            count, heard = words[at + Row.NUM_ASIDE], self._heard.get(row, 0)
            if count == heard:
                continue
            for number in range(max(heard, count - ASIDE), count):
                place = at + Row.ASIDE_AT + 2 * (number % ASIDE)
                path = self._path_of_key.get(words[place])
                if path is not None:
                    self._plan.read_elsewhere(path, words[place + 1])
            self._heard[row] = count

    # ------------------------------------------------------------------------------------ what we are told

    def _listen(self) -> None:
        try:
            data = self._control.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            self._is_over = True
            return
        self._incoming += data
        while len(self._incoming) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._incoming)
            if len(self._incoming) < _LENGTH.size + size:
                return
            message = bytes(self._incoming[_LENGTH.size : _LENGTH.size + size])
            del self._incoming[: _LENGTH.size + size]
            self._obey(*pickle.loads(message))

    def _obey(self, order: str, *values: Any) -> None:
        if order == "extents":
            seq, extents = values
            if len(self._path_of_key) > _MOST_PATHS:
                self._path_of_key.clear()
            self._path_of_key |= {path_key(path)[0]: path for path in {path for path, _, _ in extents}}
            self._plan.add(seq, extents)
        elif order == "files":
            self._files.add(*values)

    # ------------------------------------------------------------------------------------ reads

    def _give(self, job: Read | _Touch) -> None:
        if self._threads < self._plan.depth:
            self._threads += 1
            threading.Thread(target=self._read_for_ever, name=f"headrace-io-{self._threads}", daemon=True).start()
        self._jobs.put(job)

    def _read_for_ever(self) -> None:
        scratch = memoryview(b"")
        while True:
            job = self._jobs.get()
            got: int | None = None
            with contextlib.suppress(OSError):
                if isinstance(job, _Touch):
                    # aligned: the kernel copies twice as fast
                    scratch = scratch or memoryview(mmap.mmap(-1, _TOUCH_BYTES, flags=mmap.MAP_PRIVATE))
                    got = _touch(job.path, scratch)
                else:
                    got = self._read(job)
            self._ended.append((job, got))
            with contextlib.suppress(BlockingIOError):
                os.write(self._bells[1], b"\1\0\0\0\0\0\0\0")

    def _read(self, read: Read) -> int:
        at, got = self._table.blocks_at + read.place, 0
        memory = self._table.bytes[at : at + read.size]
        file = self._open.open(read.path)
        while got < read.size:
            count = os.preadv(file.fd, [memory[got:]], read.offset + got)
            if not count:
                break
            got += count
        return got

    def _note(self, job: Read | _Touch, got: int | None) -> None:
        words = self._words
        if isinstance(job, _Touch):
            self._files.done(job.seq, got or 0)
            words[HeadWord.FILES] += 1
            words[HeadWord.FILE_BYTES] += got or 0
            return
        words[HeadWord.READS] += 1
        words[HeadWord.BYTES] += got or 0
        block = self._plan.done(job, got)
        if block is None:
            return
        self._table.settle(block.number, None if block.is_failed else block.valid_end)
        self._wake.wake_all()
        if block.is_failed:
            words[HeadWord.FAILED] += 1
        if block.state is BlockState.RETIRING:
            self._withdraw(block.number)

    # ------------------------------------------------------------------------------------ depth

    def _measure(self) -> None:
        words, plan = self._words, self._plan
        words[HeadWord.DEPTH], words[HeadWord.TOO_LARGE] = plan.depth, plan.num_too_large
        words[HeadWord.VAIN_BYTES], words[HeadWord.CLAIMED_BYTES] = plan.vain_bytes, plan.claimed_bytes
        now = time.monotonic()
        elapsed = now - self._period_at
        if elapsed < _PERIOD_S:
            return
        (waits,) = self._table.totals(Row.WAIT_NS)
        read = words[HeadWord.BYTES] + words[HeadWord.FILE_BYTES]
        if read > self._period_bytes:
            period = ReadPeriod(
                bytes_per_s=(read - self._period_bytes) / elapsed,
                waiting_share=(waits - self._period_waits) / 1e9 / elapsed / self._settings.num_workers,
                full_share=self._full_looks / max(1, self._looks),
            )
            plan.depth = self._files.depth = self._depth.next(period)
        self._period_at, self._period_bytes, self._period_waits = now, read, waits
        self._looks = self._full_looks = 0


def _touch(path: str, scratch: memoryview) -> int:
    """Read a whole file and keep nothing: it is in the page cache afterwards. Returns its size."""
    fd, got = os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0
    try:
        while count := os.preadv(fd, [scratch], got):
            got += count
    finally:
        os.close(fd)
    return got


def main() -> None:
    """The process: its arguments are descriptors and settings, by position."""
    table_fd, control_fd, parent, *numbers = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the training process decides
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("headrace-reader")
    names = ("space_bytes", "block_bytes", "depth", "most_depth", "gap_bytes", "num_workers")
    settings = ReaderSettings(**dict(zip(names, numbers, strict=True)))
    table = BlockTable(table_fd, settings.space_bytes, GRANULE)
    if table.hold_reader_lock():
        Reader(table, socket.socket(fileno=control_fd), settings).run(parent)
    os._exit(0)  # threads that still wait for a disk are of no use any more
