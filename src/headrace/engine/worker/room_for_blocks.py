"""A worker's blocks enter the budget: at once where there is room, else when there is."""

import time

from headrace.errors import BatchTooLarge
from headrace.model import Count, format_bytes

from ..memory import (
    GENERAL,
    MAX_ENTRIES,
    TOLD,
    UNBOUND,
    Arena,
    Board,
    BoardLock,
    Entry,
    Head,
    Holding,
    Record,
    Region,
    Turn,
    block_bytes,
    dump,
)
from .record import WorkerRecord

# smaller blocks are not asked for: what they take is bounded by the number of batches ahead
_ASKED_BYTES = 64 << 10
# where there is room for as many more blocks of each worker, it does not look before each of them
_UNLOOKED = 16
# the loop may be in a step of milliseconds, or in an evaluation of minutes
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02
# once something was given out again, it may stand in a pipe while those that could take it wait here
_PATIENCE_AFTER_LOSS_S = 0.1


class Entering:
    """Writes objects into blocks of a worker's region when the budget has room for them. One per worker."""

    def __init__(
        self, arena: Arena, lock: BoardLock, region: Region, record: WorkerRecord, *, worker: int, budget_bytes: int
    ) -> None:
        self._budget_bytes, self._arena, self._lock, self._region = budget_bytes, arena, lock, region
        self._board = Board(arena.bytes)
        self._words = self._board.words
        self._all_words = arena.bytes.cast("q")
        self._record, self._promised_at = record, Board.record_at(worker) + Record.PROMISED
        self._unlooked = self._unlooked_bytes = 0

    def dump(self, value: object, entry: int, *, rows: int) -> tuple[int, int]:
        """Write an object of a batch, made of `rows` of its samples, into a new block, once it may be written.

        Returns the block's offset and its size.
        """
        try:
            return dump(value, self._region, self._arena, ask=lambda size: self._ask(size, entry, rows))
        finally:
            self._words[self._promised_at] = 0

    def _ask(self, size: int, entry: int, rows: int) -> None:
        """Wait until a block of this size may be written. Raises where its batch alone does not fit the budget."""
        if size < min(_ASKED_BYTES, self._budget_bytes):
            return
        # the oldest batch may have samples as large as these
        self._board.expect_batch(size * self._words[entry + Entry.NUM_ROWS] // max(1, rows))
        if self._unlooked and size <= self._unlooked_bytes:
            self._unlooked -= 1
            return
        holding = self._holding()
        if holding.admits_at_once(size):
            if holding.admits_at_once(size, count=_UNLOOKED * self._words[Head.NUM_RECORDS]):
                self._unlooked, self._unlooked_bytes = _UNLOOKED, size
            return
        self._check_batch(size, entry)
        if self._enter(size, entry):
            return
        self._region.trim()  # what we keep for reuse is the first to go
        self._wait(size, entry)

    def _wait(self, size: int, entry: int) -> None:
        words, started, pause_s = self._words, time.perf_counter(), _FIRST_PAUSE_S
        with self._record.waiting():
            while not self._enter(size, entry):
                is_hurried = bool(words[Head.LOSSES] or words[Head.REISSUED])
                is_late = is_hurried and time.perf_counter() > started + _PATIENCE_AFTER_LOSS_S
                is_given_up = words[entry + Entry.RUN] != words[Head.RUN]
                if is_late or words[Head.STOP] or words[Head.OPEN] or is_given_up:
                    return
                time.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, 1.2 * pause_s)

    def _holding(self, *, promised_bytes: int = 0) -> Holding:
        return Holding(
            budget_bytes=self._budget_bytes,
            used_bytes=self._arena.used_bytes(),
            promised_bytes=promised_bytes,
            batch_bytes=self._words[Head.BATCH_BYTES],
        )

    def _enter(self, size: int, entry: int) -> bool:
        """Take room for a block, where there is: pages count once they are written, until then it is promised."""
        words = self._words
        with self._lock:
            # what a dead worker was promised is gone with its record
            records = [Board.record_at(worker) for worker in range(words[Head.NUM_RECORDS])]
            promised = sum(words[at + Record.PROMISED] for at in records)
            if not self._holding(promised_bytes=promised).admits(size, self._turn(entry)):
                return False
            words[self._promised_at] = size
        return True

    def _turn(self, entry: int) -> Turn:
        """Where the batch stands: batches that have a slot, or are collated, need no room any more."""
        words = self._words
        seq, first = words[entry + Entry.SEQ], words[Head.NEXT]
        if seq <= first:
            return Turn.NEXT
        for earlier in range(max(first, seq - MAX_ENTRIES), seq):
            at = Board.entry_at(earlier)
            is_open = words[at + Entry.PLACE] in (UNBOUND, GENERAL) and not words[at + Entry.CLOSED]
            if is_open and words[at + Entry.SEQ] == earlier and words[at + Entry.RUN] == words[Head.RUN]:
                return Turn.LATER
        return Turn.OPEN

    def _check_batch(self, size: int, entry: int) -> None:
        """A batch whose samples, and what they are collated to, do not fit together will never fit."""
        num_rows, table = self._words[entry + Entry.NUM_ROWS], self._words[entry + Entry.ROW_WORDS]
        # an iterable data set has no row words: there is nothing but the batch
        row_words = self._all_words[table : table + num_rows].tolist() if table else []
        samples = sum(block_bytes(self._arena, block) for block in row_words if block > TOLD)
        if samples + size > self._budget_bytes:
            rows_that_fit = max(1, self._budget_bytes * max(1, num_rows) // (samples + size) // 3)
            raise BatchTooLarge(
                "one batch does not fit the loader's memory budget: its samples, and what they are collated to",
                batch=f"{format_bytes(samples + size)} for {Count(max(1, num_rows)):sample(s)}",
                budget=format_bytes(self._budget_bytes),
                next_step=f'batch_size={rows_that_fit}, or memory="{-(-3 * (samples + size) >> 20)}MiB"',
            )
