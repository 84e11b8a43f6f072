"""Work that is in nobody's hands: in no pipe, in no worker's record, and not done."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..epoch import Batch, Scheduler
from ..memory import Answer, Board, Entry, Head, Result
from ..pool import Pool
from .claims import Claims
from .rows_again import RowsAgain
from .runs import runs
from .tried_alone import Apart

_log = logging.getLogger(__name__)

_LOCK_PATIENCE_S = 0.5
# a chunk in nobody's hands is believed lost when it is so twice, this far apart: taking one takes microseconds
_SWEEP_EVERY_S = 0.1


class Sweep:
    """Finds by elimination what a worker had taken and not yet noted when it died."""

    def __init__(
        self,
        pool: Pool,
        scheduler: Scheduler,
        claims: Claims,
        again: RowsAgain,
        apart: Apart,
        note: Callable[[Result], None],
    ) -> None:
        self._pool, self._scheduler, self._claims = pool, scheduler, claims
        self._again, self._apart, self._note = again, apart, note
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self._lock = pool.lock
        self._suspects: set[tuple[int, int]] = set()
        self._sweep_at = 0.0

    def look(self) -> bool:
        """Find work that is in nobody's hands; whether any was given out again. Cheap until it is due."""
        now = time.monotonic()
        if not self._words[Head.LOSSES] or now < self._sweep_at:
            return False
        self._sweep_at = now + _SWEEP_EVERY_S
        waiting = {(work.seq, work.row) for work in self._pool.pipes.unread()}
        claims = self._claims.all()
        in_hand = {claim.seq for claim in claims}
        waiting |= self._apart.waiting
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
            self._pool.pipes.send_urgent(self._scheduler.collate_again(batch))
        elif batch.is_cancelled:
            self._again.settle(batch, row, rows)
            self._note(Result(batch.seq, 0, row, rows, 0, Answer.DROPPED))
        else:
            self._again.give_out(batch, row, rows)

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
            found += runs(missing)
        return found
