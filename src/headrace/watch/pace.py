"""When the stacks of a training are sampled: at first always, then as often as their price allows. Pure.

A py-spy that starts reads the symbols of every process (80 ms of CPU time for three), and each sample of them takes
2 ms: stacks in every stretch of two seconds take 8 % of a core. A training does the same for hours, so after some
seconds they may take 1 %; more where processes come or go, or where one stands still, until that is understood.
"""

from __future__ import annotations

from collections.abc import Hashable, Set

_ALWAYS_S = 6.0  # at first; `--once` takes five seconds
_SHARE = 0.01  # of a core
_CHANGED_SHARE = 0.05


class StackPace:
    """Which stretches of a watch have stacks of their own; the others keep what the last one with them has shown."""

    def __init__(self) -> None:
        self._seen: Set[Hashable] = frozenset()
        self._sampled_s = self._cpu_s = 0.0

    def __repr__(self) -> str:
        return f"StackPace({self._cpu_s:.3f} s of CPU time at {self._sampled_s:.1f} s)"

    def is_due(self, at_s: float, who: Set[Hashable], *, is_still: bool) -> bool:
        """Whether to sample now. `who`: the processes to look at; `is_still`: one of them got nowhere lately."""
        if at_s < _ALWAYS_S:
            return True
        share = _CHANGED_SHARE if is_still or who != self._seen else _SHARE
        return at_s - self._sampled_s >= self._cpu_s / share

    def sampled(self, at_s: float, who: Set[Hashable], cpu_s: float) -> None:
        """Take in that a stretch, which began at `at_s`, had stacks, and what they cost."""
        self._seen, self._sampled_s, self._cpu_s = who, at_s, cpu_s
