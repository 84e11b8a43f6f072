"""What the system around a training did while it trained: growth of the kernel's counters over its window. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .page_faults import NO_FAULTS, FaultTime, read_fault_time

if TYPE_CHECKING:
    from headrace.signals.system import SystemSample

_PAGE_BYTES = 4096
_NOT_IDLE = 0.02  # of a core: a process that used less did not compete for one


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Sums and shares over the window; None: the kernel does not tell, or nothing limits it."""

    seconds: float
    throttled_share: float | None  # of the periods of a CPU quota, those in which it was used up
    throttled_s: float  # for which work stood still, a core's worth each
    quota_cores: float | None
    num_working: int  # processes that used a core for some of the time
    swapped_in_bytes: int
    swapped_bytes: int  # of the training, at the end
    memory_stall_s: float | None  # at least one task waited for memory
    refault_bytes: int | None  # of files, read again because memory was too short to keep them
    limit_bytes: int | None  # of the innermost memory group that has one
    most_used_bytes: int
    kills: int | None  # by the kernel, for memory
    idle_cores: float | None = None  # of the machine, on average
    disk_busy: float | None = None  # share of the time with a request in flight, of the busiest disk
    disk_stall_s: float | None = None  # at least one task waited for a disk
    disk_read_bytes: int | None = None  # by the training, from disks: what lay in memory is not among them
    faults: FaultTime = NO_FAULTS  # of the process that trains
    worker_faults: FaultTime = NO_FAULTS  # of its workers, together

    @property
    def refault_bytes_per_s(self) -> float:
        return (self.refault_bytes or 0) / self.seconds if self.seconds > 0 else 0.0

    @property
    def standing_share(self) -> float:
        """Return the share of the time for which a quota let nobody work, at most.

        Throttled time counts every core that had work; and `n` processes that always want to run use a quota of `q`
        cores up in `q / n` of each period, no sooner.
        """
        if not self.throttled_share or self.seconds <= 0 or self.quota_cores is None:
            return 0.0
        num = max(1, self.num_working)
        used_up_after = min(1.0, self.quota_cores / num)
        return max(0.0, min(self.throttled_share, self.throttled_s / self.seconds / num, 1 - used_up_after))


def read_surroundings(
    samples: Sequence[SystemSample],
    start_ns: int,
    end_ns: int,
    *,
    cores: float,
    trainer_pid: int | None = None,
    worker_pids: Collection[int] = (),
) -> Surroundings | None:
    """Return what grew between the samples around a window; None for fewer than two samples."""
    inside = [one for one in samples if start_ns <= one.at_ns <= end_ns]
    before = [one for one in samples if one.at_ns < start_ns][-1:]
    after = [one for one in samples if one.at_ns > end_ns][:1]
    chosen = [*before, *inside, *after] if len(inside) < 2 else inside
    if len(chosen) < 2:
        return None
    first, last = chosen[0], chosen[-1]
    seconds = (last.at_ns - first.at_ns) / 1e9
    throttled_share, throttled_s, quota = _throttling(first, last)
    limits = [group for group in last.memory_groups if group.limit_bytes]
    used = [
        group.used_bytes for one in chosen for group in one.memory_groups if limits and group.depth == limits[0].depth
    ]
    swapped_in_bytes = 0
    if first.machine is not None and last.machine is not None:
        swapped_in_bytes = _PAGE_BYTES * (last.machine.swap_in_pages - first.machine.swap_in_pages)
    return Surroundings(
        seconds=seconds,
        throttled_share=throttled_share,
        throttled_s=throttled_s,
        quota_cores=quota,
        num_working=min(max(1, round(cores)), _num_working(first, last, seconds)),
        swapped_in_bytes=swapped_in_bytes,
        swapped_bytes=max((_swapped(one) for one in chosen), default=0),
        memory_stall_s=_stall(first, last, "memory"),
        refault_bytes=_refaults(first, last),
        limit_bytes=limits[0].limit_bytes if limits else None,
        most_used_bytes=max(used, default=0),
        kills=_kills(first, last),
        idle_cores=_idle_cores(first, last, seconds),
        disk_busy=_disk_busy(first, last, seconds),
        disk_stall_s=_stall(first, last, "io"),
        disk_read_bytes=_disk_reads(chosen),
        faults=read_fault_time(chosen, {trainer_pid}) if swapped_in_bytes and trainer_pid else NO_FAULTS,
        worker_faults=read_fault_time(chosen, worker_pids) if swapped_in_bytes and worker_pids else NO_FAULTS,
    )


