"""Many cheap looks at the threads of a training while stacks are sampled; without stacks they have to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.signals import Call, OpenFile, ThreadState, polled_descriptors, read_moment, read_open_files

from .stack_reading import Activity, Detail, Reading

_READS = {"read", "pread64", "readv", "preadv", "poll", "ppoll"}


@dataclass(frozen=True, kw_only=True)
class KernelLook:
    """State and system call of a process's first thread, and what that call is about."""

    state: str
    call: Call | None
    file: OpenFile | None = None  # of a read
    is_fed: bool = False  # reads or polls a pipe whose other end a worker holds

    @property
    def is_waiting(self) -> bool:
        return self.state in "SD"

    def as_thread(self) -> ThreadState:
        """Return it as the reader of threads would."""
        return ThreadState(
            tid=0,
            name="",
            state=self.state,
            wait_channel="",
            call=self.call,
            kernel_stack=(),
            cpu_s=0.0,
            major_faults=0,
            voluntary_switches=0,
        )


@dataclass
class KernelSampler:
    """Looks at processes by their pid. Open files are read anew for each stretch, not for each look."""

    files: dict[int, tuple[OpenFile, ...]] = field(default_factory=dict)
    looks: dict[int, list[KernelLook]] = field(default_factory=dict)
    worker_pipes: Mapping[int, frozenset[str]] = field(default_factory=dict)  # by trainer

    def begin(self, pids: Sequence[int], workers_of: Mapping[int, Sequence[int]]) -> None:
        """Start a stretch over these processes."""
        self.files = {pid: read_open_files(pid) for pid in pids}
        self.looks = {pid: [] for pid in pids}
        self.worker_pipes = {
            trainer: frozenset(file.path for pid in workers for file in self.files.get(pid, ()) if file.kind == "pipe")
            for trainer, workers in workers_of.items()
        }

    def look(self) -> None:
        """Look once at each of them."""
        for pid, looks in self.looks.items():
            moment = read_moment(pid)
            if moment is None:
                continue
            state, call = moment
            looks.append(self._judge(pid, state, call))

    def _judge(self, pid: int, state: str, call: Call | None) -> KernelLook:
        if call is None or state not in "SD" or call.name not in _READS:
            return KernelLook(state=state, call=call)
        fds = polled_descriptors(pid, call) or (call.args[0],)
        files = [file for file in self.files.get(pid, ()) if file.fd in fds]
        pipes = self.worker_pipes.get(pid, frozenset())
        return KernelLook(
            state=state,
            call=call,
            file=files[0] if files else None,
            is_fed=any(file.kind == "pipe" and file.path in pipes for file in files),
        )


def read_trainer_look(look: KernelLook) -> Reading:
    """What a trainer does as far as the kernel tells: it waits for its workers' pipe, it computes, or nobody knows."""
    if look.is_fed:
        return Reading(activity=Activity.DATA_WAIT)
    if look.state in "Tt":
        return Reading(activity=Activity.OTHER, detail=Detail.STOPPED)
    if look.state == "R":
        return Reading(activity=Activity.COMPUTE)
    return Reading(activity=Activity.UNKNOWN, detail=Detail.WAITING)
