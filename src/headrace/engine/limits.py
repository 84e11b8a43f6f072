"""How much memory a loader may fill with batches that nobody has taken yet, and how many processors it has."""

import logging
import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from headrace.model import format_bytes, num_local_ranks, parse_bytes
from headrace.signals.system import cpu_groups, memory_groups, read_available, read_limits, read_quotas

_log = logging.getLogger(__name__)

# of what is free: the rest is for the training process, the workers' heaps and the page cache
DEFAULT_SHARE = 0.25


@dataclass(frozen=True)
class Budget:
    """A byte budget and where it comes from."""

    bytes: int
    reason: str
    room_bytes: int | None = None  # of addresses, where the system limits them


def find_budget(asked: int | str | None, *, in_dev_shm: bool = False) -> Budget:
    """Return the budget that was asked for, or a share of what this process may still use, within its addresses."""
    budget, (room, source) = _find_budget(asked, in_dev_shm=in_dev_shm), address_room()
    if room is None:
        return budget
    if budget.bytes <= room // 4:
        return Budget(budget.bytes, budget.reason, room)
    _log.warning(
        "batches may take %s instead of %s: %s leaves no more room",
        *map(format_bytes, (room // 4, budget.bytes)),
        source,
    )
    return Budget(room // 4, f"{format_bytes(room // 4)}, what {source} leaves", room)


def address_room() -> tuple[int | None, str]:
    """Addresses that a loader may lay out where `ulimit -v` or `ulimit -f` bounds them: None where nothing does.

    A third of what is left: a forked worker maps them once more, and the data set and the training need some, too.
    """
    room, source = None, ""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        room, source = max(0, most - used) // 3, f"`ulimit -v` {most >> 10} ({format_bytes(used)} in use)"
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if most != resource.RLIM_INFINITY and (room is None or most < room):
        room, source = most, f"`ulimit -f` {most >> 10}"
    return room, source


def _find_budget(asked: int | str | None, *, in_dev_shm: bool) -> Budget:
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
    available = read_available(root)[0]
    best, source = 4 << 30 if available is None else available, "MemAvailable"
    for memory in read_limits(memory_groups(root)):
        limit, used = memory.limit_bytes or 0, memory.working_set_bytes
        room = max(0, limit - used)
        if room < best:
            best, source = room, f"{memory.group.name} limit {format_bytes(limit)}, {format_bytes(used)} in use"
    return best, source


def usable_processors(root: Path = Path("/")) -> int:
    """Processors by affinity, bounded by the control group's quota (v1 and v2) and shared between local ranks."""
    count = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    for group in read_quotas(cpu_groups(root)):
        if group.quota_cores is not None:
            count = min(count, group.quota_cores)
    return max(1, math.floor(count / num_local_ranks() + 1e-9))


def workers_for(sample_s: float, cpu_share: float, processors: int) -> tuple[int, str]:
    """How many workers `num_workers="auto"` starts, and why. 0: in the training process.

    `cpu_share` is the processor time of a sample over its duration: the rest is waiting, for a disk or a network,
    and more workers can wait at once than there are processors.
    """
    if sample_s < 20e-6:
        return 0, f"in-process: a sample takes {sample_s * 1e6:.1f} µs, less than handing it over"
    base = processors if processors <= 2 else processors - 1
    if cpu_share >= 0.5:
        spent = f"a sample takes {sample_s * 1e3:.3g} ms, {cpu_share:.0%} of it processor time"
        return base, f"{base} for {processors} usable processors: {spent}"
    count = max(base, min(4 * processors, 32, math.ceil(base / max(cpu_share, 0.05))))
    spent = f"{1 - cpu_share:.0%} of a sample's {sample_s * 1e3:.3g} ms is waiting"
    return count, f"{count} for {processors} usable processors: {spent}"
