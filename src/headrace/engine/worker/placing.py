"""Where a worker's samples go: into a batch's slot, or aside where they do not fit it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..memory import (
    GENERAL,
    UNBOUND,
    Answer,
    Arena,
    Board,
    BoardLock,
    Entry,
    Head,
    Layout,
    Ledger,
    Misfit,
    Region,
    Slot,
    dump,
    join_place,
    learn_layout,
    peek,
    read_samples,
    split_place,
)
from .record import WorkerRecord
from .rows import RowWriter

# the training process answers at once while it waits for a batch; if it is elsewhere, the batch takes the general path
_LAYOUT_PATIENCE_S = 0.05

# a large batch on the general path lies in memory twice, as samples and collated: its layout is worth a longer wait
_LARGE_BATCH_BYTES, _LARGE_PART = 16 << 20, 8

# a loop that holds all slots gives one back with its next batch; a step takes less than this, as a rule
_SLOT_PATIENCE_S = 2.0

# what was done with rows: (answer, first row, rows, texts or samples)
Placed = tuple[Answer, int, int, Any]


class Placer:
    """Binds batches to slots and writes samples into their rows. One per worker."""

    def __init__(
        self,
        arena: Arena,
        lock: BoardLock,
        ledger: Ledger,
        region: Region,
        record: WorkerRecord,
        propose: Callable[[int, int, int], None],
        *,
        budget_bytes: int,
    ) -> None:
        self._arena, self._lock, self._ledger, self._region, self._record = arena, lock, ledger, region, record
        self._board = Board(arena.bytes)
        self._words = self._board.words
        self._propose = propose  # (batch, rows, block): offers a new layout to the training process
        self._large_bytes = min(_LARGE_BATCH_BYTES, budget_bytes // _LARGE_PART)
        self._writers: list[RowWriter] = []
        self._refused: list[Layout] = []

    def place(self, entry: int, samples: Sequence[Any], row: int, done: list[Placed]) -> None:
        """Write samples into their rows; those that do not fit are kept aside, each on its own."""
        place = self._words[entry + Entry.PLACE]
        if place == UNBOUND:
            place = self._bind(entry, samples[0])
        if place == GENERAL:
            append_placed(done, Answer.SHARED, row, list(samples))
            return
        layout, slot = split_place(place)
        writer = self._writer(layout)
        try:
            texts = writer.write(samples, (slot, self._words[entry + Entry.NUM_ROWS]), row)
            self._record.add_bytes(writer.layout.row_bytes * len(samples))
            append_placed(done, Answer.ROWS, row, texts, count=len(samples))
        except Misfit:
            if len(samples) == 1:
                append_placed(done, Answer.SAMPLES, row, [samples[0]])
            else:
                for offset, sample in enumerate(samples):
                    self.place(entry, [sample], row + offset, done)

    def row_bytes(self, entry: int) -> int:
        """Bytes of a row of a batch: of its slot, or, where it has none yet, of the last layout that samples had."""
        place = self._words[entry + Entry.PLACE]
        if place >= 0:
            return self._writer(split_place(place)[0]).layout.row_bytes
        return self._writers[-1].layout.row_bytes if place == UNBOUND and self._writers else 1 << 62

    def put(self, place: int, num_rows: int, sample: Any, row: int) -> bool:
        """Write one sample into a batch that has its slot, where that takes no more than this; else False."""
        layout, slot = split_place(place)
        writer = self._writer(layout)
        if not writer.put(sample, (slot, num_rows), row):
            return False
        self._record.add_bytes(writer.layout.row_bytes)
        return True

    def rows_back(self, entry: int, row: int, texts: list[Any]) -> list[Any]:
        """Take samples out of their rows again: a later one did not fit, so the batch takes the general path."""
        place = self._words[entry + Entry.PLACE]
        if row == 0 or place < 0:
            return []
        layout, slot = split_place(place)
        memory = self._slot_memory(slot)
        joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
        num_rows = self._words[entry + Entry.NUM_ROWS]
        return read_samples(self._writer(layout).layout, memory, num_rows, range(row), joined)

    def _writer(self, number: int) -> RowWriter:
        while len(self._writers) <= number:
            offset, _ = self._board.layout_block(len(self._writers))
            self._writers.append(RowWriter(peek(self._arena, offset), self._slot_memory))
        return self._writers[number]

    def _slot_memory(self, slot: int) -> memoryview:
        at = Board.slot_at(slot)
        return self._arena.view(self._words[at + Slot.OFFSET], self._words[at + Slot.SIZE])

    def _bind(self, entry: int, sample: Any) -> int:
        """Give a batch its slot, or decide that it takes the general path."""
        number = self._layout_number(entry, sample)
        need = self._writer(number).layout.places(self._words[entry + Entry.NUM_ROWS])[1] if number >= 0 else 0
        place = self._try_to_bind(entry, number, need, is_last_try=number < 0)
        if place != UNBOUND:
            return place
        deadline = time.perf_counter() + _SLOT_PATIENCE_S
        with self._record.waiting():
            while place == UNBOUND:
                time.sleep(0.001)
                place = self._try_to_bind(entry, number, need, is_last_try=not self._may_wait(entry, deadline))
        return place

    def _try_to_bind(self, entry: int, number: int, need: int, *, is_last_try: bool) -> int:
        """The place of a batch: the one it has, a slot, or, where that was the last try, the general path."""
        with self._lock:
            place = self._words[entry + Entry.PLACE]
            if place == UNBOUND:
                slot = self._board.bind_slot(need) if number >= 0 and self._may_bind(entry, need) else GENERAL
                if slot >= 0 or is_last_try:
                    place = join_place(number, slot) if slot >= 0 else GENERAL
                    self._ledger.bind(entry, place)
        return place

    def _may_bind(self, entry: int, need: int) -> bool:
        """Whether a batch may have a slot before those before it have theirs: where there is one for each of them."""
        if self._words[Head.PLENTY]:
            return True
        return self._board.num_free_slots(need) > self._board.num_unbound_before(self._words[entry + Entry.SEQ])

    def _may_wait(self, entry: int, deadline: float) -> bool:
        """Whether a slot is worth waiting for: the loop is soon done with one, and the other way takes more room.

        A batch that is not the next gets one when those before it have been delivered. Else the deadline holds.
        """
        words = self._words
        if words[Head.STOP] or words[Head.OPEN] or words[entry + Entry.RUN] != words[Head.RUN]:
            return False
        is_hurried = bool(words[Head.LOSSES] or words[Head.REISSUED])
        is_later = words[entry + Entry.SEQ] > words[Head.NEXT] and not is_hurried
        return is_later or time.perf_counter() < deadline

    def _layout_number(self, entry: int, sample: Any) -> int:
        """The number of the sample's layout; a new one is proposed to the training process. -1: none."""
        known = self._words[Head.NUM_LAYOUTS]
        for number in range(known - 1, -1, -1):
            if self._writer(number).fits(sample):
                return number
        layout = learn_layout(sample)
        if layout is None or layout in self._refused:
            return -1
        block, _ = dump(layout, self._region, self._arena)
        self._propose(self._words[entry + Entry.SEQ], self._words[entry + Entry.NUM_ROWS], block)
        is_large = layout.row_bytes * self._words[entry + Entry.NUM_ROWS] >= self._large_bytes
        deadline = time.perf_counter() + (_SLOT_PATIENCE_S if is_large else _LAYOUT_PATIENCE_S)
        while time.perf_counter() < deadline and not self._words[Head.STOP]:
            for number in range(known, self._words[Head.NUM_LAYOUTS]):
                if self._writer(number).layout == layout:
                    return number
            if self._words[entry + Entry.PLACE] != UNBOUND:
                return -1
            time.sleep(0.0002)
        self._refused = [*self._refused[-7:], layout]
        return -1


def append_placed(
    done: list[Placed], answer: Answer, row: int, content: list[Any], *, count: int | None = None
) -> None:
    """Add rows to what was done, joined with the rows before where they are of the same kind."""
    rows = len(content) if count is None else count
    if done and done[-1][0] is answer and done[-1][1] + done[-1][2] == row:
        _, first, before, held = done[-1]
        if answer is Answer.ROWS:
            held = [a + b for a, b in zip(held, content, strict=True)]
        else:
            held = held + content
        done[-1] = (answer, first, before + rows, held)
    else:
        done.append((answer, row, rows, content))
