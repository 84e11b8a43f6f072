"""What `headrace watch` saw in one stretch of time: plain values, and the line of JSON that they make."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from headrace.model import Text
from headrace.signals import Frame
from headrace.signals.system import GpuSample, ProcessSample, SystemSample

from .processes import End
from .reading import Detail, TrainerActivity, WorkerActivity
from .shares import NOTHING_SEEN, Share

SCHEMA = "headrace/watch/2"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a process holds, and what it used per second."""

    cpu_share: float = 0.0  # of one processor; more than 1 with several threads
    rss_bytes: int = 0
    pss_bytes: int | None = None  # shared pages divided among their holders; asked seldom
    read_bytes_per_s: float | None = None  # by read calls, from wherever; None where it is not ours to see

    @property
    def held_bytes(self) -> int:
        return self.rss_bytes if self.pss_bytes is None else self.pss_bytes


def rates_between(first: ProcessSample | None, second: ProcessSample | None, seconds: float) -> Rates:
    """What was used between two samples; without a first one only what is held now."""
    if second is None:
        return Rates()
    held = Rates(rss_bytes=second.rss_bytes, pss_bytes=second.pss_bytes)
    if first is None or seconds <= 0:
        return held
    used_s = second.cpu_user_s + second.cpu_system_s - first.cpu_user_s - first.cpu_system_s
    before, after = first.read_calls_bytes, second.read_calls_bytes
    read = None if before is None or after is None else max(0, after - before) / seconds
    return replace(held, cpu_share=max(0.0, used_s) / seconds, read_bytes_per_s=read)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a thread stands, as words: what it waits in and on which file."""

    state: str = ""
    call: str = ""
    wait_channel: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class ProcessLook:
    """What is seen of any process in one stretch of time."""

    pid: int
    started: int
    activity: TrainerActivity | WorkerActivity  # at the end of the stretch
    at: Frame | None = None  # of the user's code
    stack: tuple[Frame, ...] = ()
    rates: Rates = field(default_factory=Rates)
    standing: Standing = field(default_factory=Standing)
    same_for_s: float = 0.0  # so long it has stood at the same place without getting on

    @property
    def place(self) -> str:
        """Where it stands: its frame, and the file or call that it waits in."""
        parts = [str(self.at or ""), self.standing.file, self.standing.call or self.standing.wait_channel]
        return ", ".join(part for part in parts if part) or self.activity.code

    def as_json(self) -> dict[str, object]:
        at = self.at
        return {
            "pid": self.pid,
            "activity": self.activity.code,
            "at": None if at is None else {"file": at.file, "line": at.line, "function": at.function},
            "same_for_s": round(self.same_for_s, 3),
            **asdict(self.rates),
            **asdict(self.standing),
        }


@dataclass(frozen=True, kw_only=True)
class WorkerLook(ProcessLook):
    """One process of loader workers in one stretch of time: one worker, or several that are threads."""

    trainer_pid: int | None
    name: str
    num_workers: int = 1
    is_ours: bool = False  # of our own loader, not of torch's
    shares: Mapping[WorkerActivity, float] = field(default_factory=dict)  # of this stretch
    busy: Share = NOTHING_SEEN  # of all the time watched

    def as_json(self) -> dict[str, object]:
        return {
            **super().as_json(),
            "trainer_pid": self.trainer_pid,
            "name": self.name,
            "num_workers": self.num_workers,
            "is_ours": self.is_ours,
            "shares": {activity.code: round(share, 4) for activity, share in self.shares.items()},
            "busy": self.busy.as_json(),
        }


@dataclass(frozen=True, kw_only=True)
class TrainerLook(ProcessLook):
    """One training process in one stretch of time, and its share of each activity since the watch began."""

    rank: int | None
    command: str
    shares: Mapping[TrainerActivity, Share] = field(default_factory=dict)  # of all the time watched
    details: Mapping[Detail, float] = field(default_factory=dict)  # of all the time watched
    num_samples: int = 0
    other_at: str = ""  # where most of what is neither computing nor a wait for data was seen
    problem: str = ""  # why there were no stacks

    @property
    def name(self) -> str:
        return "the trainer" if self.rank is None else f"rank {self.rank}"

    @property
    def wait(self) -> Share:
        """The share of time in which the loop waited for data (evaluation apart)."""
        return self.shares.get(TrainerActivity.DATA_WAIT, NOTHING_SEEN)

    def as_json(self) -> dict[str, object]:
        return {
            **super().as_json(),
            "rank": self.rank,
            "command": self.command,
            "shares": {activity.code: share.as_json() for activity, share in self.shares.items()},
            "details": {detail.value: round(share, 4) for detail, share in self.details.items() if detail.value},
            "samples": self.num_samples,
            "problem": self.problem,
        }


@dataclass(frozen=True, kw_only=True)
class MachineLook:
    """The machine around the training; None: not known here."""

    memory_used_bytes: int | None = None  # without what the kernel can drop
    memory_limit_bytes: int | None = None  # of the control group, else the machine's memory
    memory_source: str = ""
    tree_bytes: int = 0  # the training's processes together: PSS where known, else RSS
    swap_in_bytes_per_s: float | None = None
    pressure: Mapping[str, float] = field(default_factory=dict)  # "cpu", "memory", "io": share of the last 10 s
    shm_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    cpu_share: float | None = None  # of all processors, busy with anything
    gpus: tuple[GpuSample, ...] = ()

    def as_json(self) -> dict[str, object]:
        gpus = [
            {"index": g.number, "busy_share": g.utilisation, "used_bytes": g.used_bytes, "total_bytes": g.total_bytes}
            for g in self.gpus
        ]
        return {**asdict(self), "gpus": gpus}


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that somebody should look at now."""

    kind: str  # memory, swap_in, stuck, worker_gone, trainer_gone
    pid: int | None
    what: Text
    evidence: Mapping[str, object] = field(default_factory=dict)

    def as_json(self, language: str = "en") -> dict[str, object]:
        return {"kind": self.kind, "pid": self.pid, "what": self.what.of(language), "evidence": dict(self.evidence)}


