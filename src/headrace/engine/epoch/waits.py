"""How long the training loop waited for its batches."""

from __future__ import annotations

from collections import deque

from headrace.model import WaitStats

_RECENT_WAITS, _RECENT_STEPS = 512, 64


class WaitLog:
    """Keeps the waits of a loop. The first batch counts apart: it pays for starting up."""

    def __init__(self) -> None:
        self.count = 0
        self.first_batch_s = 0.0
        self._total_s = self._worst_s = 0.0
        self._waits: deque[float] = deque(maxlen=_RECENT_WAITS)
        self._steps: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._returned_at = 0.0

    def ask(self, now: float) -> None:
        """The loop asks for a batch: what lies behind it was a step."""
        if self._returned_at:
            self._steps.append(now - self._returned_at)

    def give(self, wait_s: float, now: float, *, since_start_s: float) -> None:
        """The loop gets a batch."""
        self._returned_at = now
        self.count += 1
        self._total_s += wait_s
        if self.count == 1:
            self.first_batch_s = since_start_s
        else:
            self._waits.append(wait_s)
            self._worst_s = max(self._worst_s, wait_s)

    def pause(self) -> None:
        """An epoch ended: the time until the next one begins is no step."""
        self._returned_at = 0.0

    def typical_interval_s(self) -> float:
        """Time from one batch to the next, the loop's own step plus its wait; 0 while too few are known."""
        if min(len(self._steps), len(self._waits)) < 4:
            return 0.0
        recent = list(self._waits)[-_RECENT_STEPS:]
        return sum(self._steps) / len(self._steps) + sum(recent) / len(recent)

    def stats(self) -> WaitStats:
        waits, steps = sorted(self._waits) or [0.0], sorted(self._steps) or [0.0]
        return WaitStats(
            count=self.count,
            total_s=self._total_s,
            median_s=waits[len(waits) // 2],
            p95_s=waits[min(len(waits) - 1, int(len(waits) * 0.95))],
            worst_s=self._worst_s,
            first_batch_s=self.first_batch_s,
            recent_s=tuple(self._waits),
            step_median_s=steps[len(steps) // 2],
        )
