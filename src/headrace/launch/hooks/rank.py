"""Ranks: which one a training process is, and waiting for the others in a barrier or an exchange of objects."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from headrace.model import EventKind

from ..tape import now, tape
from .wrapping import Depth, replace

_RANK, _RANKS = int(EventKind.RANK), int(EventKind.RANKS)
# Not the collectives of tensors: a compiler knows those by the function itself.
_HOST_CALLS = ("barrier", "monitored_barrier", "all_gather_object", "broadcast_object_list", "gather_object")
_said: set[tuple[int, int]] = set()  # process and rank: a fork is another process, and a group may come late


def time_collectives(distributed: ModuleType) -> None:
    """Time the calls in which a host waits for the other ranks."""
    depth = Depth()
    for name in _HOST_CALLS:
        replace(distributed, name, _RANKS, f"{name}()", depth)


def say_rank() -> None:
    """Write the rank down, once it is known; nothing for a training of one process."""
    rank, world = _rank()
    if world > 1 and (key := (os.getpid(), rank)) not in _said:
        _said.add(key)
        tape.write(_RANK, now(), 0, rank, world)


def _rank() -> tuple[int, int]:
    """Return rank and number of ranks: as torch.distributed knows it, else as the launcher said."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
