"""When batches are kept for a replay and when they are given again. Pure: no batch, no clock.

A loop over a loader trains if there was a backward pass or an optimizer step between two of its batches. After some of
its steps the next batches are kept, then `next` gives them again for so many steps, then everything is as before. All
is counted in steps, never in seconds or bytes, so that the ranks of one training do the same at the same step.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto

WARM_UP_STEPS = 8  # the first steps of a training choose kernels and fill allocators
KEPT_BATCHES = 8  # batches differ in what a step costs, and each is held in memory


class Answer(Enum):
    """What to do when a loop asks a loader for a batch."""

    REAL = auto()
    CACHED = auto()
    REAL_AGAIN = auto()  # the replay ends with this: the loader goes on where it was


@dataclass
class ReplayPlan:
    """The replay of one process; `loader` is a name, `iterator` tells one pass over it from the next."""

    num_steps: int
    warm_up: int = WARM_UP_STEPS
    num_kept: int = KEPT_BATCHES
    lead: str = ""  # the loader that the steps are counted by, once they are
    served: int = 0
    is_over: bool = False
    _trained: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, int] = field(default_factory=dict)
    _passes: dict[str, Hashable] = field(default_factory=dict)  # of the loaders that are replayed

    def asks(self, loader: str, iterator: Hashable, *, has_trained: bool) -> Answer:
        """Take in a `next`; `has_trained`: between the batch before and this call."""
        if self.is_over:
            return Answer.REAL
        self._trained[loader] = self._trained.get(loader, 0) + has_trained
        if not self.lead:
            if self._trained[loader] < self.warm_up + self.num_kept or not self._kept.get(loader):
                return Answer.REAL
            self.lead = loader
        if not self._kept.get(loader):
            return Answer.REAL
        is_same_pass = self._passes.setdefault(loader, iterator) == iterator
        if loader != self.lead:
            return Answer.CACHED if is_same_pass else Answer.REAL
        if not is_same_pass or self.served >= self.num_steps:
            self.is_over = True
            return Answer.REAL_AGAIN
        self.served += 1
        return Answer.CACHED

    def is_wanted(self, loader: str) -> bool:
        """Whether the batch that has just come is to be kept."""
        return not self.is_over and not self.lead and self._trained.get(loader, 0) >= self.warm_up

    def kept(self, loader: str) -> None:
        """Take in that a batch was kept."""
        self._kept[loader] = self._kept.get(loader, 0) + 1

    def give_up(self) -> None:
        """Let everything be real from now on."""
        self.is_over = True
