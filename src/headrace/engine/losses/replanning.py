"""A sample is left out: the batches from its own on are planned anew, and rows that are done are carried over.

Each later sample moves up by a place. What workers did for them is still right: a sample depends on its key and on its
position alone. So a row that is done is copied out of the slot of the batch that is given up, and into the slot of the
batch that takes its sample. What workers have in hand at that moment is fetched once more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.order import PlannedBatch

from ..epoch import Batch, EpochPlan, Issuing
from ..memory import QUIET, UNBOUND, Layout, join_place, split_place
from .rows_again import LOCK_PATIENCE_S, Claims

# copies lie outside of the budget until the next batches go out: no more than this, and than a quarter of it
_MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class _Copy:
    """The slot of a batch that was given up, as it was."""

    layout: int
    num_rows: int
    memory: bytes


class Replanning:
    """Gives batches up, and keeps their finished rows for the batches that follow."""

    def __init__(self, issuing: Issuing, plan: EpochPlan, claims: Claims) -> None:
        self._pool, self._scheduler, self._plan, self._claims = issuing.pool, issuing.scheduler, plan, claims
        self._slots, self._layouts, self._ledger = issuing.delivery.slots, issuing.delivery.layouts, self._pool.ledger
        self._most_bytes = min(_MOST_BYTES, self._pool.plan.budget_bytes // 4)
        self._kept: dict[int, tuple[Any, _Copy, int]] = {}  # position: key, where its row is

    def clear(self) -> None:
        self._kept.clear()

    def give_up_from(self, first: int) -> None:
        """Give up all batches from one on: their samples are given out again without those that are left out."""
        for seq in self._scheduler.order:
            planned = self._plan.planned(seq)
            if seq >= first and planned is not None:
                self._keep(self._scheduler.batches[seq], planned)
        cancelled = self._scheduler.cancel_from(first)
        for seq in cancelled:
            self._ledger.cancel(seq)
        self._plan.give_back(cancelled)

    def _keep(self, batch: Batch, planned: PlannedBatch) -> None:
        """Copy the rows of a batch that are done; it is about to be given up."""
        place = self._ledger.place_of(batch.seq)
        if batch.is_whole or place < 0 or self._claims.is_in_hand(batch.seq):
            return
        number, slot = split_place(place)
        layout = self._layouts.known[number]
        size = layout.places(batch.num_rows)[1]
        held = {id(copy): len(copy.memory) for _, copy, _ in self._kept.values()}
        if layout.has_objects or sum(held.values()) + size > self._most_bytes:
            return
        # a row that was told of may have failed
        state = self._ledger.row_words(batch.seq)
        rows = [row for row, word in enumerate(state) if word == QUIET or batch.is_carried(row)]
        if rows:
            copy = _Copy(number, batch.num_rows, bytes(self._slots.memory(slot)[:size]))
            self._kept.update({planned.positions[row]: (planned.keys[row], copy, row) for row in rows})

    def fill(self, planned: PlannedBatch) -> tuple[int, list[int]]:
        """Give a planned batch a slot with the rows that are kept for it; returns its place, and those rows."""
        found: list[tuple[int, _Copy, int]] = []
        if self._kept:
            for row, (position, key) in enumerate(zip(planned.positions, planned.keys, strict=True)):
                kept = self._kept.pop(position, None)
                # what fills the end of an epoch may be another sample than it was
                if kept is not None and kept[0] is key and (not found or kept[1].layout == found[0][1].layout):
                    found.append((row, kept[1], kept[2]))
        if not found:
            return UNBOUND, []
        number = found[0][1].layout
        layout, num_rows = self._layouts.known[number], len(planned.keys)
        with self._pool.lock.within(LOCK_PATIENCE_S) as is_held:
            slot = self._pool.board.bind_slot(layout.places(num_rows)[1]) if is_held else -1
        if slot < 0:
            return UNBOUND, []
        _copy_rows(layout, self._slots.memory(slot), num_rows, found)
        return join_place(number, slot), [row for row, _, _ in found]


def _copy_rows(layout: Layout, memory: memoryview, num_rows: int, found: list[tuple[int, _Copy, int]]) -> None:
    to = layout.places(num_rows)[0]
    for row, copy, source, count in _together(found):
        at = layout.places(copy.num_rows)[0]
        for leaf, begin, start in zip(layout.leaves, to, at, strict=True):
            width = leaf.row_bytes
            part = copy.memory[start + source * width : start + (source + count) * width]
            memory[begin + row * width : begin + (row + count) * width] = part


def _together(found: list[tuple[int, _Copy, int]]) -> Iterator[tuple[int, _Copy, int, int]]:
    """Rows that lie side by side in both slots: (first row, where from, its row there, how many)."""
    first = 0
    for end in range(1, len(found) + 1):
        row, copy, source = found[first]
        step = end - first
        if end < len(found) and found[end][1] is copy and found[end][::2] == (row + step, source + step):
            continue
        yield row, copy, source, step
        first = end
