"""Rows of a batch are given out once more, or taken out of the hands of all workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from headrace.errors import InternalError

from ..epoch import Batch, Scheduler
from ..memory import GENERAL, QUIET, TOLD, Answer, Board, Entry, Result
from ..pool import Pool

_LONG_PATIENCE_S = 10.0


class RowsAgain:
    """Changes who owes which rows, on the board and in the scheduler; `note` takes an answer into account."""

    def __init__(self, pool: Pool, scheduler: Scheduler, note: Callable[[Result], None]) -> None:
        self._pool, self._scheduler, self._note = pool, scheduler, note
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self._lock = pool.lock

    def place(self, batch: Batch) -> int:
        """Where a batch's rows go: its slot, or the general path."""
        return self._words[Board.entry_at(batch.seq) + Entry.PLACE]

    def give_out(self, batch: Batch, row: int, rows: int, *, is_alone: bool = False, shift: int | None = None) -> None:
        """Give rows to the next free worker, as a new try."""
        work = self._scheduler.issue_again(batch, row, rows, shift=shift)
        tries = batch.chunks[row][1]
        table = self._words[Board.entry_at(batch.seq) + Entry.ROW_WORDS]
        for at in range(table + row, table + row + rows):
            self._all_words[at] = -tries
        if self._pool.plan.in_threads and not is_alone:
            self._pool.pipes.send_first(work)  # what is urgent runs alone there
        else:
            self._pool.pipes.send_urgent(work)

    def settle(self, batch: Batch, row: int, rows: int) -> None:
        """Take rows out of the hands of all workers: nobody will bring them. Call it under the lock."""
        entry = Board.entry_at(batch.seq)
        if batch.is_whole:
            return
        table = self._words[entry + Entry.ROW_WORDS]
        for at in range(table + row, table + row + rows):
            self._all_words[at] = TOLD
        self._words[entry + Entry.ROWS_DONE] += rows
        self._words[entry + Entry.FAILED] = 1
        if self._words[entry + Entry.ROWS_DONE] == batch.num_rows:
            self.finish_for(batch, self._words[entry + Entry.QUIET_ROWS])

    def finish_for(self, batch: Batch, quiet: int) -> None:
        """All rows are done, and the worker that should have told so is gone."""
        if batch.is_general:
            if not batch.collated and batch.failure is None:
                self._pool.pipes.send_urgent(self._scheduler.collate_again(batch))
        elif quiet and not batch.is_quiet_told:
            self._note(Result(batch.seq, 0, 0, quiet, 0, Answer.ROWS))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Workers hold it for microseconds; one that is stopped inside it is a hang of its own."""
        if not self._lock.try_for(_LONG_PATIENCE_S):
            raise InternalError(
                "a worker holds the lock of the board and does not let go", after=f"{_LONG_PATIENCE_S} s"
            )
        try:
            yield
        finally:
            self._lock.release()

    def is_general(self, batch: Batch) -> bool:
        return self.place(batch) == GENERAL

    def retry(self, batch: Batch, row: int, rows: int, *, shift: int | None = None) -> None:
        """Give a row that failed (or a whole batch) out once more, as if nobody had tried it."""
        entry = Board.entry_at(batch.seq)
        if batch.is_whole:
            self.give_out(batch, 0, batch.num_rows)
            return
        table = self._words[entry + Entry.ROW_WORDS]
        with self.locked():
            last = self._words[entry + Entry.LAST]
            if last or batch.is_quiet_told:
                # the quiet rows are told of already, or will be by who did the last one: not a second time
                quiet = self._words[entry + Entry.QUIET_ROWS]
                if quiet and not batch.is_quiet_told:
                    batch.owed = (last - 1, quiet)
                for at in range(table, table + batch.num_rows):
                    if self._all_words[at] == QUIET:
                        self._all_words[at] = TOLD
                self._words[entry + Entry.QUIET_ROWS] = 0
                batch.is_quiet_told = False
            self._words[entry + Entry.ROWS_DONE] -= rows
            self._words[entry + Entry.LAST] = 0
            self._words[entry + Entry.FAILED] = 0
            self.give_out(batch, row, rows, shift=shift)

    def lift_failure(self, batch: Batch) -> None:
        """A row that failed has a sample after all; call it under the lock."""
        entry = Board.entry_at(batch.seq)
        self._words[entry + Entry.FAILED] = 0
        is_done = self._words[entry + Entry.ROWS_DONE] == batch.num_rows
        # who finished the last row saw a failure and left it at that
        if is_done and self.is_general(batch) and not batch.collated and batch.failure is None:
            self._pool.pipes.send_urgent(self._scheduler.collate_again(batch))
