"""What a lost worker leaves behind: find what it owed, and put right what it left half done.

A worker may die between any two instructions. What it had taken is in its record; what it had finished is in the words
of the rows; the counters of a batch are counted anew from those words, under the lock that died with it. A chunk that
was taken but not yet noted in the record is found by elimination: it is in no pipe, in nobody's hands, and not done.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..epoch import Batch, Issuing
from ..memory import COLLATING, STARTING, TOLD, Answer, Board, Head, Record, Result, mark_told, split_place
from ..pool import Loss
from .rows_again import LOCK_PATIENCE_S, Claim, Claims, RowsAgain, Sweep, TriedAlone, runs, split

# a sample that took its worker with it this often is guilty; before that, somebody else may have killed the worker
MOST_LOSSES = 3
# what gives a loss back: finished samples, and time
_SAMPLES_FOR_A_LOSS, _SECONDS_FOR_A_LOSS = 8, 10.0


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
    """Makes losses good. The training process's side."""

    def __init__(self, issuing: Issuing) -> None:
        pool = issuing.pool
        self._pool, self._scheduler, self._issuing = pool, issuing.scheduler, issuing
        self._words, self._ledger, self._lock = pool.board.words, pool.ledger, pool.lock
        self._all_words = pool.arena.bytes.cast("q")
        self._counts: dict[int, int] = {}  # position in the epoch: workers lost with that sample in hand
        self._collations = CollationLosses(MOST_LOSSES)
        self.num_losses = 0
        self._allowance = Allowance()
        self.claims = Claims(pool)
        self.again = RowsAgain(issuing)
        self._tried_alone = TriedAlone(issuing, self.claims, self.again)
        self._sweep = Sweep(issuing, self.claims, self.again, self._tried_alone)

    def start_epoch(self) -> None:
        self._counts.clear()
        self._collations.clear()

    def bears(self, loss: Loss) -> bool:
        """Whether this loss may be made good; False: workers die faster than they work."""
        records = [Board.record_at(worker) for worker in range(self._pool.most_workers)]
        # one that never began will hardly begin the next time
        has_begun = self._words[Board.record_at(loss.workers[0]) + Record.STATE] != STARTING
        return self._allowance.lose(
            1.0 if has_begun else 4.0,
            num_workers=self._pool.num_workers,
            samples_done=sum(self._words[at + Record.SAMPLES_DONE] for at in records),
        )

    def batch_of(self, seq: int) -> Batch | None:
        return self._scheduler.batches.get(seq)

    def note_loss(self) -> None:
        """Something may be given out twice: workers check from here on, and samples are kept until batches leave."""
        self._words[Head.LOSSES] += 1
        self._scheduler.keeps_samples = True

    def look_for_work(self) -> None:
        """After a loss: give out what is to be tried alone, and what is in nobody's hands."""
        self._tried_alone.give_next()
        self._sweep.look()

    def take_over(self, loss: Loss) -> list[Guilty] | None:
        """Put right what dead workers left, and give out again what they owed; all their answers must be noted.

        Returns what is guilty of too many losses; None where the lock could not be had: try again.
        """
        self.note_loss()
        claims = [claim for worker in loss.workers if (claim := self.claims.of(worker)) is not None]
        with self._lock.within(LOCK_PATIENCE_S) as is_held:
            if not is_held:
                return None
            self._collations.count(claims)
            judged = self._tried_alone.judge(claims)
            lost = [self._mend(batch, judged, loss) for batch in [*self._scheduler.batches.values()]]
            # those that were given up and not released yet too: a slot freed twice would be in two batches
            batches = [*self._scheduler.batches.values(), *self._scheduler.dropped]
            held = {self._ledger.place_of(batch.seq) for batch in batches}
            self._pool.board.free_unreferenced_slots({split_place(p)[1] for p in held if p >= 0})
        for worker in loss.workers:
            self._pool.region_of(worker).free_untold()
        self.num_losses += 1
        return [guilty for rows in lost for guilty in rows]

    def _mend(self, batch: Batch, claims: list[Claim], loss: Loss) -> list[Guilty]:
        """Put a batch right: rows that are done stay done, rows that the dead owed go out again."""
        if batch.worker >= 0 or batch.is_settled:
            return []
        if batch.owed is not None and batch.owed[0] in loss.workers:
            self._issuing.note(Result(batch.seq, 0, 0, batch.owed[1], batch.owed[0], Answer.ROWS))
        mine = [claim for claim in claims if claim.seq == batch.seq]
        if batch.is_whole:
            return self._give_again(batch, [(0, batch.num_rows)], mine[0], loss) if mine else []
        lost = [self._lost_rows(batch, claim) for claim in mine]
        done, quiet, last = self._ledger.recount(batch.seq)
        if done == batch.num_rows and (last in loss.workers or last < 0):
            if batch.is_general and batch.failure is None and self._collations.is_doomed(batch.seq):
                return [Guilty(batch, 0, loss, MOST_LOSSES, rows=0, is_collation=True)]
            self.again.finish_for(batch, quiet)
        return [g for claim, rows in zip(mine, lost, strict=True) for g in self._give_again(batch, rows, claim, loss)]

    def _lost_rows(self, batch: Batch, claim: Claim) -> list[tuple[int, int]]:
        """The rows of a dead worker's chunk that are not done, as (first, count); the others are told of for it."""
        words = self._ledger.row_words(batch.seq)
        missing: list[int] = []
        row, end = claim.row, min(claim.row + claim.rows, batch.num_rows)
        while row < end:
            word, rows = words[row], 1
            if word > TOLD and not batch.is_told(row):
                # its samples are whole in a block, only the answer is missing
                while row + rows < end and words[row + rows] == TOLD and not batch.is_told(row + rows):
                    rows += 1
                mark_told(self._all_words, word)
                self._issuing.note(Result(batch.seq, word, row, rows, claim.worker, Answer.SHARED))
            elif word <= 0 or (word == TOLD and not batch.is_told(row)):  # counted, and what was to be told is lost
                missing.append(row)
            row += rows
        return runs(missing)

    def _give_again(self, batch: Batch, rows: list[tuple[int, int]], claim: Claim, loss: Loss) -> list[Guilty]:
        """Give lost rows out again, the ones under suspicion apart from the others."""
        guilty: list[Guilty] = []
        for row, count in rows:
            if batch.is_cancelled:
                self.again.drop(batch, row, count, worker=claim.worker)
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
                    self._tried_alone.add(batch, first, number)
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
            self._tried_alone.add(batch, 0, batch.num_rows)
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


