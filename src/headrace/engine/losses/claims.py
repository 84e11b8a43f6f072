"""What each worker has in hand, by its own record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..memory import BUSY, NO_SAMPLE, Board, Head, Record
from ..pool import Pool


@dataclass(frozen=True)
class Claim:
    """What a worker had in hand."""

    worker: int
    seq: int
    row: int
    rows: int
    position: int  # NO_SAMPLE: not yet, or no more; COLLATING: a batch
    span: int

    def as_innocent(self) -> Claim:
        return replace(self, position=NO_SAMPLE)


class Claims:
    """Reads the records of a pool's workers."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._words = pool, pool.board.words

    def of(self, worker: int) -> Claim | None:
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

    def all(self) -> list[Claim]:
        """What all workers have in hand."""
        return [claim for worker in range(self._pool.most_workers) if (claim := self.of(worker)) is not None]

    def is_in_hand(self, seq: int) -> bool:
        """Whether a worker may still write into a batch: one whose chunk was given out twice."""
        return bool(self._words[Head.LOSSES]) and any(claim.seq == seq for claim in self.all())
