"""A worker's side of the reader: finds an extent in a block, takes it without a copy, or says that it is not there."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from typing import Any

import numpy as np

from .block_table import (
    ASIDE,
    LEASES,
    BlockTable,
    Column,
    Futex,
    HeadWord,
    InTable,
    Row,
    State,
    leases_at,
    path_key,
    row_at,
)
from .extents import Extent

# up to this size a copy costs less than a lease: measured 2 µs against 3.5 µs at 3 to 32 KB, equal near 64 KB
_COPIED_BYTES = 32 << 10
# a read that takes longer than this is not waited for: a worker's own may be quicker, and it is watched by the guard
_PATIENCE_S = 10.0
_MOST_LOOKS = 64  # each after a block has come or changed; more than a few mean that blocks go as soon as they come
_LOOK_EVERY_S = 0.1  # whether the reader is still alive, while one waits for it


class _Lease(weakref.ref[Any]):
    """Ends when the last view over a block's bytes is gone."""

    __slots__ = ("pid", "slot", "thread_row")

    pid: int
    slot: int
    thread_row: _ThreadRow


class _ThreadRow:
    """What one thread has on the table, and the block that it used last."""

    def __init__(self, table: BlockTable, row: int) -> None:
        self.table, self.number = table, row
        self.at, self.leases_at = row_at(row), leases_at(row)
        self.free = deque(range(LEASES))
        self.leases: dict[int, _Lease] = {}
        self.thread = threading.current_thread()
        self.path: str | None = None
        self.block = self.start = self.end = self.place = self.generation = 0

    @property
    def is_left(self) -> bool:
        return not self.thread.is_alive() and len(self.free) == LEASES

    def lease(self, owner: Any, slot: int) -> None:
        lease = _Lease(owner, _end_of_lease)
        lease.slot, lease.pid, lease.thread_row = slot, os.getpid(), self
        self.leases[slot] = lease


def _end_of_lease(lease: _Lease) -> None:
    # each line is one operation that another thread, or a collection in the middle of one, cannot split
    if lease.pid == os.getpid():  # a child's copy of a view is no reference
        lease.thread_row.table.words[lease.thread_row.leases_at + lease.slot] = 0
        lease.thread_row.leases.pop(lease.slot, None)
        lease.thread_row.free.append(lease.slot)


class BlockSource:
    """Gives extents out of the reader's blocks; None for those that a worker must read by itself."""

    def __init__(self, table: BlockTable) -> None:
        self._table, self._words, self._marks = table, table.words, table.marks
        self._bytes, self._granule = table.bytes, table.granule
        self._keys, self._starts, self._ends = (
            np.frombuffer(table.columns[column], np.int64) for column in (Column.KEY_LOW, Column.START, Column.END)
        )
        self._generations, self._states = table.columns[Column.GENERATION], table.columns[Column.STATE]
        self._wake = Futex(table.map, 8 * HeadWord.WAKE)
        self._local = threading.local()
        self._rows: list[_ThreadRow] = []
        self._lock = threading.Lock()

    def __call__(self, extent: Extent) -> memoryview | None:
        row: _ThreadRow | None = getattr(self._local, "row", None) or self._take_row()
        if row is None:
            return None
        path, offset, size = extent
        if (
            path == row.path
            and row.start <= offset
            and offset + size <= row.end
            and self._generations[row.block] == row.generation
        ):
            view = self._take(row, offset, size)
            if view is not None:
                return view
        return self._find(row, path, offset, size)

    def _find(self, row: _ThreadRow, path: str, offset: int, size: int) -> memoryview | None:
        key = path_key(path)
        waited_since = 0.0
        for _ in range(_MOST_LOOKS):
            if self._words[HeadWord.STATE] != State.ON:
                break
            is_here = (self._keys == key[0]) & (self._starts <= offset)
            is_here &= self._ends >= offset + size
            found = is_here.nonzero()[0]
            if not len(found):
                break
            block = int(found[0])
            generation = self._generations[block]
            low, high, start, end, state, place, _ = (column[block] for column in self._table.columns)
            # between the search and here it may have become another block
            if (
                (low, high) != key
                or not start <= offset <= offset + size <= end
                or self._generations[block] != generation
            ):
                continue
            if state == InTable.READY:
                row.path, row.block, row.generation = path, block, generation
                row.start, row.end, row.place = start, end, place
                view = self._take(row, offset, size)
                if view is None:
                    continue
                if waited_since:
                    self._words[row.at + Row.WAITS] += 1
                    self._words[row.at + Row.WAIT_NS] += int((time.perf_counter() - waited_since) * 1e9)
                return view
            if state != InTable.IN_FLIGHT:
                break
            waited_since = waited_since or time.perf_counter()
            if not self._wait(block, generation, waited_since):
                break
        self._read_aside(row, key, offset, size)
        return None

    def _wait(self, block: int, generation: int, since: float) -> bool:
        """Sleep until a block in flight has come or failed. False: do not wait for it any longer."""
        words, wake = self._words, self._wake
        while time.perf_counter() < since + _PATIENCE_S:
            value = wake.value()
            if (
                self._states[block] != InTable.IN_FLIGHT
                or self._generations[block] != generation
                or words[HeadWord.STATE] != State.ON
            ):
                return True
            wake.wait(value, _LOOK_EVERY_S)
            if wake.value() == value and not self._table.is_reader_alive():
                words[HeadWord.STATE] = State.GONE
                return False
        return False

    def _take(self, row: _ThreadRow, offset: int, size: int) -> memoryview | None:
        """The bytes of an extent in the thread's current block. None: the block is gone meanwhile."""
        words = self._words
        inside = row.place + offset - row.start
        at = self._table.blocks_at + inside
        if size <= _COPIED_BYTES or not row.free:
            view = memoryview(bytes(self._bytes[at : at + size]))
            if self._generations[row.block] != row.generation:
                return None
        else:
            slot = row.free.popleft()
            words[row.leases_at + slot] = row.block + 1
            if self._generations[row.block] != row.generation:
                words[row.leases_at + slot] = 0
                row.free.append(slot)
                return None
            owner = np.frombuffer(self._table.map, np.uint8, size, at)
            owner.flags.writeable = False
            row.lease(owner, slot)
            view = owner.data
        mark = inside // self._granule
        self._marks[mark] = min(255, self._marks[mark] + 1)
        words[row.at + Row.HITS] += 1
        words[row.at + Row.HIT_BYTES] += size
        return view

    def _read_aside(self, row: _ThreadRow, key: tuple[int, int], offset: int, size: int) -> None:
        """Tell the reader of an extent that this worker reads by itself."""
        words = self._words
        at = row.at + Row.ASIDE_AT + 2 * (words[row.at + Row.NUM_ASIDE] % ASIDE)
        words[at], words[at + 1] = key[0], offset
        words[row.at + Row.NUM_ASIDE] += 1
        words[row.at + Row.SELF_READS] += 1
        words[row.at + Row.SELF_BYTES] += size

    def _take_row(self) -> _ThreadRow | None:
        with self._lock:
            left = next((row for row in self._rows if row.is_left), None)
            if left is not None:
                self._rows.remove(left)
                number: int | None = left.number
            else:
                number = self._table.take_row({row.number for row in self._rows})
            if number is None:
                return None
            row = self._local.row = _ThreadRow(self._table, number)
            self._rows.append(row)
        return row
