"""What the system around a training did meanwhile, and what it did not give: processor time, memory. Pure.

Shortages look like something else from inside: a throttled decode is a slow decode, a dropped page cache a slow disk.
The kernel's counters decide, and what they account for is taken from the findings that it looked like.

The kernel's own account of waiting for memory (PSI) leaves most of what swap costs out. It counts the wait for a page
that comes back only if it was in use shortly before it went, and nothing of the processor time that faults, reading
ahead and the swap cache take; on a fast disk that is the larger part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_high
from typing import TYPE_CHECKING, NamedTuple

from headrace.model import (
    Bottleneck,
    Cause,
    Confidence,
    Finding,
    Severity,
    Text,
    format_bytes,
    format_seconds,
    format_share,
    gain_of,
    three_digits,
)

from ..remedies import FREE_CORES, make_finding
from ..steps import SUPPLY_CAUSES
from .processes import family_of

if TYPE_CHECKING:
    from headrace.signals.system import ProcessSample, SystemSample

# of the processor, for a page that is moved: 5 to 10 us with a disk, several times that where pages are compressed.
# What a process does in the kernel beyond that is something else.
_MOST_PAGE_S = 50e-6
_PAGE_BYTES = 4096
_NOT_IDLE = 0.02  # of a core: a process that used less did not compete for one
_LEAST_SHARE = 0.05
_IDLE_FROM = 0.15  # of the cores: less is what is left between one task and the next
_TAKEN_FROM = 0.15  # of the cores: every machine has a little besides
_WAITS_FROM = 0.1  # of the time without a core: more than the moment that it takes to be woken
_BESIDE_THREADS = 0.4  # of the waits for workers with too many threads: the most that others are given of them
_THROTTLED_FROM = 0.2  # of the periods: a quota that is used up now and then costs little
_SWAP_FROM = 1e6  # bytes a second
_REFAULTS_FROM = 5e6  # bytes a second: below, the disk hardly notices
_DATA = {*SUPPLY_CAUSES, Cause.STRAGGLER_SAMPLE}
_OWN_WORK = {Bottleneck.IPC_COPY, Bottleneck.SAMPLER}  # of the training process, inside `next`
_COMPUTES = {Bottleneck.CPU_DECODE, Bottleneck.GIL}

# A finding, which part of the waits for data it accounts for (0 to 1), and which part of everything else.
_Shortage = tuple[Finding, float, float]


_WHOSE = ("trainer", "workers", "ranks", "others", "idle")


@dataclass(frozen=True, kw_only=True)
class CoreAccount:
    """How many cores each used on average, of those that the training may use."""

    cores: float
    trainer: float
    workers: float  # of this trainer, and whatever else it started
    ranks: float  # other processes of the same run
    others: float  # on the machine, outside the run
    idle: float
    no_core: float = 0.0  # share of the time for which the training process was ready and had none
    worker_threads: int = 0  # of a worker; 0: not known
    children_of_worker: float = 0.0  # by programs that a worker started, and that ended

    @property
    def is_full(self) -> bool:
        return self.idle < _IDLE_FROM * self.cores

    @property
    def taken(self) -> float:
        """Return the share of the cores that others took: without them, no task gains more than that."""
        return min(1.0, (self.ranks + self.others) / self.cores)

    @property
    def said(self) -> Text:
        return Text(
            "the {cores} cores were full: the training process used {trainer} of them, its workers {workers}, other "
            "processes of this run {ranks}, processes outside it {others} ({outside}); {idle} were idle",
            "{cores} 个核心已满：训练进程用 {trainer} 个，它的 worker 用 {workers} 个，本次运行的其他进程用 {ranks} "
            "个，运行之外的进程用 {others} 个（{outside}）；空闲 {idle} 个",
        ).filled(
            cores=f"{self.cores:g}",
            outside=format_share(self.others / self.cores),
            **{name: f"{getattr(self, name):.2f}" for name in _WHOSE},
        )


def read_cores(
    samples: Sequence[SystemSample], cores: float, trainer_pid: int, worker_pids: Collection[int]
) -> CoreAccount | None:
    """Return the account from the first sample to the last; None where the machine, or the trainer, is not in both."""
    # A process that ended counts in its parent (`cpu_children_s`), so that workers which are started anew, or programs
    # that a data set calls, are not taken for somebody else's.
    first, last = samples[0], samples[-1]
    before, now = first.process(trainer_pid), last.process(trainer_pid)
    if first.machine is None or last.machine is None or before is None or now is None:
        return None
    seconds = (last.at_ns - first.at_ns) / 1e9
    parents = {one.pid: one.parent for sample in samples for one in sample.processes}
    family = family_of(trainer_pid, parents)
    run, own = ((_used(last, pids) - _used(first, pids)) / seconds for pids in (parents.keys(), family))
    trainer = (now.cpu_user_s + now.cpu_system_s - before.cpu_user_s - before.cpu_system_s) / seconds
    busy, idle = (
        sum(getattr(last.machine, name) - getattr(first.machine, name) for name in names) / seconds
        for names in (("cpu_user_s", "cpu_system_s", "cpu_steal_s"), ("cpu_idle_s", "cpu_iowait_s"))
    )
    left = max(0.0, cores - run)  # where the training may use some of the machine's cores only, the rest is not its own
    threads = [one.threads for one in last.processes if one.pid in worker_pids]
    delay_s = (now.run_delay_s or 0.0) - (before.run_delay_s or 0.0)
    return CoreAccount(
        cores=cores,
        trainer=trainer,
        workers=max(0.0, own - trainer),
        ranks=max(0.0, run - own),
        others=min(left, max(0.0, busy - run)),
        idle=min(left, idle),
        no_core=min(1.0, delay_s / seconds),
        worker_threads=median_high(threads) if threads else 0,
        children_of_worker=_by_children(samples, worker_pids),
    )


def _used(sample: SystemSample, pids: Collection[int]) -> float:
    chosen = [one for one in sample.processes if one.pid in pids]
    return sum(one.cpu_user_s + one.cpu_system_s + (one.cpu_children_s or 0.0) for one in chosen)


def _by_children(samples: Sequence[SystemSample], pids: Collection[int]) -> float:
    """Return how many cores the ended children of some processes used, for each process while it was seen."""
    seen: dict[int, list[tuple[int, float]]] = {}
    for sample in samples:
        for one in sample.processes:
            if one.pid in pids:
                seen.setdefault(one.pid, []).append((sample.at_ns, one.cpu_children_s or 0.0))
    used, seconds = (
        sum(one[-1][1] - one[0][1] for one in seen.values()),
        sum(one[-1][0] - one[0][0] for one in seen.values()),
    )
    return used / (seconds / 1e9) if seconds else 0.0


class FaultTime(NamedTuple):
    """Seconds of a process's wall clock that went into fetching pages back, of those for which it was looked at."""

    in_kernel_s: float = 0.0
    no_core_s: float = 0.0  # ready to go on with that, and no core was free
    asleep_s: float = 0.0
    seen_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.in_kernel_s + self.no_core_s + self.asleep_s


