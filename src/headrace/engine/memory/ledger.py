"""What became of the rows of each batch: the one writer of batch entries and of the words of their rows.

Workers and the training process call it alike. Where both may write, it holds the board's lock; what is said to be
called under the lock expects it held. Each row has a word: `QUIET`, `TOLD`, a block, or minus its tries while it is not
done. Whatever a dead worker left half counted is counted anew from those.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from .arena import Arena
from .board import GENERAL, QUIET, TOLD, UNBOUND, Board, BoardLock, Entry, Head

_MOST_MARKS = 4096


@dataclass(frozen=True)
class Recount:
    """The rows of a batch, counted anew."""

    done: int
    quiet: int  # of them, with no answer of their own
    last: int  # the worker that finished the last one and should have told so; -1: nobody


class Ledger:
    """The entries of batches in flight, and the words of their rows."""

    def __init__(self, arena: Arena, lock: BoardLock) -> None:
        self._words, self._all_words, self._lock = Board(arena.bytes).words, arena.bytes.cast("q"), lock
        self._marks = {mark: memoryview(array("q", [mark]) * _MOST_MARKS) for mark in (QUIET, TOLD)}

    # ------------------------------------------------------------------------------------ a batch begins and ends

    def open(
        self,
        seq: int,
        *,
        run: int,
        num_rows: int,
        first_position: int,
        base_seed: int,
        payload: int,
        row_words: int,
        place: int,
        done: Sequence[int] = (),
    ) -> None:
        """Enter a batch before its chunks are sent; `done` are rows that need no worker any more."""
        w, at = self._words, Board.entry_at(seq)
        w[at + Entry.RUN] = run
        w[at + Entry.NUM_ROWS] = num_rows
        w[at + Entry.FIRST_POSITION] = first_position
        w[at + Entry.BASE_SEED] = base_seed
        w[at + Entry.PAYLOAD] = payload
        w[at + Entry.PLACE] = place
        w[at + Entry.QUIET_ROWS] = 0
        w[at + Entry.ROWS_DONE] = len(done)
        w[at + Entry.FAILED] = 0
        w[at + Entry.LAST] = 0
        w[at + Entry.ROW_WORDS] = row_words
        w[at + Entry.CLOSED] = 0
        w[at + Entry.SEQ] = seq
        for row in done:
            self._all_words[row_words + row] = TOLD

    def cancel(self, seq: int) -> None:
        """A batch is given up: workers drop what they have not begun of it."""
        self._words[Board.entry_at(seq) + Entry.RUN] = -1

    def forget_rows(self, seq: int, rows: int) -> None:
        """A batch is fetched anew in one piece: what its chunks left does not count."""
        at = self._words[Board.entry_at(seq) + Entry.ROW_WORDS]
        self._all_words[at : at + rows] = memoryview(bytes(8 * rows)).cast("q")

    # ------------------------------------------------------------------------------------ where its rows go

    def place_of(self, seq: int) -> int:
        """UNBOUND, GENERAL, or a slot and its layout."""
        return self._words[Board.entry_at(seq) + Entry.PLACE]

    def bind(self, entry: int, place: int) -> None:
        """A batch has its place; under the lock."""
        self._words[entry + Entry.PLACE] = place

    def take_general_path(self, seq: int) -> bool:
        """Let a batch that has no slot go without one; False where it has one, or the lock could not be had."""
        if self.place_of(seq) != UNBOUND or not self._lock.try_for(0.1):
            return False
        try:
            if self.place_of(seq) == UNBOUND:
                self.bind(Board.entry_at(seq), GENERAL)
        finally:
            self._lock.release()
        return True

    def close(self, entry: int) -> None:
        """A batch is collated, and takes no more room."""
        self._words[entry + Entry.CLOSED] = 1

    # ------------------------------------------------------------------------------------ a worker is done with rows

    def count_done(
        self, entry: int, row: int, rows: int, *, tries: int, worker: int, quietly: bool, is_void: bool
    ) -> int:
        """Count rows as done, of which there is nothing to say (`quietly`), an answer, or no sample (`is_void`).

        Returns how many quiet rows this worker tells of now, because it counted the batch's last one; -1: the rows were
        given to another worker meanwhile, and what this one did counts for nothing.
        """
        words = self._words
        at = words[entry + Entry.ROW_WORDS] + row
        with self._lock:
            if is_void:
                words[entry + Entry.FAILED] = 1
            if not rows:
                return 0
            if words[Head.LOSSES] and self._all_words[at] != -tries:
                return -1
            if rows == 1:
                self._all_words[at] = QUIET if quietly else TOLD
            else:
                self._mark(at, rows, QUIET if quietly else TOLD)
            done = words[entry + Entry.ROWS_DONE] + rows
            words[entry + Entry.ROWS_DONE] = done
            if quietly:
                words[entry + Entry.QUIET_ROWS] += rows
            if done < words[entry + Entry.NUM_ROWS]:
                return 0
            words[entry + Entry.LAST] = worker + 1
            return words[entry + Entry.QUIET_ROWS]

    def count_shared(self, entry: int, row: int, rows: int, block: int, *, tries: int, worker: int) -> bool | None:
        """Count rows whose samples lie in a block. Whether they are the last, and nothing failed; None: not counted."""
        words = self._words
        at = words[entry + Entry.ROW_WORDS] + row
        with self._lock:
            if words[Head.LOSSES] and self._all_words[at] != -tries:
                return None  # another worker has them meanwhile
            if rows > 1:
                self._mark(at, rows, TOLD)
            self._all_words[at] = block
            words[entry + Entry.ROWS_DONE] += rows
            is_last = (
                words[entry + Entry.ROWS_DONE] == words[entry + Entry.NUM_ROWS] and not words[entry + Entry.FAILED]
            )
            if is_last:
                words[entry + Entry.LAST] = worker + 1
        return is_last

    def _mark(self, at: int, rows: int, mark: int) -> None:
        for first in range(at, at + rows, _MOST_MARKS):
            count = min(_MOST_MARKS, at + rows - first)
            self._all_words[first : first + count] = self._marks[mark][:count]

    # ------------------------------------------------------------------------------------ rows are given out again

    def row_words(self, seq: int) -> list[int]:
        """The words of a batch's rows."""
        entry = Board.entry_at(seq)
        table = self._words[entry + Entry.ROW_WORDS]
        return self._all_words[table : table + self._words[entry + Entry.NUM_ROWS]].tolist()

    def give_out(self, seq: int, row: int, rows: int, *, tries: int) -> None:
        """Rows go to a worker once more: whoever had them before does not count any more."""
        table = self._words[Board.entry_at(seq) + Entry.ROW_WORDS]
        for at in range(table + row, table + row + rows):
            self._all_words[at] = -tries

    def settle(self, seq: int, row: int, rows: int) -> bool:
        """Take rows out of the hands of all workers: nobody will bring them. Whether none is left; under the lock."""
        entry = Board.entry_at(seq)
        table = self._words[entry + Entry.ROW_WORDS]
        for at in range(table + row, table + row + rows):
            self._all_words[at] = TOLD
        self._words[entry + Entry.ROWS_DONE] += rows
        self._words[entry + Entry.FAILED] = 1
        return bool(self._words[entry + Entry.ROWS_DONE] == self._words[entry + Entry.NUM_ROWS])

    def num_quiet(self, seq: int) -> int:
        """Rows that are done with no answer of their own."""
        return self._words[Board.entry_at(seq) + Entry.QUIET_ROWS]

    def recount(self, seq: int) -> Recount:
        """Count a batch's rows from their words: a dead worker may have left counters half changed; under the lock."""
        entry, state = Board.entry_at(seq), self.row_words(seq)
        done, quiet = sum(word > 0 for word in state), state.count(QUIET)
        last = self._words[entry + Entry.LAST] - 1
        self._words[entry + Entry.ROWS_DONE] = done
        self._words[entry + Entry.QUIET_ROWS] = quiet
        if done < len(state):
            self._words[entry + Entry.LAST] = 0
        return Recount(done, quiet, last)

    def reopen(self, seq: int, rows: int, *, is_quiet_told: bool) -> tuple[int, int] | None:
        """Rows that were counted as failed will be given out once more; under the lock.

        Returns (worker, rows): the quiet rows that this worker has yet to tell of, because it finished the batch: from
        now on they count as told of, so that nobody does so twice.
        """
        entry, owed = Board.entry_at(seq), None
        last, quiet = self._words[entry + Entry.LAST], self._words[entry + Entry.QUIET_ROWS]
        if last or is_quiet_told:
            if quiet and not is_quiet_told:
                owed = (last - 1, quiet)
            table = self._words[entry + Entry.ROW_WORDS]
            for at in range(table, table + self._words[entry + Entry.NUM_ROWS]):
                if self._all_words[at] == QUIET:
                    self._all_words[at] = TOLD
            self._words[entry + Entry.QUIET_ROWS] = 0
        self._words[entry + Entry.ROWS_DONE] -= rows
        self._words[entry + Entry.LAST] = 0
        self._words[entry + Entry.FAILED] = 0
        return owed

    def put(self, seq: int, row: int, word: int) -> bool:
        """A row that failed has a sample after all: `TOLD`, or a block. Whether no row is left; under the lock."""
        entry = Board.entry_at(seq)
        self._all_words[self._words[entry + Entry.ROW_WORDS] + row] = word
        self._words[entry + Entry.FAILED] = 0
        return bool(self._words[entry + Entry.ROWS_DONE] == self._words[entry + Entry.NUM_ROWS])

    def fail(self, seq: int) -> None:
        """A batch fails as a whole: nobody collates it."""
        self._words[Board.entry_at(seq) + Entry.FAILED] = 1
