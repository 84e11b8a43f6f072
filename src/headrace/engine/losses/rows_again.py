"""Rows of a batch are given out once more, or taken out of the hands of all workers."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import InternalError

from ..epoch import Batch, Issuing
from ..memory import BUSY, GENERAL, TOLD, Answer, Board, Head, Record, Result
from ..pool import Pool

# a live worker holds the lock for microseconds; one that is stopped inside it is found by its age
LOCK_PATIENCE_S = 0.5
_LONG_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Claim:
    """What a worker has in hand, by its own record."""

    worker: int
    seq: int
    row: int
    rows: int
    position: int  # NO_SAMPLE: not yet, or no more; COLLATING: a batch
    span: int


class Claims:
    """Reads the records of a pool's workers."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._words = pool, pool.board.words

    def of(self, worker: int) -> Claim | None:
        w, at = self._words, Board.record_at(worker)
        if w[at + Record.STATE] != BUSY or w[at + Record.SEQ] < 0:
            return None
        parts = (Record.SEQ, Record.ROW, Record.ROWS, Record.POSITION, Record.SPAN)
        return Claim(worker, *(w[at + part] for part in parts))

    def all(self) -> list[Claim]:
        return [claim for worker in range(self._pool.most_workers) if (claim := self.of(worker)) is not None]

    def is_in_hand(self, seq: int) -> bool:
        """Whether a worker may still write into a batch: one whose chunk was given out twice."""
        return bool(self._words[Head.LOSSES]) and any(claim.seq == seq for claim in self.all())


class RowsAgain:
    """Changes who owes which rows, on the board and in the scheduler."""

    def __init__(self, issuing: Issuing) -> None:
        self._pool, self._scheduler, self._issuing = issuing.pool, issuing.scheduler, issuing
        self._ledger = issuing.pool.ledger

    def give_out(self, batch: Batch, row: int, rows: int, *, is_alone: bool = False) -> None:
        """Give rows to the next free worker, as a new try."""
        work = self._scheduler.issue_again(batch, row, rows)
        self._ledger.give_out(batch.seq, row, rows, tries=batch.chunks[row][1])
        if self._pool.plan.in_threads and not is_alone:
            self._pool.pipes.send_first(work)  # what is urgent runs alone there
        else:
            self._pool.pipes.send_urgent(work)

    def settle(self, batch: Batch, row: int, rows: int) -> None:
        """Take rows out of the hands of all workers: nobody will bring them. Call it under the lock."""
        if not batch.is_whole and self._ledger.settle(batch.seq, row, rows):
            self.finish_for(batch, self._ledger.num_quiet(batch.seq))

    def drop(self, batch: Batch, row: int, rows: int, *, worker: int = 0) -> None:
        """The same for rows of a batch that was given up; call it under the lock."""
        self.settle(batch, row, rows)
        self._issuing.note(Result(batch.seq, 0, row, rows, worker, Answer.DROPPED))

    def finish_for(self, batch: Batch, quiet: int) -> None:
        """All rows are done, and the worker that should have told so is gone."""
        if batch.is_general:
            self._collate_again(batch)
        elif quiet and not batch.is_quiet_told:
            self._issuing.note(Result(batch.seq, 0, 0, quiet, 0, Answer.ROWS))

    def _collate_again(self, batch: Batch) -> None:
        if not batch.collated and batch.failure is None:
            self._pool.pipes.send_urgent(self._scheduler.collate_again(batch))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Workers hold it for microseconds; one that is stopped inside it is a hang of its own."""
        with self._pool.lock.within(_LONG_PATIENCE_S) as is_held:
            if not is_held:
                what = "a worker holds the lock of the board and does not let go"
                raise InternalError(what, after=f"{_LONG_PATIENCE_S} s")
            yield

    def retry(self, batch: Batch, row: int, rows: int) -> None:
        """Give a row that failed (or a whole batch) out once more, as if nobody had tried it."""
        if batch.is_whole:
            self.give_out(batch, 0, batch.num_rows)
            return
        with self.locked():
            owed = self._ledger.reopen(batch.seq, rows, is_quiet_told=batch.is_quiet_told)
            self._scheduler.owe_quiet_rows(batch, owed)
            self.give_out(batch, row, rows)

    def put(self, batch: Batch, row: int, block: int) -> None:
        """Use a sample in a block for a row that failed."""
        is_general = self._ledger.place_of(batch.seq) == GENERAL
        with self.locked():
            self._scheduler.put(batch, row, block, is_general=is_general)
            # who finished the last row saw a failure and left it at that
            if self._ledger.put(batch.seq, row, block if is_general else TOLD) and is_general:
                self._collate_again(batch)


def runs(rows: list[int]) -> list[tuple[int, int]]:
    """Neighbouring rows as (first, count)."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs


def split(row: int, count: int, suspect: int, span: int) -> list[tuple[int, int]]:
    """Cut lost rows so that those under suspicion stand apart: one sample alone, several in two halves."""
    begin, end = max(row, suspect), min(row + count, suspect + span)
    if begin >= end:
        return [(row, count)]
    middle = begin + (end - begin + 1) // 2
    pieces = [(row, begin), (begin, middle), (middle, end), (end, row + count)]
    return [(first, last - first) for first, last in pieces if last > first]