NO_FAULTS = FaultTime()


def read_fault_time(samples: Sequence[SystemSample], pids: Collection[int]) -> FaultTime:
    """Return what faults cost some processes together, from the first of some samples to the last."""
    times = [NO_FAULTS]
    for first, last in pairwise(samples):
        before = {one.pid: one for one in first.processes if one.pid in pids}
        times += [_between(first, last, before[now.pid], now) for now in last.processes if now.pid in before]
    return FaultTime(*map(sum, zip(*times, strict=True)))


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
    return FaultTime(in_kernel_s * part, no_core_s * part, asleep_s * part, wall_s)


def _asleep_s(first: SystemSample, last: SystemSample, sleeps: int) -> float:
    """Return how long faults slept: so many of them, a read of the disk each."""
    # Compressed memory answers without sleep: a fault for which the process did not go to sleep is not among them. And
    # nobody slept for longer than the kernel saw anybody wait for disks (PSI), where it tells.
    reads = sum(disk.reads for disk in last.disks) - sum(disk.reads for disk in first.disks)
    read_s = sum(disk.read_s for disk in last.disks) - sum(disk.read_s for disk in first.disks)
    asleep_s = max(0.0, sleeps * read_s / reads) if reads > 0 else 0.0
    waited_s = _stall(first, last, "io", scopes=("machine",))
    return asleep_s if waited_s is None else min(asleep_s, waited_s)


