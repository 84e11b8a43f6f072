"""Rows of a batch are given out once more, one by one where one of them is suspected, or taken out of all hands."""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.errors import InternalError

from ..epoch import Batch, Issuing
from ..memory import BUSY, GENERAL, NO_SAMPLE, TOLD, Answer, Board, Head, Record, Result
from ..pool import Pool

_log = logging.getLogger(__name__)

# a live worker holds the lock for microseconds; one that is stopped inside it is found by its age
LOCK_PATIENCE_S = 0.5
_LONG_PATIENCE_S = 10.0
# a chunk in nobody's hands is believed lost when it is so twice, this far apart: taking one takes microseconds
_SWEEP_EVERY_S = 0.1


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


class TriedAlone:
    """Samples under suspicion, given out one at a time.

    Threads die together, each with a sample in hand, and only one of those is guilty.
    """

    def __init__(self, issuing: Issuing, claims: Claims, again: RowsAgain) -> None:
        self._scheduler, self._claims, self._again = issuing.scheduler, claims, again
        self._words, self._ledger = issuing.pool.board.words, issuing.pool.ledger
        self.waiting: deque[tuple[int, int, int]] = deque()  # batch, row, rows: not sent yet
        self._alone: tuple[int, int, int] | None = None

    def add(self, batch: Batch, row: int, rows: int) -> None:
        """Try rows alone, once it is their turn; they are cut out of their chunk, though not sent yet."""
        self.waiting.append((batch.seq, row, rows))
        self._scheduler.issue_again(batch, row, rows)

    def judge(self, claims: list[Claim]) -> list[Claim]:
        """Where one of the claims of workers that died was tried alone, it is the one; the others are innocent."""
        if not any(self._is_alone(claim) for claim in claims):
            return claims
        judged = [claim if self._is_alone(claim) else replace(claim, position=NO_SAMPLE) for claim in claims]
        self._alone = None
        return judged

    def _is_alone(self, claim: Claim) -> bool:
        return self._alone is not None and self._alone[:2] == (claim.seq, claim.row)

    def give_next(self) -> None:
        """Give out the next sample under suspicion, once the one before it is done."""
        if self._alone is not None and not self._is_done(*self._alone):
            return
        self._alone = None
        if self.waiting:
            self._words[Head.HOLD] = 1
            if self._claims.all():
                return  # until the others have finished what they have in hand
        while self.waiting and self._alone is None:
            seq, row, rows = self.waiting.popleft()
            batch = self._scheduler.batches.get(seq)
            if batch is None or batch.is_settled:
                continue
            if batch.is_cancelled:
                with self._again.locked():
                    self._again.drop(batch, row, rows)
                continue
            self._alone = (seq, row, rows)
            self._again.give_out(batch, row, rows, is_alone=True)
        if self._alone is None:
            self._words[Head.HOLD] = 0

    def _is_done(self, seq: int, row: int, rows: int) -> bool:
        batch = self._scheduler.batches.get(seq)
        if batch is None or batch.is_settled:
            return True
        return not batch.is_whole and all(word > 0 for word in self._ledger.row_words(seq)[row : row + rows])


class Sweep:
    """Finds by elimination what a worker had taken and not yet noted when it died.

    Such work is in no pipe, in no worker's record, and not done.
    """

    def __init__(self, issuing: Issuing, claims: Claims, again: RowsAgain, tried_alone: TriedAlone) -> None:
        self._pool, self._scheduler, self._claims = issuing.pool, issuing.scheduler, claims
        self._again, self._tried_alone = again, tried_alone
        self._suspects: set[tuple[int, int]] = set()
        self._sweep_at = 0.0

    def look(self) -> None:
        """Give out again what is in nobody's hands. Cheap until it is due."""
        now = time.monotonic()
        if not self._pool.board.words[Head.LOSSES] or now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_EVERY_S
        waiting = {(work.seq, work.row) for work in self._pool.pipes.unread()}
        claims = self._claims.all()
        in_hand = {claim.seq for claim in claims}
        waiting |= {(seq, row) for seq, row, _ in self._tried_alone.waiting}
        suspects: dict[tuple[int, int], tuple[Batch, int]] = {}
        for batch in self._scheduler.batches.values():
            if batch.worker >= 0 or batch.is_settled:
                continue
            for row, rows in self._undone(batch):
                taken = any(c.seq == batch.seq and c.row < row + max(1, rows) and row < c.row + c.rows for c in claims)
                if (batch.seq, row) not in waiting and not taken and not (rows == 0 and batch.seq in in_hand):
                    suspects[batch.seq, row] = (batch, rows)
        lost = {key: found for key, found in suspects.items() if key in self._suspects}
        self._suspects = set(suspects) - set(lost)
        if not lost:
            return
        with self._pool.lock.within(LOCK_PATIENCE_S) as is_held:
            for (seq, row), (batch, rows) in lost.items() if is_held else ():
                _log.debug("rows %d to %d of batch %d are in nobody's hands: given out again", row, row + rows, seq)
                if not rows:
                    self._pool.pipes.send_urgent(self._scheduler.collate_again(batch))
                elif batch.is_cancelled:
                    self._again.drop(batch, row, rows)
                else:
                    self._again.give_out(batch, row, rows)

    def _undone(self, batch: Batch) -> list[tuple[int, int]]:
        """Rows that wait for a worker, as (first, count); (0, 0) stands for the collation."""
        if batch.is_whole:
            return [(0, batch.num_rows)]
        if batch.is_general and not batch.rows_left:
            return [(0, 0)]
        state = self._pool.ledger.row_words(batch.seq)
        found = []
        for first, (rows, _, _) in batch.chunks.items():
            found += runs([row for row in range(first, first + rows) if state[row] <= 0])
        return found


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
