"""The processor account: whose cores they were while a training ran, and what it lost because they were full. Pure.

Counters of the kernel only. A process that ended counts in its parent (`cpu_children_s`), so that workers which are
started anew, or programs that a data set calls, are not taken for somebody else's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import median_high
from typing import TYPE_CHECKING

from headrace.model import Bottleneck, Cause, Finding, Text, format_share

from ..remedies import FREE_CORES, make_finding

if TYPE_CHECKING:
    from headrace.signals.system import SystemSample

_IDLE_FROM = 0.15  # of the cores: less is what is left between one task and the next
_TAKEN_FROM = 0.15  # of the cores: every machine has a little besides
_LEAST_SHARE = 0.05
_WAITS_FROM = 0.1  # of the time without a core: more than the moment that it takes to be woken


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

    @property
    def is_full(self) -> bool:
        return self.idle < _IDLE_FROM * self.cores

    @property
    def taken(self) -> float:
        """Return the share of the cores that others took: without them, no task gains more than that."""
        return min(1.0, (self.ranks + self.others) / self.cores)

    @property
    def said(self) -> Text:
        names = ("trainer", "workers", "ranks", "others", "idle")
        return Text(
            "the {cores} cores were full: the training process used {trainer} of them, its workers {workers}, other "
            "processes of this run {ranks}, processes outside it {others} ({outside}); {idle} were idle",
            "{cores} 个核心已满：训练进程用 {trainer} 个，它的 worker 用 {workers} 个，本次运行的其他进程用 {ranks} "
            "个，运行之外的进程用 {others} 个（{outside}）；空闲 {idle} 个",
        ).filled(
            cores=f"{self.cores:g}",
            outside=format_share(self.others / self.cores),
            **{name: f"{getattr(self, name):.2f}" for name in names},
        )


def read_cores(
    samples: Sequence[SystemSample], cores: float, trainer_pid: int, worker_pids: Collection[int]
) -> CoreAccount | None:
    """Return the account from the first sample to the last; None where the machine, or the trainer, is not in both."""
    first, last = samples[0], samples[-1]
    before, now = first.process(trainer_pid), last.process(trainer_pid)
    if first.machine is None or last.machine is None or before is None or now is None:
        return None
    seconds = (last.at_ns - first.at_ns) / 1e9
    family, parents = {trainer_pid}, {one.pid: one.parent for sample in samples for one in sample.processes}
    for _ in range(8):  # a worker's parent may be a process that the trainer started for it
        family |= {pid for pid, parent in parents.items() if parent in family}
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
    )


def _used(sample: SystemSample, pids: Collection[int]) -> float:
    chosen = [one for one in sample.processes if one.pid in pids]
    return sum(one.cpu_user_s + one.cpu_system_s + (one.cpu_children_s or 0.0) for one in chosen)


def find_contention(
    account: CoreAccount | None, data: Finding | None, *, wait_share: float
) -> tuple[Finding, float, float] | None:
    """Return what others on the cores cost, which part of the waits for data that is, and which of everything else."""
    # Waiting for a core is what was lost, and others' share of the cores is the most that comes back without them. What
    # the training itself fills its cores with is its own doing, and told where it waits for it.
    if account is None or not account.is_full or account.taken < _TAKEN_FROM:
        return None
    figures = data.figures if data is not None else {}
    task_no_core = figures.get("task_no_core_share", 0.0)
    # What it waits for may be its own work: fetching, unpickling.
    is_own = data is not None and (data.bottleneck is Bottleneck.IPC_COPY or not figures.get("num_workers", 1.0))
    own, rest = min(account.no_core, account.taken) if account.no_core >= _WAITS_FROM else 0.0, max(0.0, 1 - wait_share)
    in_waits = 0.0
    if data is not None and (is_own or task_no_core >= _WAITS_FROM):
        in_waits = own * data.share if is_own else min(data.share, wait_share, account.taken, task_no_core)
    itself = own * rest if is_own else min(rest, own)
    if in_waits + itself < _LEAST_SHARE:
        return None
    lost = Text(
        "ready to run, and without a core: the training process for {own} of its time, the fetching of a batch for "
        "{task}",
        "可以运行却没有核心：训练进程占其时间的 {own}，读取 batch 占 {task}",
    ).filled(own=format_share(account.no_core), task=format_share(task_no_core))
    known = {
        **{f"{name}_cores": getattr(account, name) for name in ("trainer", "workers", "ranks", "others", "idle")},
        "no_core_share": account.no_core,
    }
    finding = make_finding(Cause.CPU_CONTENDED, in_waits + itself, [account.said, lost], figures=known)
    if account.ranks > account.others:  # it is the run itself that has more processes than cores
        finding = replace(finding, fix=tuple(text for text in finding.fix if text is not FREE_CORES))
    return finding, in_waits / data.share if data is not None and in_waits else 0.0, itself / rest if rest else 0.0
