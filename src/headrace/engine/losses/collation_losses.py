"""How far the collation of a batch is to blame for workers that were lost."""

from __future__ import annotations

from collections.abc import Sequence

from ..memory import COLLATING
from .claims import Claim


class CollationLosses:
    """Counts losses against the batches that were being collated. Pure; sequence numbers are an epoch's."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: dict[int, int] = {}  # batch: parts of blame, `most` of them for a loss that was its own

    def count(self, claims: Sequence[Claim]) -> None:
        """A process is gone in which workers had this in hand.

        Beside a thread that had a sample in hand, or collated too, a collation is one of several that may be guilty:
        such a loss counts for a part, else two that collate at once would be condemned for one of them.
        """
        num_suspects = sum(claim.position >= 0 or claim.position == COLLATING for claim in claims)
        parts = 1 if num_suspects > 1 else self._most
        for claim in claims:
            if claim.position == COLLATING:
                self._parts[claim.seq] = self._parts.get(claim.seq, 0) + parts

    def is_doomed(self, seq: int) -> bool:
        """Whether its collation took worker after worker: no sample can be left out for that."""
        return self._parts.get(seq, 0) >= self._most**2

    def clear(self) -> None:
        self._parts.clear()