@dataclass(frozen=True, kw_only=True)
class Look:
    """Everything that was seen in one stretch of time."""

    at: str  # UTC
    watched_s: float
    trainers: tuple[TrainerLook, ...]
    workers: tuple[WorkerLook, ...]
    machine: MachineLook = field(default_factory=MachineLook)
    alarms: tuple[Alarm, ...] = ()
    ended: tuple[End, ...] = ()
    stacks_age_s: float | None = None  # since the stacks were sampled on which this rests; None: there are none

    def as_json(self, language: str = "en") -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "event": "look",
            "at": self.at,
            "watched_s": round(self.watched_s, 3),
            "stacks_age_s": None if self.stacks_age_s is None else round(self.stacks_age_s, 3),
            "trainers": [trainer.as_json() for trainer in self.trainers],
            "workers": [worker.as_json() for worker in self.workers],
            "machine": self.machine.as_json(),
            "alarms": [alarm.as_json(language) for alarm in self.alarms],
            "ended": [{"pid": e.pid, "exit_code": e.exit_code, "signal": e.signal_number} for e in self.ended],
        }


def machine_look(first: SystemSample | None, second: SystemSample) -> MachineLook:
    """What the later of two samples holds, and what happened between them."""
    machine = second.machine
    # use, limit and whose: the group or the machine, whichever is nearer to its end
    found: list[tuple[int, int, str]] = [
        (max(0, group.used_bytes - group.inactive_file_bytes), group.limit_bytes, f"cgroup v{group.version}")
        for group in second.memory_groups
        if group.limit_bytes
    ]
    if machine is not None and machine.total_bytes:
        found.append((machine.total_bytes - machine.available_bytes, machine.total_bytes, "machine"))
    used, limit, source = max(found, key=lambda one: one[0] / one[1], default=(None, None, ""))
    before = first.machine if first is not None else None
    seconds = (second.at_ns - first.at_ns) / 1e9 if first is not None else 0.0
    swap_in = cpu_share = None
    if machine is not None and before is not None and seconds > 0:
        swap_in = max(0, machine.swap_in_pages - before.swap_in_pages) * _PAGE_BYTES / seconds
        idle_s = machine.cpu_idle_s + machine.cpu_iowait_s - before.cpu_idle_s - before.cpu_iowait_s
        busy_s = machine.cpu_user_s + machine.cpu_system_s - before.cpu_user_s - before.cpu_system_s
        cpu_share = busy_s / (busy_s + idle_s) if busy_s + idle_s > 0 else None
    pressures = {name: second.pressure(name, "group") or second.pressure(name) for name in ("cpu", "memory", "io")}
    shm_total, shm_free = (machine.shm_total_bytes, machine.shm_free_bytes) if machine else (None, None)
    return MachineLook(
        memory_used_bytes=used,
        memory_limit_bytes=limit,
        memory_source=source,
        tree_bytes=sum(rates_between(None, one, 0).held_bytes for one in second.processes),
        swap_in_bytes_per_s=swap_in,
        pressure={name: found.some_avg10 for name, found in pressures.items() if found is not None},
        shm_used_bytes=shm_total - shm_free if shm_total is not None and shm_free is not None else None,
        shm_total_bytes=shm_total,
        cpu_share=cpu_share,
        gpus=tuple(second.gpus or ()),
    )
