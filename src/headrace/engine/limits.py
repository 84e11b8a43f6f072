"""How much memory a loader may fill with batches that nobody has taken yet; how many processors it has, and which."""

import logging
import math
import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import NotSupported
from headrace.model import format_bytes, num_local_ranks, parse_bytes
from headrace.signals.system import (
    memory_groups,
    parse_cpu_list,
    read_available,
    read_limits,
    read_numa_nodes,
    read_pci_node,
    read_quota,
)

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
    size, reason = (parse_bytes(asked), "as asked for") if asked is not None else _own_share(in_dev_shm=in_dev_shm)
    room, source = address_room()
    if room is not None and size > room // 4:
        told = map(format_bytes, (room // 4, size))
        _log.warning("batches may take %s instead of %s: %s leaves no more room", *told, source)
        size, reason = room // 4, f"what {source} leaves"
    return Budget(size, f"{format_bytes(size)}, {reason}", room)


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


def _own_share(*, in_dev_shm: bool) -> tuple[int, str]:
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
    return max(size, 1 << 20), reason


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
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(count, read_quota(root) or math.inf) / num_local_ranks() + 1e-9))


@dataclass(frozen=True)
class Placement:
    """On which processors workers run, and why; None: wherever the training process may."""

    cpus: frozenset[int] | None
    reason: str


def check_cpus(asked: str | Iterable[int] | None) -> None:
    """Refuse what names no processors."""
    try:
        is_known = asked is None or asked == "numa" or bool(_listed(asked))
    except (ValueError, TypeError):
        is_known = False
    if not is_known:
        raise ValueError(f'cpus={asked!r}: give a list of processors, a text such as "0-7,16", or "numa"')


def _listed(asked: str | Iterable[int]) -> frozenset[int]:
    cpus = parse_cpu_list(asked) if isinstance(asked, str) else frozenset(asked)
    if not all(type(cpu) is int and cpu >= 0 for cpu in cpus):
        raise TypeError("a processor is a whole number")
    return cpus


def place_workers(
    asked: str | Iterable[int] | None, *, gpu: str | None = None, allowed: Iterable[int] = (), root: Path = Path("/")
) -> Placement:
    """Return where workers run: within what is asked for and what this process is allowed, its cpuset included.

    "numa" stands for the node that the GPU with a PCI address is attached to; without one, for the node that has the
    most of the processors of this process. What has no effect says so in its reason.
    """
    own = frozenset(allowed or os.sched_getaffinity(0))
    if asked is None:
        return Placement(None, "as the training process")
    if asked != "numa":
        wanted = _listed(asked)
        usable = wanted & own
        if not usable:
            raise NotSupported(
                "none of the processors of cpus= is allowed to this process",
                asked=_ranges(wanted),
                allowed=_ranges(own),
                next_step=f'cpus="{_ranges(own)}", or another cpuset or affinity of the job',
            )
        left_out = f"; {_ranges(wanted - own)} are not allowed to this process" if wanted - own else ""
        return Placement(usable, f"as asked for: {_ranges(usable)}{left_out}")
    nodes = {node: cpus & own for node, cpus in read_numa_nodes(root).items() if cpus & own}
    if len(nodes) < 2:
        return Placement(None, 'cpus="numa" has no effect: this process has processors of one node')
    of_gpu = None if gpu is None else read_pci_node(gpu, root)
    node = of_gpu if of_gpu in nodes else max(nodes, key=lambda one: len(nodes[one]))
    why = f"of the GPU at {gpu}" if node == of_gpu else "that has most of this process's processors"
    return Placement(nodes[node], f"{_ranges(nodes[node])}, NUMA node {node}, {why}")


def _ranges(cpus: Iterable[int]) -> str:
    """Return processors as `taskset` takes them.

    >>> _ranges({0, 1, 2, 8})
    '0-2,8'
    """
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


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
