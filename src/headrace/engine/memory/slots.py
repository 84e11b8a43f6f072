"""The training process's side of batch slots: how many there are, which are out on lease, what comes back."""

import logging
import os
import weakref
from collections.abc import Callable
from functools import partial
from operator import setitem
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import BatchTooLarge
from headrace.model import Count, SlotStats, format_bytes

from .arena import Arena
from .board import BOUND, FREE, LEASED, MAX_SLOTS, RETIRED, Board, BoardLock, Head, Slot

_log = logging.getLogger(__name__)

_PAGE = 4096
# more slots than this never help, and they are scanned on every bind
_MOST_SLOTS = 256


class _Lease(weakref.ref[Any]):
    """Is stored as FREE when its array is gone.

    Without a step of the interpreter, in which a signal handler could raise: the exception would be lost.
    """

    __index__ = int  # called without an argument: 0
    assert FREE == 0


class Slots:
    """Lays out slots in their part of the arena, leases them to the user, and takes them back.

    A lease ends when the last tensor over the slot is gone: each delivery makes a fresh array over the slot's
    memory, every tensor of the batch refers to it, and its end frees the slot with one store. A forked child has
    copies of those tensors, and their end means nothing.
    """

    def __init__(
        self, arena: Arena, board: Board, lock: BoardLock, *, start: int, size: int, budget_bytes: int
    ) -> None:
        self._arena, self._board, self._lock = arena, board, lock
        self._next, self._end = start, start + size
        self._budget_bytes = budget_bytes
        self._leases: dict[int, _Lease] = {}
        _alive.add(self)
        self._total = 0
        self._has_warned = False
        self.largest_bytes = 0
        # told (offset, size) of a slot before its first lease: page-locking all at once would fill the whole budget
        self.on_first_lease: Callable[[int, int], None] | None = None
        self._once_leased: set[int] = set()

    def provide(self, need: int, *, num_rows: int, in_hand_bytes: int = 0) -> bool:
        """Make sure that slots of `need` bytes exist. False: no room to lay them out; the general path serves.

        `in_hand_bytes` is what the workers hold of samples that are not in a slot yet: they count as well.
        """
        if need <= self.largest_bytes:
            return True
        if need > self._budget_bytes:
            rows_that_fit = max(1, self._budget_bytes * num_rows // need // 3)
            raise BatchTooLarge(
                "one batch does not fit the loader's memory budget",
                batch=f"{format_bytes(need)} for {Count(num_rows):sample(s)}",
                budget=format_bytes(self._budget_bytes),
                next_step=f'batch_size={rows_that_fit}, or memory="{-(-3 * need >> 20)}MiB"',
            )
        size = -(-need // _PAGE) * _PAGE
        number = self._board.words[Head.NUM_SLOTS]
        self.give_back_free(are_retired=True)  # so that larger ones fit the budget
        in_use = sum(s for s, state in self._sizes() if state != RETIRED)
        room = self._budget_bytes - in_use
        # a loop holds one while the next is filled: with a single slot each batch would be copied, into memory as well
        least = 2 if room >= 2 * size else 1
        count = max(least, min((room - in_hand_bytes) // size, _MOST_SLOTS, MAX_SLOTS - number))
        if count * size + in_hand_bytes > room and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "memory=%s holds %d x %s of batches, but not the %s of samples that the workers have in hand besides; "
                "fewer workers, a smaller batch_size, or memory=%s keep within the budget",
                format_bytes(self._budget_bytes),
                count,
                *map(format_bytes, (size, in_hand_bytes, in_use + count * size + in_hand_bytes)),
            )
        if number >= MAX_SLOTS or self._next + count * size > self._end:
            return False
        for _ in range(count):
            self._board.add_slot(self._next, size)
            self._next += size
        self.largest_bytes, self._total = size, count
        return True

    def give_back_free(self, *, are_retired: bool = False) -> None:
        """Return the pages of slots that nobody uses to the kernel; the slots stay, unless `are_retired`."""
        words = self._board.words
        if not words[Head.NUM_SLOTS]:
            return
        with self._lock.within(0.1) as is_held:
            for slot in range(words[Head.NUM_SLOTS] if is_held else 0):
                at = Board.slot_at(slot)
                if words[at + Slot.STATE] == FREE:
                    if are_retired:
                        words[at + Slot.STATE] = RETIRED
                    self._arena.give_back(words[at + Slot.OFFSET], words[at + Slot.SIZE])

    def _sizes(self) -> list[tuple[int, int]]:
        words = self._board.words
        ats = [Board.slot_at(s) for s in range(words[Head.NUM_SLOTS])]
        return [(words[at + Slot.SIZE], words[at + Slot.STATE]) for at in ats]

    def counts(self) -> tuple[int, int]:
        """(slots of the current size, slots on lease)."""
        for slot in [slot for slot, lease in self._leases.items() if lease() is None]:
            del self._leases[slot]
        return self._total, len(self._leases)

    def memory(self, slot: int) -> memoryview:
        at = Board.slot_at(slot)
        return self._arena.view(self._board.words[at + Slot.OFFSET], self._board.words[at + Slot.SIZE])

    def free(self, slot: int) -> None:
        self._board.words[Board.slot_at(slot) + Slot.STATE] = FREE

    def lease(self, slot: int) -> npt.NDArray[np.uint8]:
        """The slot's memory as a fresh array; the slot is free again when nothing refers to that array any more."""
        words, at = self._board.words, Board.slot_at(slot)
        owner: npt.NDArray[np.uint8] = np.frombuffer(
            self._arena.map, np.uint8, words[at + Slot.SIZE], words[at + Slot.OFFSET]
        )
        self._make_ready(slot)
        words[at + Slot.STATE] = LEASED
        self._leases[slot] = _Lease(owner, partial(setitem, words, at + Slot.STATE))
        return owner

    def _make_ready(self, slot: int) -> None:
        if self.on_first_lease is not None and slot not in self._once_leased:
            self._once_leased.add(slot)
            at = Board.slot_at(slot)
            self.on_first_lease(self._board.words[at + Slot.OFFSET], self._board.words[at + Slot.SIZE])

    def make_one_ready(self, most: int) -> None:
        """Prepare one more of the first `most` slots for its lease, so that a later batch does not wait for it."""
        number = self._board.words[Head.NUM_SLOTS]
        slot = next((s for s in range(number - self._total, number)[:most] if s not in self._once_leased), None)
        if slot is not None:
            self._make_ready(slot)

    def stats(self, *, num_filled: int) -> SlotStats:
        states = [state for _, state in self._sizes()]
        num_filled = min(num_filled, states.count(BOUND))
        return SlotStats(
            total=sum(s != RETIRED for s in states),
            free=states.count(FREE),
            filling=states.count(BOUND) - num_filled,
            filled=num_filled,
            leased=states.count(LEASED),
            slot_bytes=self.largest_bytes,
            touched_bytes=self._arena.used_bytes(),
        )


_alive: weakref.WeakSet[Slots] = weakref.WeakSet()


def _forget_leases() -> None:
    for slots in _alive:
        slots._leases.clear()


os.register_at_fork(after_in_child=_forget_leases)
