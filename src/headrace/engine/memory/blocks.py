"""Blocks of any size in one process's own region of the arena: the owner allocates, anybody frees.

A block opens with a word that says whether it is in use, and one that says how long it is. Only the owner of the
region takes blocks; whoever is done with one stores a 0 there. So no lock is needed, and a block outlives its owner:
the region opens with a word that says how far it is filled, every change to the chain of blocks is one store, and the
owner that follows a dead one walks the chain and goes on from there.
"""

from headrace.errors import BatchTooLarge, HeadraceError
from headrace.model import format_bytes

from .arena import Arena

HEADER_BYTES = 64
_STATE, _CAPACITY = 0, 1
_IN_USE = 1
_TOLD = 2  # in use, and the training process knows of it
_PAGE = 4096
_LARGE_BYTES = 1 << 20


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


def release_block(arena: Arena, words: memoryview, offset: int) -> None:
    """Give a block back, and its pages to the kernel where it is large and the arena holds more than it should."""
    capacity = words[((offset - HEADER_BYTES) >> 3) + _CAPACITY]
    if capacity >= _LARGE_BYTES and arena.used_bytes() > arena.most_bytes:
        arena.give_back(offset - HEADER_BYTES + _PAGE, capacity - _PAGE)
    free_block(words, offset)


def mark_told(words: memoryview, offset: int) -> None:
    """Note that the training process knows of a block: it frees it, whatever becomes of the owner."""
    words[(offset - HEADER_BYTES) >> 3] = _TOLD


class Region:
    """The owner's side of a region, new or left by an owner that is gone."""

    def __init__(self, arena: Arena, start: int, size: int, *, largest: int | None = None) -> None:
        self._arena = arena
        self._words = arena.bytes.cast("q")
        self._start, self._size = start, size
        self._largest = size if largest is None else largest  # what one block may take
        self._by_capacity: dict[int, list[int]] = {}
        self.top_bytes = max(HEADER_BYTES, self._words[start >> 3])  # fresh memory is zero
        at = start + HEADER_BYTES
        while at < start + self.top_bytes:
            capacity = self._words[(at >> 3) + _CAPACITY]
            self._by_capacity.setdefault(capacity, []).append(at)
            at += capacity

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
        if offset < 0 and self.top_bytes + capacity > self._size:
            self._merge()
            offset = self._split(capacity)
        if offset < 0:
            if self.top_bytes + capacity > self._size:
                raise NoRoom(
                    "a worker's region of shared memory is full",
                    asked_for=format_bytes(size),
                    region=format_bytes(self._size),
                    next_step="fewer batches ahead, `loader.resize(prefetch_batches=2)`, or a larger `memory=`",
                )
            offset = self._start + self.top_bytes
            self._add(offset, capacity)
            self._set_top(self.top_bytes + capacity)
        self._words[(offset >> 3) + _STATE] = _IN_USE
        return offset + HEADER_BYTES

    def _set_top(self, top: int) -> None:
        self._words[self._start >> 3] = self.top_bytes = top

    def _add(self, offset: int, capacity: int) -> None:
        self._by_capacity.setdefault(capacity, []).append(offset)
        self._words[(offset >> 3) + _STATE] = 0
        self._words[(offset >> 3) + _CAPACITY] = capacity

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
                    if larger > capacity:  # the rest first: the chain stays whole if we die in between
                        self._add(offset + capacity, larger - capacity)
                    self._add(offset, capacity)
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
                    self._words[(merged[-1][0] >> 3) + _CAPACITY] = merged[-1][1]
                    continue
            merged.append((offset, capacity))
        if merged and self._words[(merged[-1][0] >> 3) + _STATE] == 0:
            self._set_top(merged.pop()[0] - self._start)
        self._by_capacity = {}
        for offset, capacity in merged:
            self._by_capacity.setdefault(capacity, []).append(offset)

    def free_untold(self) -> int:
        """Free the blocks of an owner that is gone which nobody heard of; returns how many."""
        count = 0
        for offsets in self._by_capacity.values():
            for offset in offsets:
                if self._words[(offset >> 3) + _STATE] == _IN_USE:
                    self._words[(offset >> 3) + _STATE] = 0
                    count += 1
        return count

    def trim(self) -> None:
        """Return the pages of large free blocks to the kernel."""
        for capacity, offsets in self._by_capacity.items():
            for offset in offsets if capacity >= 16 * _PAGE else ():
                if self._words[(offset >> 3) + _STATE] == 0:
                    self._arena.give_back(offset + _PAGE, capacity - _PAGE)
