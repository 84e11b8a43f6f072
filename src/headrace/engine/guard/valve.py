"""Lets workers go on that wait for room in the budget, where nothing else would ever make any.

It should never be needed: batches are delivered in order, and the next one always has room. But what is given out
again, after a loss or an error, may stand in the pipe behind workers that wait. To exceed the budget by a few samples
is bad; to stand still is worse.
"""

from __future__ import annotations

import logging
import time

from ..epoch import Scheduler
from ..memory import BUSY, Board, Head, Record
from ..pool import Pool

_log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
# while somebody waits for room, the loop looks this often
LOOK_EVERY_S = 0.1


class Valve:
    """Looks at workers that wait for room while the loop waits for a batch."""

    def __init__(self, pool: Pool, scheduler: Scheduler) -> None:
        self._pool, self._scheduler, self._words = pool, scheduler, pool.board.words
        self._seen: tuple[int, int, int] | None = None
        self._since_s = 0.0
        self._trimmed_for = -1

    @property
    def is_watching(self) -> bool:
        """Whether any worker waits for room."""
        return any(self._words[at + Record.WAITS] for at in self._records())

    def _records(self) -> list[int]:
        return [Board.record_at(worker) for worker in range(self._pool.most_workers)]

    def look(self) -> None:
        """The loop waits: if workers wait for room and nobody works on its batch, let them pass."""
        if not self._scheduler.order or not self.is_watching:
            self._seen = None
            return
        words, head = self._words, self._scheduler.batches[self._scheduler.order[0]]
        if self._trimmed_for != head.seq:
            self._trimmed_for = head.seq
            self._pool.trim()  # what others keep for reuse is room too
        works = [
            at
            for at in self._records()
            if words[at + Record.STATE] == BUSY and words[at + Record.SEQ] == head.seq and not words[at + Record.WAITS]
        ]
        seen = (head.seq, head.rows_left, sum(words[at + Record.SAMPLES_DONE] for at in self._records()))
        now = time.monotonic()
        if works or seen != self._seen:
            self._seen, self._since_s = seen, now
        elif now > self._since_s + _PATIENCE_S:
            _log.debug("workers wait for room in the budget, and nobody works on batch %d: they go on", head.seq)
            words[Head.OPEN] = 1

    def shut(self) -> None:
        """A batch was delivered: the budget holds again."""
        self._words[Head.OPEN] = 0
