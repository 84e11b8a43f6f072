"""What `headrace watch` saw in one stretch of time: plain values, and the line of JSON that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model import Text
from headrace.signals import Frame

from .end import End
from .shares import NOTHING_SEEN, Share
from .stack_reading import Activity, Detail, Reading
from .usage import Rates
from .worker_reading import WorkerActivity

SCHEMA = "headrace/watch/1"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a thread stands, as words: what it waits in and on which file."""

    state: str = ""
    call: str = ""
    wait_channel: str = ""
    file: str = ""
    position: int | None = None
    size_bytes: int | None = None

    def as_json(self) -> dict[str, object]:
        return {
            "state": self.state,
            "call": self.call,
            "wait_channel": self.wait_channel,
            "file": self.file,
            "position": self.position,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class WorkerLook:
    """One process of loader workers in one stretch of time: one worker, or several that are threads."""

    pid: int
    started: int
    trainer_pid: int | None
    name: str
    num_workers: int = 1
    is_ours: bool = False  # of our own loader, not of torch's
    activity: WorkerActivity  # at the end of the stretch
    at: Frame | None = None
    stack: tuple[Frame, ...] = ()
    rates: Rates = field(default_factory=Rates)
    standing: Standing = field(default_factory=Standing)
    shares: Mapping[WorkerActivity, float] = field(default_factory=dict)  # of this stretch
    busy: Share = NOTHING_SEEN  # of all the time watched
    same_for_s: float = 0.0  # so long it has stood at the same place without getting on

    def as_json(self) -> dict[str, object]:
        return {
            "pid": self.pid,
            "trainer_pid": self.trainer_pid,
            "name": self.name,
            "num_workers": self.num_workers,
            "is_ours": self.is_ours,
            "activity": self.activity.value,
            "at": _place(self.at),
            "shares": {activity.value: round(share, 4) for activity, share in self.shares.items()},
            "busy": self.busy.as_json(),
            "same_for_s": round(self.same_for_s, 3),
            **_usage_json(self.rates),
            **self.standing.as_json(),
        }


@dataclass(frozen=True, kw_only=True)
class TrainerLook:
    """One training process in one stretch of time, and its share of each activity since the watch began."""

    pid: int
    started: int
    rank: int | None
    command: str
    reading: Reading
    stack: tuple[Frame, ...] = ()
    rates: Rates = field(default_factory=Rates)
    standing: Standing = field(default_factory=Standing)
    window: Mapping[Activity, float] = field(default_factory=dict)  # shares of this stretch
    shares: Mapping[Activity, Share] = field(default_factory=dict)  # of all the time watched
    details: Mapping[Detail, float] = field(default_factory=dict)  # of all the time watched
    num_samples: int = 0
    source: str = ""  # "py-spy", or "kernel" where there were no stacks
    problem: str = ""  # why there were none
    same_for_s: float = 0.0  # so long it has stood at the same place without getting on

    @property
    def wait(self) -> Share:
        """The share of time in which the loop waited for data (evaluation apart)."""
        return self.shares.get(Activity.DATA_WAIT, NOTHING_SEEN)

    def as_json(self) -> dict[str, object]:
        return {
            "pid": self.pid,
            "rank": self.rank,
            "command": self.command,
            "activity": self.reading.activity.value,
            "detail": self.reading.detail.value,
            "at": _place(self.reading.at),
            "window": {activity.value: round(share, 4) for activity, share in self.window.items()},
            "shares": {activity.value: share.as_json() for activity, share in self.shares.items()},
            "details": {detail.value: round(share, 4) for detail, share in self.details.items() if detail.value},
            "samples": self.num_samples,
            "source": self.source,
            "problem": self.problem,
            "same_for_s": round(self.same_for_s, 3),
            **_usage_json(self.rates),
            **self.standing.as_json(),
        }


@dataclass(frozen=True, kw_only=True)
class GpuLook:
    """One GPU, as its driver tells."""

    index: int
    busy_share: float | None
    used_bytes: int | None
    total_bytes: int | None

    def as_json(self) -> dict[str, object]:
        return {
            "index": self.index,
            "busy_share": self.busy_share,
            "used_bytes": self.used_bytes,
            "total_bytes": self.total_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class MachineLook:
    """The machine around the training; None: not known here."""

    memory_used_bytes: int | None = None  # without what the kernel can drop
    memory_limit_bytes: int | None = None  # of the control group, else the machine's memory
    memory_source: str = ""
    tree_bytes: int = 0  # the training's processes together: PSS where known, else RSS
    swap_in_bytes_per_s: float | None = None
    swap_used_bytes: int | None = None
    pressure: Mapping[str, float] = field(default_factory=dict)  # "cpu", "memory", "io": share of the last 10 s
    shm_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    gpus: tuple[GpuLook, ...] = ()
    cpu_share: float | None = None  # of all processors, busy with anything

    @property
    def memory_share(self) -> float | None:
        if self.memory_used_bytes is None or not self.memory_limit_bytes:
            return None
        return self.memory_used_bytes / self.memory_limit_bytes

    def as_json(self) -> dict[str, object]:
        return {
            "memory_used_bytes": self.memory_used_bytes,
            "memory_limit_bytes": self.memory_limit_bytes,
            "memory_source": self.memory_source,
            "tree_bytes": self.tree_bytes,
            "swap_in_bytes_per_s": None if self.swap_in_bytes_per_s is None else round(self.swap_in_bytes_per_s, 1),
            "swap_used_bytes": self.swap_used_bytes,
            "pressure": dict(self.pressure),
            "shm_used_bytes": self.shm_used_bytes,
            "shm_total_bytes": self.shm_total_bytes,
            "cpu_share": None if self.cpu_share is None else round(self.cpu_share, 4),
            "gpus": [gpu.as_json() for gpu in self.gpus],
        }


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
    others: tuple[tuple[int, str, str], ...] = ()  # pid, role, command
    machine: MachineLook = field(default_factory=MachineLook)
    alarms: tuple[Alarm, ...] = ()
    ended: tuple[End, ...] = ()
    stacks_age_s: float | None = None  # since the stacks were sampled on which this rests; None: there are none

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return one line of `headrace watch --json`."""
        return {
            "schema": SCHEMA,
            "event": "look",
            "at": self.at,
            "watched_s": round(self.watched_s, 3),
            "stacks_age_s": None if self.stacks_age_s is None else round(self.stacks_age_s, 3),
            "trainers": [trainer.as_json() for trainer in self.trainers],
            "workers": [worker.as_json() for worker in self.workers],
            "others": [{"pid": pid, "role": role, "command": command} for pid, role, command in self.others],
            "machine": self.machine.as_json(),
            "alarms": [alarm.as_json(language) for alarm in self.alarms],
            "ended": [{"pid": e.pid, "exit_code": e.exit_code, "signal": e.signal_number} for e in self.ended],
        }


def _place(frame: Frame | None) -> dict[str, object] | None:
    return None if frame is None else {"file": frame.file, "line": frame.line, "function": frame.function}


def _usage_json(rates: Rates) -> dict[str, object]:
    return {
        "cpu_share": round(rates.cpu_share, 4),
        "rss_bytes": rates.rss_bytes,
        "pss_bytes": rates.pss_bytes,
        "swap_bytes": rates.swap_bytes,
        "read_bytes_per_s": None if rates.read_bytes_per_s is None else round(rates.read_bytes_per_s, 1),
        "disk_bytes_per_s": None if rates.disk_bytes_per_s is None else round(rates.disk_bytes_per_s, 1),
    }