def _idle_cores(first: SystemSample, last: SystemSample, seconds: float) -> float | None:
    if first.machine is None or last.machine is None or seconds <= 0:
        return None
    idle = last.machine.cpu_idle_s + last.machine.cpu_iowait_s - first.machine.cpu_idle_s - first.machine.cpu_iowait_s
    return max(0.0, idle / seconds)


def _disk_busy(first: SystemSample, last: SystemSample, seconds: float) -> float | None:
    before = {disk.name: disk.busy_s for disk in first.disks or ()}
    shares = [(disk.busy_s - before[disk.name]) / seconds for disk in last.disks or () if disk.name in before]
    return min(1.0, max(shares)) if shares and seconds > 0 else None


def _throttling(first: SystemSample, last: SystemSample) -> tuple[float | None, float, float | None]:
    for before, now in zip(first.cpu_groups, last.cpu_groups, strict=False):
        periods = now.periods - before.periods
        if now.quota_cores is not None and periods > 0:
            share = (now.throttled_periods - before.throttled_periods) / periods
            return share, now.throttled_s - before.throttled_s, now.quota_cores
    return None, 0.0, None


def _num_working(first: SystemSample, last: SystemSample, seconds: float) -> int:
    count = 0
    for now in last.processes or first.processes:
        before = first.process(now.pid)
        used = now.cpu_user_s + now.cpu_system_s
        if before is not None:
            used -= before.cpu_user_s + before.cpu_system_s
        count += used > _NOT_IDLE * seconds
    return max(1, count)


def _swapped(sample: SystemSample) -> int:
    group = next((one.swap_bytes for one in sample.memory_groups if one.swap_bytes is not None), None)
    if group is not None:
        return group
    return sum(one.swap_bytes or 0 for one in sample.processes)


def _stall(first: SystemSample, last: SystemSample, resource: str) -> float | None:
    """Return how long a resource was waited for: by the group where it tells, else by anybody on the machine."""
    for scope in ("group", "machine"):
        before, now = first.pressure(resource, scope), last.pressure(resource, scope)
        if before is not None and now is not None:
            return now.some_total_s - before.some_total_s
    return None


def _disk_reads(samples: Sequence[SystemSample]) -> int | None:
    """Return what the processes fetched from disks; of one that was started meanwhile, all that it did."""
    before: dict[int, int] = {one.pid: one.read_bytes for one in samples[0].processes if one.read_bytes is not None}
    now: dict[int, int] = {}
    for sample in samples[1:]:
        now |= {one.pid: one.read_bytes for one in sample.processes if one.read_bytes is not None}
    return sum(read - before.get(pid, 0) for pid, read in now.items()) if now else None


def _refaults(first: SystemSample, last: SystemSample) -> int | None:
    """Return bytes of files that were read again: of the innermost group with a limit, else of the machine."""
    for before, now in zip(first.memory_groups, last.memory_groups, strict=False):
        if now.limit_bytes and before.refault_pages is not None and now.refault_pages is not None:
            return _PAGE_BYTES * (now.refault_pages - before.refault_pages)
    if first.machine is None or last.machine is None:
        return None
    if first.machine.refault_pages is None or last.machine.refault_pages is None:
        return None
    return _PAGE_BYTES * (last.machine.refault_pages - first.machine.refault_pages)


def _kills(first: SystemSample, last: SystemSample) -> int | None:
    for before, now in zip(first.memory_groups, last.memory_groups, strict=False):
        if before.kills is not None and now.kills is not None:
            return now.kills - before.kills
    return None
