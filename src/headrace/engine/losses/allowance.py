"""How many lost workers a loader bears before it gives up."""

from __future__ import annotations

import time

from ..memory import STARTING, Board, Record
from ..pool import Loss, Pool

_SAMPLES_FOR_A_LOSS, _SECONDS_FOR_A_LOSS = 8, 10.0


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


def loss_cost(pool: Pool, loss: Loss) -> float:
    """What a loss costs: one that never began will hardly begin the next time."""
    return 4.0 if pool.board.words[Board.record_at(loss.workers[0]) + Record.STATE] == STARTING else 1.0
