"""Whose turn it is among the workers of an iterable data set: each fills batches of its own."""

from __future__ import annotations


class Turns:
    """The workers whose iterators have more, in turn."""

    def __init__(self) -> None:
        self.active: list[int] = []
        self._turn = 0

    def begin(self, num_workers: int) -> None:
        """Begin an epoch: all have more."""
        self.active, self._turn = list(range(num_workers)), 0

    def take(self) -> int:
        """The worker that fills the next batch."""
        worker = self.active[self._turn % len(self.active)]
        self._turn = (self._turn + 1) % len(self.active)
        return worker

    def retire(self, worker: int) -> bool:
        """A worker's iterable data set is exhausted: take it out of the turns. False: that was known."""
        if worker not in self.active:
            return False
        place = self.active.index(worker)
        self.active.remove(worker)
        if place < self._turn:
            self._turn -= 1
        return True
