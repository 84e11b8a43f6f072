"""What a lost worker leaves behind: find what it owed, and put right what it left half done.

A worker may die between any two instructions. What it had taken is in its record; what it had finished is in the words
of the rows; the counters of a batch are counted anew from those words, under the lock that died with it. A chunk that
was taken but not yet noted in the record is found by elimination: it is in no pipe, in nobody's hands, and not done.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..errors import InternalError
from .blocks import mark_told
from .board import BUSY, GENERAL, QUIET, STARTING, TOLD, Board, Entry, Head, Record, split_place
from .messages import Answer, Result
from .pool import Loss, Pool
from .scheduler import Batch, Scheduler

_log = logging.getLogger(__name__)

# a live worker holds the lock for microseconds; one that is stopped inside it is found by its age
_LOCK_PATIENCE_S = 0.5
_LONG_PATIENCE_S = 10.0
# a chunk in nobody's hands is believed lost when it is so twice, this far apart: taking one takes microseconds
_SWEEP_EVERY_S = 0.1
# a sample that took its worker with it this often is guilty; before that, somebody else may have killed the worker
MOST_LOSSES = 3
_SAMPLES_FOR_A_LOSS, _SECONDS_FOR_A_LOSS = 8, 10.0


@dataclass(frozen=True)
class Claim:
    """What a worker had in hand."""

    worker: int
    seq: int
    row: int
    rows: int
    position: int  # -1: no sample yet, or no more
    span: int

    def as_innocent(self) -> Claim:
        return replace(self, position=-1)


@dataclass(frozen=True)
class Guilty:
    """A sample that its workers did not survive."""

    batch: Batch
    row: int
    loss: Loss
    losses: int


class Allowance:
    """How many losses are borne: each costs one; finished samples and time give them back."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._samples = 0
        self._at = time.monotonic()

    def lose(self, cost: float, *, num_workers: int, samples_done: int) -> bool:
        """Whether one more is borne."""
        now = time.monotonic()
        back = (samples_done - self._samples) / _SAMPLES_FOR_A_LOSS + (now - self._at) / _SECONDS_FOR_A_LOSS
        self._spent = max(0.0, self._spent - max(0.0, back)) + cost
        self._at, self._samples = now, samples_done
        return self._spent <= 10 + 4 * num_workers


