"""The reader process: I/O threads that bring blocks in the planned order, and the loop that tells them what to read.

It is started as a fresh interpreter that loads nothing of ours but what it names here, and no package from outside
the standard library: it is there in a few dozen milliseconds and takes a few megabytes. It ends with its parent.
"""

import contextlib
import dataclasses
import mmap
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from .block_table import ASIDE, BlockTable, HeadWord, Row, State, path_key, row_at
from .extents import open_file
from .read_plan import GRANULE, BlockState, FilePlan, Read, ReadDepth, ReadPlan

# between withdrawing a block and looking for who still refers to it: far longer than a store takes to be seen
_MOMENT_S = 0.001
_PERIOD_S = 0.5
_MOST_OPEN = 256
_TOUCH_BYTES = 1 << 20
_local = threading.local()
_MOST_PATHS = 1 << 16  # whose keys are remembered, to know again what workers say


@dataclasses.dataclass(frozen=True)
class ReaderSettings:
    """What the training process decides for its reader."""

    space_bytes: int
    block_bytes: int
    depth: int
    most_depth: int  # above `depth`: it may grow while that helps
    num_workers: int = 1


class Reader:
    """The loop and its threads."""

    def __init__(self, table: BlockTable, settings: ReaderSettings) -> None:
        self._table, self._words, self._num_workers = table, table.words, settings.num_workers
        depth, space_bytes = settings.depth, settings.space_bytes
        self._plan = ReadPlan(depth=depth, block_bytes=settings.block_bytes, space_bytes=space_bytes)
        self._files = FilePlan(depth=depth, ahead_bytes=max(64 << 20, 2 * space_bytes))
        self._depth = ReadDepth(depth, most=settings.most_depth)
        self._path_of_key: dict[int, str] = {}
        # what threads are to do, and what the loop is to do: functions with their arguments
        self._jobs: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._threads = 0
        self._open = lru_cache(_MOST_OPEN)(open_file)
        self._heard: dict[int, int] = {}  # row -> how many of its own reads we know of
        self._leaving: deque[tuple[float, int]] = deque()  # withdrawn blocks, and when
        self._is_over = False
        self._turn_s = 0.0
        self._period_at = time.monotonic()
        self._period_bytes = self._period_waits = 0
        self._looks = self._full_looks = 0

    def run(self, control: socket.socket, parent: int) -> None:
        """Work until told to stop or the parent is gone."""
        threading.Thread(target=self._listen, args=(control,), name="headrace-orders", daemon=True).start()
        self._words[HeadWord.STATE] = State.ON
        while not self._is_over and os.getppid() == parent:
            with contextlib.suppress(queue.Empty):
                handle, *values = self._events.get(timeout=self._sleep_s())
                while True:
                    handle(*values)
                    handle, *values = self._events.get_nowait()
            started = time.monotonic()
            self._turn()
            self._turn_s = time.monotonic() - started
        self._words[HeadWord.STATE] = State.GONE

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
            self._give(self._read, self._note_read, read)
        for seq, path in self._files.next_files():
            self._give(_touch, self._note_file, path, seq)
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
            at = row_at(row)
            count, heard = words[at + Row.NUM_ASIDE], self._heard.get(row, 0)
            if count == heard:
                continue
            for number in range(max(heard, count - ASIDE), count):
                place = at + Row.ASIDE_AT + 2 * (number % ASIDE)
                path = self._path_of_key.get(words[place])
                if path is not None:
                    self._plan.read_elsewhere(path, words[place + 1])
            self._heard[row] = count

    def _listen(self, control: socket.socket) -> None:
        orders = {"extents": self._plan_extents, "files": self._files.add}
        with control.makefile("rb") as file, contextlib.suppress(EOFError, OSError):
            while True:
                order, *values = pickle.load(file)
                self._events.put((orders[order], *values))
        self._events.put((self._end,))

    def _end(self) -> None:
        self._is_over = True

    def _plan_extents(self, seq: int, extents: Iterable[tuple[str, int, int]]) -> None:
        if len(self._path_of_key) > _MOST_PATHS:
            self._path_of_key.clear()
        self._path_of_key |= {path_key(path)[0]: path for path in {path for path, _, _ in extents}}
        self._plan.add(seq, extents)

    def _give(self, read: Callable[[Any], int], note: Callable[..., None], *job: Any) -> None:
        """Let a thread call `read` with the first part of the job, and the loop `note` with what it brought and it."""
        if self._threads < self._plan.depth:
            self._threads += 1
            threading.Thread(target=self._read_for_ever, name=f"headrace-io-{self._threads}", daemon=True).start()
        self._jobs.put((read, note, *job))

    def _read_for_ever(self) -> None:
        while True:
            read, note, *job = self._jobs.get()
            got: int | None = None
            with contextlib.suppress(OSError):
                got = read(job[0])
            self._events.put((note, got, *job))

    def _read(self, read: Read) -> int:
        at, got = self._table.blocks_at + read.place, 0
        memory = self._table.bytes[at : at + read.size]
        file = self._open(read.path)
        while got < read.size:
            count = os.preadv(file.fd, [memory[got:]], read.offset + got)
            if not count:
                break
            got += count
        return got

    def _note_file(self, got: int | None, _path: str, seq: int) -> None:
        self._files.done(seq, got or 0)
        self._words[HeadWord.FILES] += 1
        self._words[HeadWord.FILE_BYTES] += got or 0

    def _note_read(self, got: int | None, read: Read) -> None:
        words = self._words
        words[HeadWord.READS] += 1
        words[HeadWord.BYTES_READ] += got or 0
        block = self._plan.done(read, got)
        if block is None:
            return
        self._table.settle(block.number, None if block.is_failed else block.valid_end)
        if block.is_failed:
            words[HeadWord.FAILED_READS] += 1
        if block.state is BlockState.RETIRING:
            self._withdraw(block.number)

    def _measure(self) -> None:
        words, plan = self._words, self._plan
        words[HeadWord.DEPTH] = plan.depth
        words[HeadWord.VAIN_BYTES], words[HeadWord.CLAIMED_BYTES] = plan.vain_bytes, plan.claimed_bytes
        now = time.monotonic()
        elapsed = now - self._period_at
        if elapsed < _PERIOD_S:
            return
        (waits,) = self._table.totals(Row.WAIT_NS)
        read = words[HeadWord.BYTES_READ] + words[HeadWord.FILE_BYTES]
        if read > self._period_bytes:
            plan.depth = self._files.depth = self._depth.next(
                bytes_per_s=(read - self._period_bytes) / elapsed,
                waiting_share=(waits - self._period_waits) / 1e9 / elapsed / self._num_workers,
                full_share=self._full_looks / max(1, self._looks),
            )
        self._period_at, self._period_bytes, self._period_waits = now, read, waits
        self._looks = self._full_looks = 0


def _touch(path: str) -> int:
    """Read a whole file and keep nothing: it is in the page cache afterwards. Returns its size."""
    if not hasattr(_local, "scratch"):  # aligned: the kernel copies twice as fast
        _local.scratch = mmap.mmap(-1, _TOUCH_BYTES, flags=mmap.MAP_PRIVATE)
    fd, got = os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0
    try:
        while count := os.preadv(fd, [_local.scratch], got):
            got += count
    finally:
        os.close(fd)
    return got


def main() -> None:
    """The process: its arguments are descriptors, the parent and the settings, by position."""
    table_fd, control_fd, parent, *numbers = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the training process decides
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("headrace-reader")
    settings = ReaderSettings(*numbers)
    table = BlockTable(table_fd, settings.space_bytes)
    table.hold_reader_lock()
    Reader(table, settings).run(socket.socket(fileno=control_fd), parent)
    os._exit(0)  # threads that still wait for a disk are of no use any more
