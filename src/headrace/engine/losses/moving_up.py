"""A sample is left out: the later ones move up through the batches in flight, and none is fetched again.

The row of a sample that failed is given out once more, for the sample that now comes last. Each batch is finished as it
was issued. Before it is delivered, its rows change places with those of the batches behind it (`slot_rows`), so that it
holds what the order says. A bad sample costs one more sample and some copying, not a batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.order import EpochOrder, PlannedBatch

from ..epoch import Batch, Delivery, Scheduler
from ..memory import (
    GENERAL,
    MOST_SHIFT,
    QUIET,
    Board,
    Entry,
    Layout,
    pack_indices,
    payload_bytes,
    replace_index,
    write_payload,
)
from ..pool import Pool
from .claims import Claims
from .homecoming import Homecoming
from .row_moves import find_moves
from .rows_again import RowsAgain
from .slot_rows import SlotRows


class MovingUp:
    """Knows what each batch in flight is to be delivered with, and what lies in its rows."""

    def __init__(
        self,
        pool: Pool,
        scheduler: Scheduler,
        *,
        rows: SlotRows,
        delivery: Delivery,
        again: RowsAgain,
        claims: Claims,
        is_batched: bool,
    ) -> None:
        self._pool, self._scheduler, self._rows = pool, scheduler, rows
        self._delivery, self._again, self._claims, self._is_batched = delivery, again, claims, is_batched
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self.plans: dict[int, PlannedBatch] = {}  # what each batch in flight is to be delivered with
        self._held: dict[int, PlannedBatch] = {}  # what lies in its rows, where that is something else

    def clear(self) -> None:
        self.plans.clear()
        self._held.clear()

    def held(self, seq: int) -> PlannedBatch | None:
        """What lies in the rows of a batch, or will."""
        return self._held.get(seq) or self.plans.get(seq)

    def take(self, seq: int) -> PlannedBatch | None:
        """Forget a batch that leaves; returns what it is delivered with."""
        self._held.pop(seq, None)
        return self.plans.pop(seq, None)

    def first_with(self, seq: int) -> int:
        """The first batch that must be planned anew if this one is: those that wait for rows of others go with it."""
        return min([seq, *self._held])

    def give_up(self, seqs: list[int]) -> list[PlannedBatch]:
        """Forget batches that are given up, all that hold samples of others among them; returns their plans."""
        return [plan for seq in seqs if (plan := self.take(seq)) is not None]

    # ------------------------------------------------------------------------------------ a sample is left out

    def leave_out(self, batch: Batch, row: int, order: EpochOrder) -> bool:
        """Give a row that failed to the sample that now comes last. False: plan anew, from this batch on."""
        held = self.held(batch.seq)
        is_general = self._words[Board.entry_at(batch.seq) + Entry.PLACE] == GENERAL
        if held is None or is_general or batch.is_whole or batch.needs_whole or not self._scheduler.in_order:
            return False
        position = held.positions[row]
        seqs = [seq for seq in self._scheduler.order if self._ends_after(seq, position)]
        planned = order.leave_out([self.plans[seq] for seq in seqs], position)
        if planned is None:
            return False
        key, last = planned[-1].keys[-1], planned[-1].positions[-1]
        for seq, plan in zip(seqs, planned, strict=True):
            self._hold(seq, self.held(seq), plan)
        shift = last - batch.first_position - row
        if shift > MOST_SHIFT:
            return False
        self._hold(batch.seq, _exchanged(held, row, last, key), self.plans[batch.seq])
        self._point_at(batch, row, key)
        self._again.retry(batch, row, 1, shift=shift)
        return True

    def _ends_after(self, seq: int, position: int) -> bool:
        positions = self.plans[seq].positions
        return bool(positions) and positions[-1] >= position

    def _hold(self, seq: int, held: PlannedBatch | None, plan: PlannedBatch) -> None:
        self.plans[seq] = plan
        if held is None or held.positions == plan.positions:
            self._held.pop(seq, None)
        else:
            self._held[seq] = held

    def _point_at(self, batch: Batch, row: int, key: Any) -> None:
        """Write another index for a row; who reads the old ones at this moment has another row in hand."""
        payload = self._delivery.payload_of(batch.seq)
        if replace_index(self._all_words, payload, row, key):
            return
        held = self.held(batch.seq)
        assert held is not None
        packed = pack_indices(list(held.keys) if self._is_batched else held.keys[0], is_batched=self._is_batched)
        size = payload_bytes(batch.num_rows, packed)
        block = self._pool.region.take(size)
        write_payload(self._pool.arena.view(block, size), batch.num_rows, packed)
        self._delivery.keep_payload(batch.seq, block)
        self._words[Board.entry_at(batch.seq) + Entry.PAYLOAD] = block

    # ------------------------------------------------------------------------------------ a batch is to be delivered

    def bring_home(self, batch: Batch) -> Homecoming:
        """Give a finished batch, the first in the order, the rows it is to be delivered with."""
        held = self._held.get(batch.seq)
        if held is None or batch.failure is not None:
            return Homecoming.DONE
        if self._claims.is_in_hand(batch.seq):
            return Homecoming.NOT_YET
        layout = self._rows.layout_of(batch)
        if layout is None:
            return Homecoming.CANNOT
        moves = find_moves(self.plans[batch.seq].positions, held.positions)
        sources: list[tuple[Batch, int]] = []
        for _, position in moves.coming:
            found = self._find(position)
            if found is None:
                return Homecoming.CANNOT
            state = self._state_of(*found, layout)
            if state is not Homecoming.DONE:
                return state
            sources.append(found)
        self._rows.move(batch, layout, moves, sources)
        for leaving, (source, row) in zip(moves.leaving, sources, strict=True):
            theirs = self.held(source.seq)
            assert theirs is not None
            theirs = _exchanged(theirs, row, held.positions[leaving], held.keys[leaving])
            self._hold(source.seq, theirs, self.plans[source.seq])
        del self._held[batch.seq]
        return Homecoming.DONE

    def _find(self, position: int) -> tuple[Batch, int] | None:
        """Where a sample lies: in which batch, in which row."""
        for seq in self._scheduler.order:
            held = self.held(seq)
            if held is not None and position in held.positions:
                return self._scheduler.batches[seq], held.positions.index(position)
        return None

    def _state_of(self, source: Batch, row: int, layout: Layout) -> Homecoming:
        """Whether a row may be taken out of the slot of another batch."""
        entry = Board.entry_at(source.seq)
        place = self._words[entry + Entry.PLACE]
        if source.failure is not None or source.needs_whole or place == GENERAL:
            return Homecoming.CANNOT
        if (source.is_settled or place >= 0) and self._rows.layout_of(source) is not layout:
            return Homecoming.CANNOT
        is_done = self._all_words[self._words[entry + Entry.ROW_WORDS] + row] == QUIET and not layout.has_objects
        if not source.is_settled and not is_done:
            return Homecoming.NOT_YET
        # who wrote it once may write it again, where a chunk was given out twice
        return Homecoming.NOT_YET if self._claims.is_in_hand(source.seq) else Homecoming.DONE


def _exchanged(held: PlannedBatch, row: int, position: int, key: Any) -> PlannedBatch:
    """A batch in which a row holds another sample."""
    keys, positions = list(held.keys), list(held.positions)
    keys[row], positions[row] = key, position
    return replace(held, keys=keys, positions=positions)