class Recovery:
    """Makes losses good. The training process's side; `note` takes an answer into account."""

    def __init__(self, pool: Pool, scheduler: Scheduler, note: Callable[[Result], None]) -> None:
        self._pool, self._scheduler, self._note = pool, scheduler, note
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self._lock = pool.lock
        self._counts: dict[int, int] = {}  # position in the epoch: workers lost with that sample in hand
        self._suspects: set[tuple[int, int]] = set()
        self._sweep_at = 0.0
        # Threads die together, each with a sample in hand, and only one of those is guilty: they go out one at a time.
        self._apart: deque[tuple[int, int, int]] = deque()  # batch, row, rows
        self._alone: tuple[int, int, int] | None = None
        self.num_losses = 0
        self._allowance = Allowance()

    def start_epoch(self) -> None:
        self._counts.clear()

    def bears(self, loss: Loss) -> bool:
        """Whether this loss may be made good; False: workers die faster than they work."""
        records = [Board.record_at(worker) for worker in range(self._pool.most_workers)]
        return self._allowance.lose(
            # one that never began will hardly begin the next time
            4.0 if self._words[Board.record_at(loss.workers[0]) + Record.STATE] == STARTING else 1.0,
            num_workers=self._pool.num_workers,
            samples_done=sum(self._words[at + Record.SAMPLES_DONE] for at in records),
        )

    # ------------------------------------------------------------------------------------ a loss

    def claim_of(self, worker: int) -> Claim | None:
        """What a worker has in hand, by its record."""
        w, at = self._words, Board.record_at(worker)
        if w[at + Record.STATE] != BUSY or w[at + Record.SEQ] < 0:
            return None
        return Claim(
            worker,
            w[at + Record.SEQ],
            w[at + Record.ROW],
            w[at + Record.ROWS],
            w[at + Record.POSITION],
            w[at + Record.SPAN],
        )

    def batch_of(self, seq: int) -> Batch | None:
        return self._scheduler.batches.get(seq)

    def take_over(self, loss: Loss) -> list[Guilty] | None:
        """Put right what dead workers left, replace them, and give out again what they owed.

        Returns the samples that are guilty of too many losses; None where the lock could not be had: try again.
        """
        self._words[Head.LOSSES] += 1  # before anything is given out twice: workers check from here on
        claims = [claim for worker in loss.workers if (claim := self.claim_of(worker)) is not None]
        tried_alone = self._alone is not None and any(self._is_alone(claim) for claim in claims)
        if not self._lock.try_for(_LOCK_PATIENCE_S):
            return None
        try:
            for result in self._pool.receive():
                self._note(result)
            # where one was tried alone, it is the one; the others in hand are innocent
            judged = [claim if not tried_alone or self._is_alone(claim) else claim.as_innocent() for claim in claims]
            if tried_alone:
                self._alone = None
            lost = [self._mend(batch, judged, loss) for batch in [*self._scheduler.batches.values()]]
            # those that were given up and not released yet too: a slot freed twice would be in two batches
            held = {self._place(batch) for batch in [*self._scheduler.batches.values(), *self._scheduler.dropped]}
            self._pool.board.free_unreferenced_slots({split_place(p)[1] for p in held if p >= 0})
        finally:
            self._lock.release()
        for worker in loss.workers:
            self._pool.region_of(worker).free_untold()
        self.num_losses += 1
        return [guilty for rows in lost for guilty in rows]

    def _place(self, batch: Batch) -> int:
        return self._words[Board.entry_at(batch.seq) + Entry.PLACE]

    def _mend(self, batch: Batch, claims: list[Claim], loss: Loss) -> list[Guilty]:
        """Put a batch right: rows that are done stay done, rows that the dead owed go out again."""
        if batch.worker >= 0 or batch.is_settled:
            return []
        if batch.owed is not None and batch.owed[0] in loss.workers:
            self._note(Result(batch.seq, 0, 0, batch.owed[1], batch.owed[0], Answer.ROWS))
        mine = [claim for claim in claims if claim.seq == batch.seq]
        if batch.is_whole:
            return self._give_again(batch, [(0, batch.num_rows)], mine[0], loss) if mine else []
        entry = Board.entry_at(batch.seq)
        table = self._words[entry + Entry.ROW_WORDS]
        lost = [self._lost_rows(batch, claim, table) for claim in mine]
        state = self._all_words[table : table + batch.num_rows].tolist()
        done = sum(word > 0 for word in state)
        quiet = state.count(QUIET)
        self._words[entry + Entry.ROWS_DONE] = done
        self._words[entry + Entry.QUIET_ROWS] = quiet
        last = self._words[entry + Entry.LAST] - 1
        if done < batch.num_rows:
            self._words[entry + Entry.LAST] = 0
        elif last in loss.workers or last < 0:
            self._finish_for(batch, quiet)
        return [g for claim, rows in zip(mine, lost, strict=True) for g in self._give_again(batch, rows, claim, loss)]

    def _lost_rows(self, batch: Batch, claim: Claim, table: int) -> list[tuple[int, int]]:
        """The rows of a dead worker's chunk that are not done, as (first, count); the others are told of for it."""
        words, is_general = self._all_words, self._place(batch) == GENERAL
        missing: list[int] = []
        row, end = claim.row, min(claim.row + claim.rows, batch.num_rows)
        while row < end:
            word = words[table + row]
            if word > TOLD and not batch.is_told(row):
                # its samples are whole in a block, only the answer is missing
                rows = 1
                while row + rows < end and words[table + row + rows] == TOLD and not batch.is_told(row + rows):
                    rows += 1
                mark_told(words, word)
                self._note(Result(batch.seq, word, row, rows, claim.worker, Answer.SHARED))
                row += rows
                continue
            if word <= 0 or (word == TOLD and not batch.is_told(row) and not is_general):
                missing.append(row)
            row += 1
        return _runs(missing)

    def _finish_for(self, batch: Batch, quiet: int) -> None:
        """All rows are done, and the worker that should have told so is gone."""
        if batch.is_general:
            if not batch.collated and batch.failure is None:
                self._pool.send_urgent(self._scheduler.collate_again(batch))
        elif quiet and not batch.is_quiet_told:
            self._note(Result(batch.seq, 0, 0, quiet, 0, Answer.ROWS))

    def _give_again(self, batch: Batch, rows: list[tuple[int, int]], claim: Claim, loss: Loss) -> list[Guilty]:
        """Give lost rows out again, the ones under suspicion apart from the others."""
        guilty: list[Guilty] = []
        for row, count in rows:
            if batch.is_cancelled:
                self._settle(batch, row, count)
                self._note(Result(batch.seq, 0, row, count, claim.worker, Answer.DROPPED))
                continue
            suspect, span = self._suspect(batch, claim)
            if batch.is_whole:
                guilty += self._give_whole_again(batch, suspect, span, loss)
                continue
            for first, number in _split(row, count, suspect, span):
                is_suspected = suspect <= first < suspect + span
                position = batch.position_of(first)
                is_proven = is_suspected and span == 1  # several in hand: one of them is guilty, nobody knows which
                if is_proven:
                    self._counts[position] = self._counts.get(position, 0) + 1
                if is_proven and self._counts[position] >= MOST_LOSSES:
                    self._settle(batch, first, number)
                    guilty.append(Guilty(batch, first, loss, self._counts[position]))
                elif is_suspected and len(loss.workers) > 1:
                    self._apart.append((batch.seq, first, number))
                    self._scheduler.issue_again(batch, first, number)  # cut out of its chunk, though not sent yet
                else:
                    self.give_out(batch, first, number)
        return guilty

    def _give_whole_again(self, batch: Batch, suspect: int, span: int, loss: Loss) -> list[Guilty]:
        """A batch that must not be split: at its second try its samples are fetched alone first, to find the one."""
        if span == 1:
            position = batch.position_of(suspect)
            self._counts[position] = self._counts.get(position, 0) + 1
            if self._counts[position] >= MOST_LOSSES:
                return [Guilty(batch, suspect, loss, self._counts[position])]
        self.give_out(batch, 0, batch.num_rows)
        return []

    def _is_alone(self, claim: Claim) -> bool:
        return self._alone is not None and self._alone[:2] == (claim.seq, claim.row)

    def give_next_apart(self) -> None:
        """Give out the next sample under suspicion, once the one before it is done."""
        if self._alone is not None and not self._is_done(*self._alone):
            return
        self._alone = None
        if self._apart:
            self._words[Head.HOLD] = 1
            if any(self.claim_of(worker) is not None for worker in range(self._pool.most_workers)):
                return  # until the others have finished what they have in hand
        while self._apart and self._alone is None:
            seq, row, rows = self._apart.popleft()
            batch = self._scheduler.batches.get(seq)
            if batch is None or batch.is_settled:
                continue
            if batch.is_cancelled:
                with self.locked():
                    self._settle(batch, row, rows)
                self._note(Result(seq, 0, row, rows, 0, Answer.DROPPED))
                continue
            self._alone = (seq, row, rows)
            self.give_out(batch, row, rows, is_alone=True)
        if self._alone is None:
            self._words[Head.HOLD] = 0

    def _is_done(self, seq: int, row: int, rows: int) -> bool:
        batch = self._scheduler.batches.get(seq)
        if batch is None or batch.is_settled:
            return True
        table = self._words[Board.entry_at(seq) + Entry.ROW_WORDS]
        return not batch.is_whole and all(word > 0 for word in self._all_words[table + row : table + row + rows])

    def _suspect(self, batch: Batch, claim: Claim) -> tuple[int, int]:
        """The rows that were in hand when the worker died, (first, count); (-1, 0) where none was."""
        if claim.position < 0:
            return -1, 0
        if batch.is_whole:
            return claim.position - batch.first_position, claim.span
        _, _, shift = batch.chunks[max(first for first in batch.chunks if first <= claim.row)]
        row = claim.position - batch.first_position - shift
        return row, min(claim.span, batch.num_rows - row)

    def give_out(self, batch: Batch, row: int, rows: int, *, is_alone: bool = False) -> None:
        """Give rows to the next free worker, as a new try."""
        work = self._scheduler.issue_again(batch, row, rows)
        tries = batch.chunks[row][1]
        table = self._words[Board.entry_at(batch.seq) + Entry.ROW_WORDS]
        for at in range(table + row, table + row + rows):
            self._all_words[at] = -tries
        if self._pool.plan.in_threads and not is_alone:
            self._pool.send_first(work)  # what is urgent runs alone there
        else:
            self._pool.send_urgent(work)

    def _settle(self, batch: Batch, row: int, rows: int) -> None:
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
            self._finish_for(batch, self._words[entry + Entry.QUIET_ROWS])

    # ------------------------------------------------------------------------------------ what was decided

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
        return self._place(batch) == GENERAL

    def retry(self, batch: Batch, row: int, rows: int) -> None:
        """Give a row that failed (or a whole batch) out once more, as if nobody had tried it."""
        entry = Board.entry_at(batch.seq)
        if batch.is_whole:
            self.give_out(batch, 0, batch.num_rows)
            return
        table = self._words[entry + Entry.ROW_WORDS]
        with self.locked():
            if last := self._words[entry + Entry.LAST]:
                # the quiet rows are told of already, or will be by who did the last one: not a second time
                if not batch.is_quiet_told:
                    batch.owed = (last - 1, self._words[entry + Entry.QUIET_ROWS])
                for at in range(table, table + batch.num_rows):
                    if self._all_words[at] == QUIET:
                        self._all_words[at] = TOLD
                self._words[entry + Entry.QUIET_ROWS] = 0
                batch.is_quiet_told = False
            self._words[entry + Entry.ROWS_DONE] -= rows
            self._words[entry + Entry.LAST] = 0
            self._words[entry + Entry.FAILED] = 0
            self.give_out(batch, row, rows)

    def lift_failure(self, batch: Batch) -> None:
        """A row that failed has a sample after all; call it under the lock."""
        entry = Board.entry_at(batch.seq)
        self._words[entry + Entry.FAILED] = 0
        is_done = self._words[entry + Entry.ROWS_DONE] == batch.num_rows
        # who finished the last row saw a failure and left it at that
        if is_done and self.is_general(batch) and not batch.collated and batch.failure is None:
            self._pool.send_urgent(self._scheduler.collate_again(batch))

    # ------------------------------------------------------------------------------------ by elimination

    def sweep(self) -> bool:
        """Find work that is in nobody's hands; whether any was given out again. Cheap until it is due."""
        now = time.monotonic()
        if not self._words[Head.LOSSES] or now < self._sweep_at:
            return False
        self._sweep_at = now + _SWEEP_EVERY_S
        waiting = {(work.seq, work.row) for work in self._pool.unread()}
        claims = [c for w in range(self._pool.most_workers) if (c := self.claim_of(w)) is not None]
        in_hand = {claim.seq for claim in claims}
        waiting |= {(seq, row) for seq, row, _ in self._apart}
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
        if not lost or not self._lock.try_for(_LOCK_PATIENCE_S):
            return False
        try:
            for (seq, row), (batch, rows) in lost.items():
                _log.debug("rows %d to %d of batch %d are in nobody's hands: given out again", row, row + rows, seq)
                self._give_found(batch, row, rows)
        finally:
            self._lock.release()
        return True

    def _give_found(self, batch: Batch, row: int, rows: int) -> None:
        if not rows:
            self._pool.send_urgent(self._scheduler.collate_again(batch))
        elif batch.is_cancelled:
            self._settle(batch, row, rows)
            self._note(Result(batch.seq, 0, row, rows, 0, Answer.DROPPED))
        else:
            self.give_out(batch, row, rows)

    def _undone(self, batch: Batch) -> list[tuple[int, int]]:
        """Rows that wait for a worker, as (first, count); (0, 0) stands for the collation."""
        if batch.is_whole:
            return [(0, batch.num_rows)]
        if batch.is_general and not batch.rows_left:
            return [(0, 0)]
        table = self._words[Board.entry_at(batch.seq) + Entry.ROW_WORDS]
        found = []
        for first, (rows, _, _) in batch.chunks.items():
            missing = [row for row in range(first, first + rows) if self._all_words[table + row] <= 0]
            found += _runs(missing)
        return found

    def is_in_hand(self, seq: int) -> bool:
        """Whether a worker may still write into a batch: one whose chunk was given out twice."""
        if not self._words[Head.LOSSES]:
            return False
        claims = (self.claim_of(worker) for worker in range(self._pool.most_workers))
        return any(claim is not None and claim.seq == seq for claim in claims)


def _runs(rows: list[int]) -> list[tuple[int, int]]:
    """Neighbouring rows as (first, count)."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs


def _split(row: int, count: int, suspect: int, span: int) -> list[tuple[int, int]]:
    """Cut lost rows so that those under suspicion stand apart: one sample alone, several in two halves."""
    begin, end = max(row, suspect), min(row + count, suspect + span)
    if begin >= end:
        return [(row, count)]
    middle = begin + (end - begin + 1) // 2
    pieces = [(row, begin), (begin, middle), (middle, end), (end, row + count)]
    return [(first, last - first) for first, last in pieces if last > first]
