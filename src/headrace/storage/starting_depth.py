"""How many reads to begin with, from what is under a path."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

# a place to begin where nothing is known: enough for an SSD, and not yet a storm for a hard disk's scheduler
_UNKNOWN_DEPTH = 16


@dataclass(frozen=True)
class StartingDepth:
    """Reads in flight to begin with; 0: reading ahead brings nothing there."""

    depth: int
    reason: str


def starting_depth(path: str) -> StartingDepth:
    """What fits the storage under a path; measured afterwards, while it runs."""
    if find_spec(".kinds", __package__) is None:
        return StartingDepth(_UNKNOWN_DEPTH, "a place to begin")
    kind = import_module(".kinds", __package__).kind_of(path)
    if kind.medium == "memory":
        return StartingDepth(0, f"{kind}: there is nothing to wait for")
    return StartingDepth(max(1, kind.starting_depth), f"{kind}")
