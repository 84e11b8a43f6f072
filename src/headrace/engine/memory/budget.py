"""How much memory a loader may fill with batches that nobody has taken yet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.model import format_bytes, num_local_ranks, parse_bytes
from headrace.signals.system import memory_groups, read_limits

# of what is free: the rest is for the training process, the workers' heaps and the page cache
DEFAULT_SHARE = 0.25


@dataclass(frozen=True)
class Budget:
    """A byte budget and where it comes from."""

    bytes: int
    reason: str


def find_budget(asked: int | str | None, *, in_dev_shm: bool = False) -> Budget:
    """Return the budget that was asked for, or a share of what this process may still use."""
    if asked is not None:
        size = parse_bytes(asked)
        return Budget(size, f"{format_bytes(size)}, as asked for")
    free, source = free_memory()
    ranks = num_local_ranks()
    size = int(free * DEFAULT_SHARE / ranks)
    reason = f"a quarter of {format_bytes(free)} free ({source})"
    if ranks > 1:
        reason += f", shared by {ranks} ranks"
    if in_dev_shm:
        stat = os.statvfs("/dev/shm")
        room = int(stat.f_bavail * stat.f_frsize * 0.8 / ranks)
        if room < size:
            size, reason = room, "80 % of the free space of /dev/shm (memfd_create is refused here)"
    size = max(size, 1 << 20)
    return Budget(size, f"{format_bytes(size)}, {reason}")


def free_memory(root: Path = Path("/")) -> tuple[int, str]:
    """Bytes that this process may still use: the tightest of the machine and its control groups (v1 and v2)."""
    best, source = _available(root / "proc/meminfo"), "MemAvailable"
    for memory in read_limits(memory_groups(root)):
        limit, used = memory.limit_bytes or 0, memory.working_set_bytes
        room = max(0, limit - used)
        if room < best:
            best, source = room, f"{memory.group.name} limit {format_bytes(limit)}, {format_bytes(used)} in use"
    return best, source


def _available(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 << 30
