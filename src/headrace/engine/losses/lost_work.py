"""Work that needs care after a loss: samples under suspicion, tried alone, and what is in nobody's hands."""

import logging
import time
from collections import deque
from dataclasses import replace

from ..epoch import Batch, Issuing
from ..memory import NO_SAMPLE, Head
from .rows_again import LOCK_PATIENCE_S, Claim, Claims, RowsAgain, runs

_log = logging.getLogger(__name__)

# a chunk in nobody's hands is believed lost when it is so twice, this far apart: taking one takes microseconds
_SWEEP_EVERY_S = 0.1


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
