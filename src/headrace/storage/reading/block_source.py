"""A worker's side of the reader: finds an extent in a block, takes it without a copy, or says that it is not there."""

import os
import threading
import time
import weakref
from collections import deque
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .block_table import ASIDE, LEASES, BlockTable, Column, HeadWord, InTable, Row, State, path_key, row_at
from .extents import Extent
from .read_plan import GRANULE

# up to this size a copy costs less than a lease: measured 2 µs against 3.5 µs at 3 to 32 KB, equal near 64 KB
_COPIED_BYTES = 32 << 10
# a read that takes longer than this is not waited for: a worker's own may be quicker, and it is watched by the guard
_PATIENCE_S = 10.0
_MOST_LOOKS = 64  # each after a block has come or changed; more than a few mean that blocks go as soon as they come
# From one look at a block in flight to the next: an eighth of what one has waited so far. (A futex that wakes at once
# brought no more: 6,610 extents of 64 KiB a second against 6,530, 1,210 of 1 MiB against 1,290.) At two milliseconds,
# looking takes 0.8 % of a core while a slow disk is waited for; at a quarter of one, 4.8 %.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 2e-3
_LOOK_EVERY_S = 0.1  # whether the reader is still alive, while one waits for it


class _Found(NamedTuple):
    """A block that is ready, as it was when it was looked at."""

    path: str
    block: int
    generation: int
    start: int
    end: int
    place: int


class BlockSource:
    """Gives extents out of the reader's blocks; None for those that a worker must read by itself."""

    def __init__(self, table: BlockTable) -> None:
        self._table, self._words, self._marks = table, table.words, table.marks
        self._keys, self._starts, self._ends = (
            np.frombuffer(table.columns[column], np.int64) for column in (Column.KEY_LOW, Column.START, Column.END)
        )
        self._generations, self._states = table.columns[Column.GENERATION], table.columns[Column.STATE]
        self._lock = threading.RLock()  # of the words of this process's row
        self._pid, self._row = os.getpid(), table.take_row()
        self._at = row_at(self._row or 0)
        self._leases_at = self._at + Row.LEASES_AT
        self._free = deque(range(LEASES))
        self._leases: dict[int, weakref.ref[Any]] = {}
        self._last = _Found("", 0, -1, 0, 0, 0)  # threads share it, so it changes as a whole

    def __call__(self, extent: Extent) -> memoryview | None:
        if self._row is None:
            return None
        path, offset, size = extent
        last = self._last
        if path == last.path and last.start <= offset and offset + size <= last.end:
            view = self._take(last, offset, size)
            if view is not None:
                return view
        return self._find(path, offset, size)

    def _find(self, path: str, offset: int, size: int) -> memoryview | None:
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
            is_it = (low, high) == key and start <= offset <= offset + size <= end
            if not is_it or self._generations[block] != generation:
                continue
            if state == InTable.READY:
                self._last = ready = _Found(path, block, generation, start, end, place)
                view = self._take(ready, offset, size)
                if view is None:
                    continue
                if waited_since:
                    with self._lock:
                        self._words[self._at + Row.WAITS] += 1
                        self._words[self._at + Row.WAIT_NS] += int((time.perf_counter() - waited_since) * 1e9)
                return view
            if state != InTable.IN_FLIGHT:
                break
            waited_since = waited_since or time.perf_counter()
            if not self._wait(block, generation, waited_since):
                break
        self._read_aside(key, offset)
        return None

    def _wait(self, block: int, generation: int, since: float) -> bool:
        """Sleep until a block in flight has come or failed. False: do not wait for it any longer."""
        words, looked_at = self._words, since
        while (now := time.perf_counter()) < since + _PATIENCE_S:
            if (
                self._states[block] != InTable.IN_FLIGHT
                or self._generations[block] != generation
                or words[HeadWord.STATE] != State.ON
            ):
                return True
            if now > looked_at + _LOOK_EVERY_S:
                looked_at = now
                if not self._table.is_reader_alive():
                    words[HeadWord.STATE] = State.GONE
                    return False
            time.sleep(min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, (now - since) / 8)))
        return False

    def _take(self, found: _Found, offset: int, size: int) -> memoryview | None:
        """The bytes of an extent in a block. None: the block is gone meanwhile."""
        words, inside = self._words, found.place + offset - found.start
        at = self._table.blocks_at + inside
        try:
            slot = self._free.popleft() if size > _COPIED_BYTES else None
        except IndexError:  # more views are held than there are leases
            slot = None
        if slot is None:
            view = memoryview(bytes(self._table.bytes[at : at + size]))
        else:
            words[self._leases_at + slot] = found.block + 1
        if self._generations[found.block] != found.generation:
            if slot is not None:
                self._end_lease(slot)
            return None
        if slot is not None:
            owner = np.frombuffer(self._table.map, np.uint8, size, at)
            owner.flags.writeable = False
            self._leases[slot] = weakref.ref(owner, partial(self._end_lease, slot))
            view = owner.data
        with self._lock:
            mark = inside // GRANULE
            self._marks[mark] = min(255, self._marks[mark] + 1)
            words[self._at + Row.HITS] += 1
            words[self._at + Row.HIT_BYTES] += size
        return view

    def _end_lease(self, slot: int, _ref: object = None) -> None:
        """The last view over a block's bytes is gone."""
        # each line is one operation that another thread, or a collection in the middle of one, cannot split
        if self._pid == os.getpid():  # a child's copy of a view is no reference
            self._words[self._leases_at + slot] = 0
            self._leases.pop(slot, None)
            self._free.append(slot)

    def _read_aside(self, key: tuple[int, int], offset: int) -> None:
        """Tell the reader of an extent that this worker reads by itself."""
        words, row = self._words, self._at
        with self._lock:
            at = row + Row.ASIDE_AT + 2 * (words[row + Row.NUM_ASIDE] % ASIDE)
            words[at], words[at + 1] = key[0], offset
            words[row + Row.NUM_ASIDE] += 1
            words[row + Row.SELF_READS] += 1
