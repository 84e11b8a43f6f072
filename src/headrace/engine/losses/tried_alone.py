"""Samples under suspicion, given out one at a time.

Threads die together, each with a sample in hand, and only one of those is guilty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..epoch import Batch, Scheduler
from ..memory import Answer, Board, Entry, Head, Result
from ..pool import Pool
from .claims import Claim, Claims
from .rows_again import RowsAgain


class Apart:
    """The samples that wait to be tried alone, and the one that is."""

    def __init__(
        self, pool: Pool, scheduler: Scheduler, claims: Claims, again: RowsAgain, note: Callable[[Result], None]
    ) -> None:
        self._scheduler, self._claims, self._again, self._note = scheduler, claims, again, note
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self._waiting: deque[tuple[int, int, int]] = deque()  # batch, row, rows
        self._alone: tuple[int, int, int] | None = None

    def add(self, batch: Batch, row: int, rows: int) -> None:
        """Try rows alone, once it is their turn; they are cut out of their chunk, though not sent yet."""
        self._waiting.append((batch.seq, row, rows))
        self._scheduler.issue_again(batch, row, rows)

    @property
    def waiting(self) -> set[tuple[int, int]]:
        """(batch, row) of what is not sent yet."""
        return {(seq, row) for seq, row, _ in self._waiting}

    def judge(self, claims: list[Claim]) -> list[Claim]:
        """Where one of the claims of workers that died was tried alone, it is the one; the others are innocent."""
        if not any(self._is_alone(claim) for claim in claims):
            return claims
        judged = [claim if self._is_alone(claim) else claim.as_innocent() for claim in claims]
        self._alone = None
        return judged

    def _is_alone(self, claim: Claim) -> bool:
        return self._alone is not None and self._alone[:2] == (claim.seq, claim.row)

    def give_next(self) -> None:
        """Give out the next sample under suspicion, once the one before it is done."""
        if self._alone is not None and not self._is_done(*self._alone):
            return
        self._alone = None
        if self._waiting:
            self._words[Head.HOLD] = 1
            if self._claims.all():
                return  # until the others have finished what they have in hand
        while self._waiting and self._alone is None:
            seq, row, rows = self._waiting.popleft()
            batch = self._scheduler.batches.get(seq)
            if batch is None or batch.is_settled:
                continue
            if batch.is_cancelled:
                with self._again.locked():
                    self._again.settle(batch, row, rows)
                self._note(Result(seq, 0, row, rows, 0, Answer.DROPPED))
                continue
            self._alone = (seq, row, rows)
            self._again.give_out(batch, row, rows, is_alone=True)
        if self._alone is None:
            self._words[Head.HOLD] = 0

    def _is_done(self, seq: int, row: int, rows: int) -> bool:
        batch = self._scheduler.batches.get(seq)
        if batch is None or batch.is_settled:
            return True
        table = self._words[Board.entry_at(seq) + Entry.ROW_WORDS]
        return not batch.is_whole and all(word > 0 for word in self._all_words[table + row : table + row + rows])
