"""Whether one more block fits the budget, and how many batches may be on their way to it. Pure.

On the general path a batch lies in the budget as blocks of its samples, and once more as the block that it is collated
to. How large that will be nobody knows before. So room for a batch of samples as large as the largest so far, twice, is
kept for the oldest batch that is not collated yet; whatever else is finished takes what is left, or waits in the hands
of its worker. Batches are delivered in order: as the next one always has room, none waits for one that waits for it.
"""

from dataclasses import dataclass
from enum import IntEnum

# blocks this small beside the budget are let in at once, while it is this empty and batches are this small
_SMALL_PART, _EMPTY_PART, _BATCH_PART = 64, 4, 4


class Turn(IntEnum):
    """Where a batch stands among those that are not delivered."""

    NEXT = 0  # the loop asks for it: whatever waits, waits for it
    OPEN = 1  # the oldest of those that are not collated
    LATER = 2


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What lies in the budget now."""

    budget_bytes: int
    used_bytes: int  # slots and blocks, kept ones included
    promised_bytes: int = 0  # being written at this moment
    batch_bytes: int = 0  # the largest batch that there may be; 0: nothing was seen yet

    @property
    def reserve_bytes(self) -> int:
        """What is kept free for the oldest batch that is not collated: its samples, and what they are collated to."""
        return 2 * self.batch_bytes if self.batch_bytes else self.budget_bytes

    def admits_at_once(self, size: int, count: int = 1) -> bool:
        """Whether blocks may be let in without looking at the others: the oldest batch has room whatever they hold."""
        budget = self.budget_bytes
        is_empty = (self.used_bytes + count * size) * _EMPTY_PART <= budget
        return is_empty and size * _SMALL_PART <= budget and self.batch_bytes * _BATCH_PART <= budget

    def admits(self, size: int, turn: Turn) -> bool:
        """Whether a block of `size` bytes may be written now; otherwise the worker keeps what it has until it may.

        >>> holding = Holding(budget_bytes=100, used_bytes=40, batch_bytes=20)
        >>> [holding.admits(20, turn) for turn in Turn], [holding.admits(30, turn) for turn in Turn]
        ([True, True, True], [True, True, False])
        """
        taken = self.used_bytes + self.promised_bytes + size
        if turn is Turn.NEXT:
            return True
        if turn is Turn.OPEN:
            return taken <= self.budget_bytes
        return taken + self.reserve_bytes <= self.budget_bytes


def batches_that_fit(*, budget_bytes: int, queued_bytes: int, batch_bytes: int) -> int:
    """How many more batches may be issued beside what is queued, and what is being made of it, as `queued_bytes`."""
    return max(0, budget_bytes - queued_bytes) // (2 * batch_bytes)
