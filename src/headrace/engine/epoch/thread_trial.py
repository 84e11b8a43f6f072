"""Finds out, once, what a second thread in a worker would bring."""

from __future__ import annotations

from typing import Any

from ..memory import Result, dump, load
from ..pool import Pool
from ..worker import measure_task
from .figures import Figures
from .scheduler import Scheduler

_MOST_INDICES = 48


class ThreadTrial:
    """A measurement that a worker makes when there is nothing else to do for it."""

    def __init__(self, pool: Pool, scheduler: Scheduler, figures: Figures) -> None:
        self._pool, self._scheduler, self._figures = pool, scheduler, figures
        self.some_indices: list[Any] = []
        self.is_measuring = False
        self.gain: float | None = None  # rate of two threads over that of one

    def keep(self, indices: Any) -> None:
        """Remember some indices to measure on."""
        self.some_indices = [*self.some_indices, *indices][:_MOST_INDICES]

    def begin_if_idle(self, *, is_at_end: bool) -> None:
        """Once, when there is nothing else to do for a worker, let it time samples alone and in two threads."""
        scheduler = self._scheduler
        is_idle = scheduler.in_flight > 1 and scheduler.num_ready == scheduler.in_flight
        if not (is_idle or is_at_end) or len(self.some_indices) < 3:
            return
        times = self._figures.sample_times()
        if times is None:
            return
        # three parts of a twentieth of a second, at least one sample each
        count = 3 * max(1, min(len(self.some_indices) // 3, int(0.05 / max(times.median_s, 1e-6))))
        block, _ = dump(self.some_indices[:count], self._pool.region, self._pool.arena)
        self._pool.pipes.send(measure_task(block))
        self.some_indices, self.is_measuring = [], True

    def note(self, result: Result) -> None:
        """The worker's answer."""
        self.is_measuring = False
        self.gain = load(self._pool.arena, result.block) if result.block else None
