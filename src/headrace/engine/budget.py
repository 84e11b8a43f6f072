"""How much memory a loader may fill with batches that nobody has taken yet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..model import format_bytes, num_local_ranks, parse_bytes

# of what is free: the rest is for the training process, the workers' heaps and the page cache
DEFAULT_SHARE = 0.25
_NO_LIMIT = 1 << 60


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
    for limit, used, name in _cgroup_limits(root):
        room = max(0, limit - used)
        if room < best:
            best, source = room, f"{name} limit {format_bytes(limit)}, {format_bytes(used)} in use"
    return best, source


def _available(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 << 30


def _cgroup_limits(root: Path) -> list[tuple[int, int, str]]:
    """(limit, in use, name) of every control group above this process that has a memory limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, limit_name, used_name = "sys/fs/cgroup", "memory.max", "memory.current"
            cache_key, name = "inactive_file", "cgroup v2"
        elif "memory" in controllers.split(","):
            base, limit_name, used_name = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache_key, name = "total_inactive_file", "cgroup v1"
        else:
            continue
        top = root / base
        group = top / path.lstrip("/")
        # inside a container the path of the host may not exist: then the mount's own root is the group
        candidates = [group, *group.parents] if group.exists() else [top]
        for folder in candidates:
            limit, used = _read_int(folder / limit_name), _read_int(folder / used_name)
            if limit is not None and used is not None and limit < _NO_LIMIT:
                found.append((limit, max(0, used - _stat(folder / "memory.stat", cache_key)), name))
            if folder == top:
                break
    return found


def _read_int(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _stat(path: Path, key: str) -> int:
    """A field of memory.stat: cache that the kernel drops first does not count as used."""
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    except (OSError, ValueError):
        pass
    return 0
