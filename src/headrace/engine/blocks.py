"""Blocks of any size in one process's own region of the arena: the owner allocates, anybody frees.

A block opens with a word that says whether it is in use. Only the owner of the region takes blocks; whoever
is done with one stores a 0 there. So no lock is needed, and a block outlives its owner.
"""

from __future__ import annotations

from ..errors import BatchTooLarge, HeadraceError
from ..model import format_bytes
from .arena import Arena

HEADER_BYTES = 64
_STATE = 0
_IN_USE = 1
_PAGE = 4096


class NoRoom(HeadraceError):
    """A region has no place for a block."""


def _capacity(size: int) -> int:
    """Round up so that blocks of similar sizes can stand in for each other: at most a quarter is wasted."""
    total = size + HEADER_BYTES
    if total <= _PAGE:
        return 256 if total <= 256 else 1024 if total <= 1024 else _PAGE
    step = max(_PAGE, 1 << (total.bit_length() - 3))
    return -(-total // step) * step


def free_block(words: memoryview, offset: int) -> None:
    """Give the block at a data offset back to its owner; `words` is the whole arena as 64-bit words."""
    words[(offset - HEADER_BYTES) >> 3] = 0


class Region:
    """The owner's side of a region."""

    def __init__(self, arena: Arena, start: int, size: int, *, largest: int | None = None) -> None:
        self._arena = arena
        self._words = arena.bytes.cast("q")
        self._start, self._size = start, size
        self._largest = size if largest is None else largest  # what one block may take
        self._top = 0
        self._by_capacity: dict[int, list[int]] = {}
        self.live_bytes = 0

    @property
    def top_bytes(self) -> int:
        return self._top

    def take(self, size: int) -> int:
        """Return the offset of `size` free bytes; they are the caller's until `free_block`."""
        if size > self._largest:
            raise BatchTooLarge(
                "one batch, or one sample of it, does not fit the loader's memory budget",
                size=format_bytes(size),
                budget=format_bytes(self._largest),
                next_step=f'a smaller batch_size, or memory="{-(-3 * size >> 20)}MiB"',
            )
        capacity = _capacity(size)
        offset = self._reuse(capacity)
        if offset < 0 and self._top + capacity > self._size:
            self._merge()
            offset = self._split(capacity)
        if offset < 0:
            if self._top + capacity > self._size:
                raise NoRoom(
                    "a worker's region of shared memory is full",
                    asked_for=format_bytes(size),
                    region=format_bytes(self._size),
                    next_step="fewer batches ahead, `loader.resize(prefetch_batches=2)`, or a larger `memory=`",
                )
            offset = self._start + self._top
            self._top += capacity
            self._add(offset, capacity)
        self._words[(offset >> 3) + _STATE] = _IN_USE
        return offset + HEADER_BYTES

    def _add(self, offset: int, capacity: int) -> None:
        self._by_capacity.setdefault(capacity, []).append(offset)
        self._words[(offset >> 3) + _STATE] = 0

    def _reuse(self, capacity: int) -> int:
        words = self._words
        for fits in sorted(c for c in self._by_capacity if capacity <= c <= 2 * capacity):
            for offset in self._by_capacity[fits]:
                if words[(offset >> 3) + _STATE] == 0:
                    return offset
        return -1

    def _split(self, capacity: int) -> int:
        """Cut the block out of a larger free one."""
        for larger in sorted(c for c in self._by_capacity if c >= capacity):
            for offset in self._by_capacity[larger]:
                if self._words[(offset >> 3) + _STATE] == 0:
                    self._by_capacity[larger].remove(offset)
                    self._add(offset, capacity)
                    if larger > capacity:
                        self._add(offset + capacity, larger - capacity)
                    return offset
        return -1

    def _merge(self) -> None:
        """Join free neighbours, and let the top sink over free blocks at the end."""
        blocks = sorted((o, c) for c, offsets in self._by_capacity.items() for o in offsets)
        merged: list[tuple[int, int]] = []
        for offset, capacity in blocks:
            if self._words[(offset >> 3) + _STATE] == 0:
                self._arena.give_back(offset + _PAGE, capacity - _PAGE)
                if merged and self._words[(merged[-1][0] >> 3) + _STATE] == 0:
                    merged[-1] = (merged[-1][0], merged[-1][1] + capacity)
                    continue
            merged.append((offset, capacity))
        if merged and self._words[(merged[-1][0] >> 3) + _STATE] == 0:
            self._top = merged.pop()[0] - self._start
        self._by_capacity = {}
        for offset, capacity in merged:
            self._by_capacity.setdefault(capacity, []).append(offset)

    def trim(self) -> int:
        """Return the pages of large free blocks to the kernel; gives the bytes still in use."""
        live = 0
        for capacity, offsets in self._by_capacity.items():
            for offset in offsets:
                if self._words[(offset >> 3) + _STATE] == 0:
                    if capacity >= 16 * _PAGE:
                        self._arena.give_back(offset + _PAGE, capacity - _PAGE)
                else:
                    live += capacity
        self.live_bytes = live
        return live
