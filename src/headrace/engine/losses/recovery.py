"""What a lost worker leaves behind: find what it owed, and put right what it left half done.

A worker may die between any two instructions. What it had taken is in its record; what it had finished is in the words
of the rows; the counters of a batch are counted anew from those words, under the lock that died with it. A chunk that
was taken but not yet noted in the record is found by elimination: it is in no pipe, in nobody's hands, and not done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..epoch import Batch, Scheduler
from ..memory import GENERAL, QUIET, TOLD, Answer, Board, Entry, Head, Record, Result, mark_told, split_place
from ..pool import Loss, Pool
from .allowance import Allowance, loss_cost
from .claims import Claim, Claims
from .collation_losses import CollationLosses
from .rows_again import RowsAgain
from .runs import runs, split
from .sweeping import Sweep
from .tried_alone import Apart

# a live worker holds the lock for microseconds; one that is stopped inside it is found by its age
_LOCK_PATIENCE_S = 0.5
# a sample that took its worker with it this often is guilty; before that, somebody else may have killed the worker
MOST_LOSSES = 3


@dataclass(frozen=True)
class Guilty:
    """A sample that its workers did not survive, or the collation of a batch."""

    batch: Batch
    row: int
    loss: Loss
    losses: int
    rows: int = 1  # that nobody will bring any more
    is_collation: bool = False


class Recovery:
    """Makes losses good. The training process's side; `note` takes an answer into account."""

    def __init__(self, pool: Pool, scheduler: Scheduler, note: Callable[[Result], None]) -> None:
        self._pool, self._scheduler, self._note = pool, scheduler, note
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self._lock = pool.lock
        self._counts: dict[int, int] = {}  # position in the epoch: workers lost with that sample in hand
        self._collations = CollationLosses(MOST_LOSSES)
        self.num_losses = 0
        self._allowance = Allowance()
        self.claims = Claims(pool)
        self.again = RowsAgain(pool, scheduler, note)
        self.apart = Apart(pool, scheduler, self.claims, self.again, note)
        self.sweep = Sweep(pool, scheduler, self.claims, self.again, self.apart, note)

    def start_epoch(self) -> None:
        self._counts.clear()
        self._collations.clear()

    def bears(self, loss: Loss) -> bool:
        """Whether this loss may be made good; False: workers die faster than they work."""
        records = [Board.record_at(worker) for worker in range(self._pool.most_workers)]
        return self._allowance.lose(
            loss_cost(self._pool, loss),
            num_workers=self._pool.num_workers,
            samples_done=sum(self._words[at + Record.SAMPLES_DONE] for at in records),
        )

    def batch_of(self, seq: int) -> Batch | None:
        return self._scheduler.batches.get(seq)

    def take_over(self, loss: Loss) -> list[Guilty] | None:
        """Put right what dead workers left, replace them, and give out again what they owed.

        Returns what is guilty of too many losses; None where the lock could not be had: try again.
        """
        self._words[Head.LOSSES] += 1  # before anything is given out twice: workers check from here on
        self._scheduler.keeps_samples = True
        claims = [claim for worker in loss.workers if (claim := self.claims.of(worker)) is not None]
        if not self._lock.try_for(_LOCK_PATIENCE_S):
            return None
        try:
            for result in self._pool.pipes.receive():
                self._note(result)
            self._collations.count(claims)
            judged = self.apart.judge(claims)
            lost = [self._mend(batch, judged, loss) for batch in [*self._scheduler.batches.values()]]
            # those that were given up and not released yet too: a slot freed twice would be in two batches
            held = {self.again.place(batch) for batch in [*self._scheduler.batches.values(), *self._scheduler.dropped]}
            self._pool.board.free_unreferenced_slots({split_place(p)[1] for p in held if p >= 0})
        finally:
            self._lock.release()
        for worker in loss.workers:
            self._pool.region_of(worker).free_untold()
        self.num_losses += 1
        return [guilty for rows in lost for guilty in rows]

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
            if batch.is_general and batch.failure is None and self._collations.is_doomed(batch.seq):
                return [Guilty(batch, 0, loss, MOST_LOSSES, rows=0, is_collation=True)]
            self.again.finish_for(batch, quiet)
        return [g for claim, rows in zip(mine, lost, strict=True) for g in self._give_again(batch, rows, claim, loss)]

    def _lost_rows(self, batch: Batch, claim: Claim, table: int) -> list[tuple[int, int]]:
        """The rows of a dead worker's chunk that are not done, as (first, count); the others are told of for it."""
        words, is_general = self._all_words, self.again.place(batch) == GENERAL
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
        return runs(missing)

    def _give_again(self, batch: Batch, rows: list[tuple[int, int]], claim: Claim, loss: Loss) -> list[Guilty]:
        """Give lost rows out again, the ones under suspicion apart from the others."""
        guilty: list[Guilty] = []
        for row, count in rows:
            if batch.is_cancelled:
                self.again.settle(batch, row, count)
                self._note(Result(batch.seq, 0, row, count, claim.worker, Answer.DROPPED))
                continue
            if self._collations.is_doomed(batch.seq):
                self.again.settle(batch, row, count)
                guilty.append(Guilty(batch, row, loss, MOST_LOSSES, rows=count, is_collation=True))
                continue
            suspect, span = self._suspect(batch, claim)
            if batch.is_whole:
                guilty += self._give_whole_again(batch, suspect, span, loss)
                continue
            for first, number in split(row, count, suspect, span):
                is_suspected = suspect <= first < suspect + span
                position = batch.position_of(first)
                is_proven = is_suspected and span == 1  # several in hand: one of them is guilty, nobody knows which
                if is_proven:
                    self._counts[position] = self._counts.get(position, 0) + 1
                if is_proven and self._counts[position] >= MOST_LOSSES:
                    self.again.settle(batch, first, number)
                    guilty.append(Guilty(batch, first, loss, self._counts[position]))
                elif is_suspected and len(loss.workers) > 1:
                    self.apart.add(batch, first, number)
                else:
                    self.again.give_out(batch, first, number)
        return guilty

    def _give_whole_again(self, batch: Batch, suspect: int, span: int, loss: Loss) -> list[Guilty]:
        """A batch that must not be split: at its second try its samples are fetched alone first, to find the one."""
        if span == 1:
            position = batch.position_of(suspect)
            self._counts[position] = self._counts.get(position, 0) + 1
            if self._counts[position] >= MOST_LOSSES:
                return [Guilty(batch, suspect, loss, self._counts[position])]
        if suspect >= 0 and len(loss.workers) > 1:
            self.apart.add(batch, 0, batch.num_rows)
        else:
            self.again.give_out(batch, 0, batch.num_rows)
        return []

    def _suspect(self, batch: Batch, claim: Claim) -> tuple[int, int]:
        """The rows that were in hand when the worker died, (first, count); (-1, 0) where none was."""
        if claim.position < 0:
            return -1, 0
        if batch.is_whole:
            return claim.position - batch.first_position, claim.span
        _, _, shift = batch.chunks[max(first for first in batch.chunks if first <= claim.row)]
        row = claim.position - batch.first_position - shift
        return row, min(claim.span, batch.num_rows - row)
