"""Rows that lie in slots, and texts that lie beside them, change places between batches."""

from __future__ import annotations

from collections.abc import Sequence

from ..epoch import Batch, Delivery, KnownLayouts
from ..memory import Board, Entry, Layout, Slots, split_place
from ..pool import Pool
from .row_moves import RowMoves, together


class SlotRows:
    """Moves rows as `RowMoves` says."""

    def __init__(self, pool: Pool, slots: Slots, layouts: KnownLayouts, delivery: Delivery) -> None:
        self._words, self._slots, self._layouts, self._delivery = pool.board.words, slots, layouts, delivery

    def layout_of(self, batch: Batch) -> Layout | None:
        """The layout of a batch whose rows all lie in its slot, as far as they are done; None where some do not."""
        place = self._words[Board.entry_at(batch.seq) + Entry.PLACE]
        if place < 0 or batch.is_whole or batch.collated or batch.samples:
            return None
        return self._layouts.layouts[split_place(place)[0]]

    def move(self, batch: Batch, layout: Layout, moves: RowMoves, sources: Sequence[tuple[Batch, int]]) -> None:
        """Move rows inside a batch, and exchange those that leave for those that come, from the rows in `sources`."""
        memory, places = self._memory_of(batch, layout)
        others = [(*self._memory_of(source, layout), row) for source, row in sources]
        put_aside = [*moves.leaving, *(source for _, source in moves.down)]
        for number, leaf in enumerate(layout.leaves):
            width, begin = leaf.row_bytes, places[number]
            if not width:
                continue
            rows = memory[begin : begin + width * batch.num_rows]
            aside = {row: bytes(rows[row * width : (row + 1) * width]) for row in put_aside}
            for row, source, count in together(moves.up):
                rows[row * width : (row + count) * width] = rows[source * width : (source + count) * width]
            for row, source in moves.down:
                rows[row * width : (row + 1) * width] = aside[source]
            for (row, _), gone, (other, starts, theirs) in zip(moves.coming, moves.leaving, others, strict=True):
                at = starts[number] + theirs * width
                rows[row * width : (row + 1) * width] = other[at : at + width]
                other[at : at + width] = aside[gone]
        if layout.has_objects:
            self._move_texts(batch, moves, sources)

    def _move_texts(self, batch: Batch, moves: RowMoves, sources: Sequence[tuple[Batch, int]]) -> None:
        columns = self._delivery.texts_of(batch)
        others = [(self._delivery.texts_of(source), row) for source, row in sources]
        for number, column in enumerate(columns):
            before = list(column)
            for row, source in [*moves.up, *moves.down]:
                column[row] = before[source]
            for (row, _), gone, (theirs, at) in zip(moves.coming, moves.leaving, others, strict=True):
                column[row], theirs[number][at] = theirs[number][at], before[gone]

    def _memory_of(self, batch: Batch, layout: Layout) -> tuple[memoryview, list[int]]:
        place = self._words[Board.entry_at(batch.seq) + Entry.PLACE]
        return self._slots.memory(split_place(place)[1]), layout.places(batch.num_rows)[0]
