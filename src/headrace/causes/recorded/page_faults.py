"""What fetching memory back from swap cost a process: its time in the kernel, and asleep until a page came. Pure.

The kernel's own account of waiting for memory (PSI) leaves most of that out. It counts the wait for a page that comes
back only if it was in use shortly before it went, and nothing of the processor time that faults, reading ahead and the
swap cache take; on a fast disk that is the larger part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.signals.system import ProcessSample, SystemSample

# of the processor, for a page that is moved: 5 to 10 us with a disk, several times that where pages are compressed.
# What a process does in the kernel beyond that is something else.
_MOST_PAGE_S = 50e-6


@dataclass(frozen=True, kw_only=True)
class FaultTime:
    """Seconds of a process's wall clock that went into fetching pages back, of those for which it was looked at."""

    in_kernel_s: float = 0.0
    no_core_s: float = 0.0  # ready to go on with that, and no core was free
    asleep_s: float = 0.0
    seen_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.in_kernel_s + self.no_core_s + self.asleep_s

    def __add__(self, other: FaultTime) -> FaultTime:
        return FaultTime(
            in_kernel_s=self.in_kernel_s + other.in_kernel_s,
            no_core_s=self.no_core_s + other.no_core_s,
            asleep_s=self.asleep_s + other.asleep_s,
            seen_s=self.seen_s + other.seen_s,
        )


NO_FAULTS = FaultTime()


def read_fault_time(samples: Sequence[SystemSample], pids: Collection[int]) -> FaultTime:
    """Return what faults cost some processes together, from the first of some samples to the last."""
    total = FaultTime()
    for first, last in pairwise(samples):
        before = {one.pid: one for one in first.processes if one.pid in pids}
        for now in last.processes:
            if now.pid in before:
                total += _between(first, last, before[now.pid], now)
    return total


def _between(first: SystemSample, last: SystemSample, before: ProcessSample, now: ProcessSample) -> FaultTime:
    faults, wall_s = now.major_faults - before.major_faults, (last.at_ns - first.at_ns) / 1e9
    if faults <= 0 or first.machine is None or last.machine is None:
        return FaultTime(seen_s=wall_s)
    moved = last.machine.swap_in_pages + last.machine.swap_out_pages
    moved -= first.machine.swap_in_pages + first.machine.swap_out_pages
    own = faults / max(faults, last.machine.major_faults - first.machine.major_faults)
    user_s, system_s = now.cpu_user_s - before.cpu_user_s, now.cpu_system_s - before.cpu_system_s
    in_kernel_s = max(0.0, min(system_s, own * moved * _MOST_PAGE_S))
    sleeps = min(faults, _grown(before.voluntary_switches, now.voluntary_switches, unknown=faults))
    # A core is waited for after each sleep, and by whoever is taken off it: as often while faulting as elsewhere.
    switches = sleeps + _grown(before.involuntary_switches, now.involuntary_switches, unknown=0)
    after_sleeps = sleeps / switches if switches else 0.0
    of_work = in_kernel_s / (user_s + system_s) if in_kernel_s else 0.0
    delay_s = (now.run_delay_s or 0.0) - (before.run_delay_s or 0.0)
    no_core_s = delay_s * (after_sleeps + (1 - after_sleeps) * of_work)
    asleep_s = _asleep_s(first, last, sleeps)
    # Threads that fault side by side cost the wall clock once: faults have the part of it that they have of all work.
    work_s = in_kernel_s + no_core_s + asleep_s + user_s
    part = min(1.0, wall_s / work_s) if work_s > 0 else 1.0
    return FaultTime(
        in_kernel_s=in_kernel_s * part, no_core_s=no_core_s * part, asleep_s=asleep_s * part, seen_s=wall_s
    )


def _asleep_s(first: SystemSample, last: SystemSample, sleeps: int) -> float:
    """Return how long faults slept: so many of them, a read of the disk each.

    Compressed memory answers without sleep: a fault for which the process did not go to sleep is not among them. And
    nobody slept for longer than the kernel saw anybody wait for disks (PSI), where it tells.
    """
    reads = sum(disk.reads for disk in last.disks) - sum(disk.reads for disk in first.disks)
    read_s = sum(disk.read_s for disk in last.disks) - sum(disk.read_s for disk in first.disks)
    asleep_s = max(0.0, sleeps * read_s / reads) if reads > 0 else 0.0
    before, now = first.pressure("io"), last.pressure("io")
    if before is not None and now is not None:
        asleep_s = min(asleep_s, now.some_total_s - before.some_total_s)
    return asleep_s


def _grown(before: int | None, now: int | None, *, unknown: int) -> int:
    return max(0, now - before) if before is not None and now is not None else unknown