class CollationLosses:
    """How far the collation of a batch is to blame for workers that were lost. Pure; batches by their numbers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: dict[int, int] = {}  # batch: parts of blame, `most` of them for a loss that was its own
        self._doomed: set[int] = set()

    def count(self, claims: Sequence[Claim]) -> None:
        """A process is gone in which workers had this in hand.

        Beside a thread that had a sample in hand, or collated too, a collation is one of several that may be guilty:
        such a loss counts for a part, else two that collate at once would be condemned for one of them. Where they
        die together again and again, the last of them is condemned alone: it keeps no other from the loop.
        """
        num_suspects = sum(claim.position >= 0 or claim.position == COLLATING for claim in claims)
        parts = 1 if num_suspects > 1 else self._most
        collating = [claim.seq for claim in claims if claim.position == COLLATING]
        for seq in collating:
            self._parts[seq] = self._parts.get(seq, 0) + parts
        to_blame = [seq for seq in collating if self._parts[seq] >= self._most**2]
        self._doomed.update([max(to_blame)] if to_blame else [])

    def is_doomed(self, seq: int) -> bool:
        """Whether its collation took worker after worker: no sample can be left out for that."""
        return seq in self._doomed

    def clear(self) -> None:
        self._parts.clear()
        self._doomed.clear()
