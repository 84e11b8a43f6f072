"""Which batches were slow, and what their distances say: as far as the training loop alone can know. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

_WINDOW = 200  # batches that "typical" is taken from
_FEWEST = 5
_FACTOR = 3.0


class SlowBatches:
    """The slow batches of one epoch."""

    def __init__(self, *, num_workers: int = 0, at_least_s: float = 0.05) -> None:
        self._num_workers, self._at_least_s = num_workers, at_least_s
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._waits: deque[float] = deque(maxlen=_WINDOW)
        self._slow: list[int] = []
        self._fast = 0  # batches since the last slow one
        self._count = 0

    def __repr__(self) -> str:
        return f"SlowBatches(slow={len(self._slow)}, workers={self._num_workers})"

    def step_done(self, step_s: float) -> None:
        """Learn how long a step takes, from a batch to the next `next`."""
        self._steps.append(step_s)

    def is_slow(self, seconds: float) -> bool:
        """Whether a wait or a step is far longer than what is typical."""
        if seconds < self._at_least_s:  # most are: medians take longer than all the rest of a batch
            return False
        return seconds > _FACTOR * (self.typical_step_s + (median(self._waits) if self._waits else 0.0))

    @property
    def typical_step_s(self) -> float:
        """The median of the last steps, 0 where there was none."""
        return median(self._steps) if self._steps else 0.0

    def judge(self, number: int, wait_s: float) -> tuple[int, float, str, int] | None:
        """Take in a wait; return its number, length, cause and the fast batches before it if it was slow."""
        is_slow = self.is_slow(wait_s) if number == 0 or len(self._waits) >= _FEWEST else False
        if not is_slow:
            self._fast += 1
            if number:
                self._waits.append(wait_s)
            return None
        fast, self._fast = self._fast, 0
        self._count += 1
        cause = self._cause(number)
        if number:
            self._slow.append(number)
            self._waits.append(wait_s)
        return number, wait_s, cause, fast

    def take_count(self) -> int:
        """Return how many were slow since the last time this was asked."""
        count, self._count = self._count, 0
        return count

    def _cause(self, number: int) -> str:
        if number == 0:
            return "epoch_start (the first batch of an epoch)"
        workers = self._num_workers
        distances = [b - a for a, b in zip(self._slow[-3:], [*self._slow[-3:], number][1:], strict=False)]
        if workers > 1 and len(distances) >= 2 and all(distance % workers == 0 for distance in distances):
            return f"batch_lockstep (every {workers} batches, which is num_workers)"
        if workers == 0:
            return "straggler_sample (fetched in the training process: num_workers=0)"
        if len(distances) >= 2 and max(distances) <= 2:
            return "loader_throughput (batch after batch comes late)"
        return "unknown (a late batch; whether a sample or the pool is slow is seen with `headrace run`)"
