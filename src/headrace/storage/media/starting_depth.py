"""How many reads to begin with, from what is under a path."""

from __future__ import annotations

from dataclasses import dataclass

from .kinds import kind_of
from .media import Medium


@dataclass(frozen=True)
class StartingDepth:
    """Reads in flight to begin with; 0: reading ahead brings nothing there."""

    depth: int
    reason: str


def starting_depth(path: str) -> StartingDepth:
    """What fits the storage under a path; measured afterwards, while it runs."""
    kind = kind_of(path)
    if kind.medium is Medium.MEMORY:
        return StartingDepth(0, f"{kind}: there is nothing to wait for")
    return StartingDepth(max(1, kind.starting_depth), f"{kind}")