def _grown(before: int | None, now: int | None, *, unknown: int) -> int:
    return max(0, now - before) if before is not None and now is not None else unknown


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Sums and shares over some seconds, more than 0; None: the kernel does not tell, or nothing limits it."""

    seconds: float
    throttled_share: float | None  # of the periods of a CPU quota, those in which it was used up
    throttled_s: float  # for which work stood still, a core's worth each
    quota_cores: float | None
    num_working: int  # processes that used a core for some of the time
    swapped_in_bytes_per_s: float
    swapped_bytes: int  # of the training, at the end
    memory_stall_s: float | None  # at least one task waited for memory
    refault_bytes_per_s: float  # of files, read again because memory was too short to keep them
    limit_bytes: int | None  # of the innermost memory group that has one
    most_used_bytes: int
    kills: int | None  # by the kernel, for memory
    account: CoreAccount | None = None  # whose cores they were
    disk_busy: float | None = None  # share of the time with a request in flight, of the busiest disk
    disk_stall_s: float | None = None  # at least one task waited for a disk
    disk_read_bytes: int | None = None  # by the training, from disks: what lay in memory is not among them
    faults: FaultTime = NO_FAULTS  # of the process that trains
    worker_faults: FaultTime = NO_FAULTS  # of its workers, together

    @property
    def standing_share(self) -> float:
        """Return the share of the time for which a quota let nobody work, at most."""
        # Throttled time counts every core that had work; and `n` processes that always want to run use a quota of `q`
        # cores up in `q / n` of each period, no sooner.
        if not self.throttled_share or self.quota_cores is None:
            return 0.0
        num = max(1, self.num_working)
        return max(0.0, min(self.throttled_share, self.throttled_s / self.seconds / num, 1 - self.quota_cores / num))


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
    chosen = [one for one in samples if start_ns <= one.at_ns <= end_ns]
    if len(chosen) < 2:
        earlier = [one for one in samples if one.at_ns < start_ns][-1:]
        chosen = [*earlier, *chosen, *[one for one in samples if one.at_ns > end_ns][:1]]
    if len(chosen) < 2 or chosen[0].at_ns == chosen[-1].at_ns:
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
    used_s = {one.pid: one.cpu_user_s + one.cpu_system_s for one in first.processes}
    worked = [one.cpu_user_s + one.cpu_system_s - used_s.get(one.pid, 0.0) for one in last.processes]
    num_busy = sum(worked_s > _NOT_IDLE * seconds for worked_s in worked)
    busy_s = {disk.name: disk.busy_s for disk in first.disks}
    disks = [(disk.busy_s - busy_s[disk.name]) / seconds for disk in last.disks if disk.name in busy_s]
    groups = zip(first.memory_groups, last.memory_groups, strict=False)
    kills = [now.kills - was.kills for was, now in groups if was.kills is not None and now.kills is not None]
    return Surroundings(
        seconds=seconds,
        throttled_share=throttled_share,
        throttled_s=throttled_s,
        quota_cores=quota,
        num_working=max(1, min(round(cores), num_busy)),
        swapped_in_bytes_per_s=swapped_in_bytes / seconds,
        swapped_bytes=max((_swapped(one) for one in chosen), default=0),
        memory_stall_s=_stall(first, last, "memory"),
        refault_bytes_per_s=_refaults(first, last) / seconds,
        limit_bytes=limits[0].limit_bytes if limits else None,
        most_used_bytes=max(used, default=0),
        kills=kills[0] if kills else None,
        account=read_cores(chosen, cores, trainer_pid, worker_pids) if trainer_pid else None,
        disk_busy=min(1.0, max(disks)) if disks else None,
        disk_stall_s=_stall(first, last, "io"),
        disk_read_bytes=_disk_reads(chosen),
        faults=read_fault_time(chosen, {trainer_pid}) if swapped_in_bytes and trainer_pid else NO_FAULTS,
        worker_faults=read_fault_time(chosen, worker_pids) if swapped_in_bytes and worker_pids else NO_FAULTS,
    )


def _throttling(first: SystemSample, last: SystemSample) -> tuple[float | None, float, float | None]:
    for before, now in zip(first.cpu_groups, last.cpu_groups, strict=False):
        periods = now.periods - before.periods
        if now.quota_cores is not None and periods > 0:
            share = (now.throttled_periods - before.throttled_periods) / periods
            return share, now.throttled_s - before.throttled_s, now.quota_cores
    return None, 0.0, None


def _swapped(sample: SystemSample) -> int:
    known = [one.swap_bytes for one in sample.memory_groups if one.swap_bytes is not None]
    return known[0] if known else sum(one.swap_bytes or 0 for one in sample.processes)


def _stall(
    first: SystemSample, last: SystemSample, resource: str, scopes: Sequence[str] = ("group", "machine")
) -> float | None:
    """Return how long a resource was waited for: by the group where it tells, else by anybody on the machine."""
    for scope in scopes:
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


def _refaults(first: SystemSample, last: SystemSample) -> int:
    """Return bytes of files that were read again: of the innermost group with a limit, else of the machine."""
    for group, later in zip(first.memory_groups, last.memory_groups, strict=False):
        before, now = group.refault_pages, later.refault_pages
        if later.limit_bytes and before is not None and now is not None:
            return _PAGE_BYTES * (now - before)
    before, now = (one.machine.refault_pages if one.machine is not None else None for one in (first, last))
    return _PAGE_BYTES * (now - before) if before is not None and now is not None else 0


def find_shortages(
    around: Surroundings, found: list[Finding], *, wait_share: float
) -> tuple[list[Finding], list[Finding]]:
    """Return the shortages that cost enough to be told, and the rest of `found`, which is how it looks from inside."""
    # What shortages account for is taken out of the rest: the same second is not told twice.
    shortages, rest = [], list(found)
    data = next((one for one in found if one.cause in _DATA), None)
    of_cores = _throttled(around) or find_contention(around.account, data, wait_share=wait_share)
    for one in (of_cores, _swapping(around, data, wait_share) or _pressed(around, found, wait_share)):
        if one is not None:
            shortage, of_waits, of_rest = one
            shortages.append(shortage)
            left = [(each, each.share * (1 - (of_waits if each.cause in _DATA else of_rest))) for each in rest]
            rest = [
                replace(each, share=share, severity=Severity.of_share(share), gain=gain_of(share))
                for each, share in left
                # Slow steps for want of a core have a cause, whichever of them it was, as far as cores were wanted.
                if share >= _LEAST_SHARE
                and (share > shortage.share or {each.cause, shortage.cause} != {Cause.UNKNOWN, Cause.CPU_CONTENDED})
            ]
    return shortages, rest


def _throttled(around: Surroundings) -> _Shortage | None:
    share = around.standing_share
    if around.throttled_share is None or around.throttled_share < _THROTTLED_FROM or share < _LEAST_SHARE:
        return None
    said = Text(
        "the control group may use {quota} cores, and in {throttled} of its periods they were used up: what ran "
        "then stood still for {stood} of the time (estimate: throttled time / processes that worked)",
        "所在 cgroup 的 CPU 配额是 {quota} 核，有 {throttled} 的周期配额被用尽：当时在运行的进程都被停住，约占时间的 "
        "{stood}（估算：限流时间 / 有负载的进程数）",
    ).filled(
        quota=three_digits(around.quota_cores or 0.0),
        throttled=format_share(around.throttled_share),
        stood=format_share(share),
    )
    figures = {"throttled_share": around.throttled_share, "throttled_s": around.throttled_s}
    return make_finding(Cause.CPU_THROTTLED, share, [said], figures=figures), share, share


def find_contention(account: CoreAccount | None, data: Finding | None, *, wait_share: float) -> _Shortage | None:
    """Return what others on the cores cost, which part of the waits for data that is, and which of everything else."""
    # Waiting for a core is what was lost, and others' share of the cores is the most that comes back without them. What
    # the training itself fills its cores with is its own doing, and told where it waits for it.
    if account is None or not account.is_full or account.taken < _TAKEN_FROM:
        return None
    figures = data.figures if data is not None else {}
    task_no_core = figures.get("task_no_core_share", 0.0)
    # What it waits for may be its own work: fetching, unpickling.
    is_own = data is not None and (data.bottleneck in _OWN_WORK or not figures.get("num_workers", 1.0))
    own, rest = min(account.no_core, account.taken) if account.no_core >= _WAITS_FROM else 0.0, max(0.0, 1 - wait_share)
    in_waits, itself = 0.0, min(rest, own)
    if data is not None and is_own:
        in_waits, itself = own * data.share, own * rest
    elif data is not None:
        # Workers are what it waits for: of its own delays only what goes beyond theirs would come back.
        most = min(account.taken, task_no_core if task_no_core >= _WAITS_FROM else 0.0)
        if data.bottleneck is Bottleneck.THREADS:  # they crowd the cores themselves, and that can be changed here
            most = min(most, _BESIDE_THREADS * data.share)
        in_waits = min(most, data.share, wait_share)
        itself = min(itself, most - in_waits)
    if in_waits + itself < _LEAST_SHARE:
        return None
    lost = Text(
        "ready to run, and without a core: the training process for {own} of its time, the fetching of a batch for "
        "{task}",
        "可以运行却没有核心：训练进程占其时间的 {own}，读取 batch 占 {task}",
    ).filled(own=format_share(account.no_core), task=format_share(task_no_core))
    known = {f"{name}_cores": getattr(account, name) for name in _WHOSE} | {"no_core_share": account.no_core}
    finding = make_finding(
        Cause.CPU_CONTENDED, in_waits + itself, [account.said, lost], figures=known, confidence=Confidence.LIKELY
    )
    if account.ranks > account.others:  # it is the run itself that has more processes than cores
        finding = replace(finding, fix=tuple(text for text in finding.fix if text is not FREE_CORES))
    return finding, in_waits / data.share if data is not None and in_waits else 0.0, itself / rest if rest else 0.0


def _swapping(around: Surroundings, data: Finding | None, wait_share: float) -> _Shortage | None:
    """Memory that was fetched back from disk: what that took of the training process itself, and of its waits."""
    # A wait for data loses the part of it that faults have of the workers' work.
    rate = around.swapped_in_bytes_per_s
    if rate < _SWAP_FROM or not around.swapped_bytes:
        return None
    of_waits = in_waits = 0.0
    if data is not None and around.worker_faults.seconds:
        faulting = around.worker_faults.seconds / around.worker_faults.seen_s
        of_waits = faulting / max(faulting, data.figures.get("busy_share", 1.0))
        in_waits = of_waits * min(data.share, wait_share)
    rest = max(0.0, 1 - wait_share)
    itself = min(rest, around.faults.seconds / around.seconds)
    share, of_rest = in_waits + itself, itself / rest if rest else 0.0
    stall = around.memory_stall_s
    stalled = min(1.0, (stall or 0.0) / around.seconds)
    if stalled > share:  # by tasks that no sample tells of
        share, of_waits, of_rest = stalled, stalled, stalled
    if share < _LEAST_SHARE:
        return None
    said = Text(
        "{rate}/s came back from swap, and {swapped} of the training lay there at most. In {seconds} the training "
        "process spent {kernel} in the kernel on that ({no_core} of it without a core) and slept {asleep} for pages "
        "(estimate: its major faults x the disk's time for a read). The kernel's own count of waiting for memory "
        "leaves most of that out: {stall}",
        "每秒从交换区换回 {rate}，训练最多有 {swapped} 被换出。{seconds} 中，训练进程为此在内核里用了 {kernel}（其中 "
        "{no_core} 在等 CPU 核），并睡眠 {asleep} 等待页面换回（估算：主缺页次数 × 磁盘单次读取时间）。内核自己统计的"
        "等内存时间为 {stall}，它不含上述大部分开销",
    ).filled(
        rate=format_bytes(round(rate)),
        swapped=format_bytes(around.swapped_bytes),
        seconds=format_seconds(around.seconds),
        kernel=format_seconds(around.faults.in_kernel_s + around.faults.no_core_s),
        no_core=format_seconds(around.faults.no_core_s),
        asleep=format_seconds(around.faults.asleep_s),
        stall=format_seconds(stall) if stall is not None else "-",
    )
    figures = {
        "swap_in_bytes_per_s": rate,
        "memory_stall_s": stall or 0.0,
        "fault_kernel_s": around.faults.in_kernel_s,
        "fault_no_core_s": around.faults.no_core_s,
        "fault_asleep_s": around.faults.asleep_s,
        "worker_fault_s": around.worker_faults.seconds,
    }
    return make_finding(Cause.SWAP, share, [said, *_limit_text(around)], figures=figures), of_waits, of_rest


def _pressed(around: Surroundings, found: list[Finding], wait_share: float) -> _Shortage | None:
    """Memory that is short without swap: files that were just read are dropped, and read again."""
    stall = around.memory_stall_s or 0.0
    share = of_waits = of_rest = min(1.0, stall / around.seconds)
    rate = around.refault_bytes_per_s
    if around.limit_bytes is None and rate < _REFAULTS_FROM and around.swapped_in_bytes_per_s < _SWAP_FROM:
        return None  # the machine has enough: others waited, under a limit of their own
    data = next((one for one in found if one.cause in _DATA and one.bottleneck not in _COMPUTES), None)
    again = _read_again(around, data) if data is not None else 0.0
    if data is not None and again:
        # Without these reads a task takes so much less, and what the loop gains it no longer waits.
        lost = min(data.share, wait_share or data.share, again * data.figures.get("task_blocked_share", data.share))
        if around.disk_stall_s is not None:
            lost = min(lost, around.disk_stall_s / around.seconds)
        if lost >= share:
            share, of_waits, of_rest = lost, lost / data.share, 0.0
    if share < _LEAST_SHARE:
        return None
    said = Text(
        "{rate}/s of files were read again that had been in memory shortly before ({again} of what came from disks): "
        "there was no room to keep them. Memory itself was waited for during {stall} of {seconds}",
        "每秒有 {rate} 的文件内容刚被挤出内存又要重新读入（占从磁盘读取量的 {again}）：放不下。直接等内存的时间为 "
        "{seconds} 中的 {stall}",
    ).filled(
        rate=format_bytes(round(rate)),
        again=format_share(again),
        stall=format_seconds(stall),
        seconds=format_seconds(around.seconds),
    )
    figures = {"refault_bytes_per_s": rate, "read_again_share": again, "memory_stall_s": stall}
    # without a limit of our own it is the machine that was short: others may have waited, not we
    sure = Confidence.LIKELY if around.limit_bytes is None else Confidence.CERTAIN
    finding = make_finding(Cause.MEMORY_PRESSURE, share, [said, *_limit_text(around)], figures=figures, confidence=sure)
    return finding, of_waits, of_rest


def _read_again(around: Surroundings, data: Finding) -> float:
    """Return which part of the reads that took time would not have been without the shortage, 0 to 1."""
    # Reads that find their file in memory take none, so what counts is what came from disks. Where that is not known,
    # or how long disks were waited for, all that tasks read stands for it.
    rate = around.refault_bytes_per_s
    read = data.figures.get("read_bytes_per_s", 0.0) * max(1.0, data.figures.get("num_workers", 1.0))
    # Without a limit of our own the count is the machine's: only tasks that read can have waited for it.
    if rate < _REFAULTS_FROM or (read <= 0 and around.limit_bytes is None):
        return 0.0
    if around.disk_read_bytes and around.disk_stall_s is not None:
        read = around.disk_read_bytes / around.seconds
    return min(1.0, rate / read) if read > 0 else 1.0


def _limit_text(around: Surroundings) -> tuple[Text, ...]:
    if around.limit_bytes is None:
        return ()
    said = Text(
        "the control group holds {used} at most, its limit is {limit}", "所在 cgroup 最多用到 {used}，上限 {limit}"
    )
    return (said.filled(used=format_bytes(around.most_used_bytes), limit=format_bytes(around.limit_bytes)),)
