"""Many cheap looks at the threads of a training while stacks are sampled; without stacks they have to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.signals import Call, OpenFile, ThreadState, polled_descriptors, read_moment, read_open_files

from .stack_reading import Activity, Detail, Reading

_PIN_THREAD = "pt_data_pin"  # torch 2.6 and later name it
_READS = {"read", "pread64", "readv", "preadv", "poll", "ppoll"}


@dataclass(frozen=True, kw_only=True)
class KernelLook:
    """State and system call of a process's first thread, and what that call is about."""

    state: str
    call: Call | None
    file: OpenFile | None = None  # of a read
    is_fed: bool = False  # reads or polls a pipe whose other end a worker holds

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
    pin_threads: Mapping[int, int] = field(default_factory=dict)  # by trainer: the thread between it and its workers

    def begin(self, pids: Sequence[int], workers_of: Mapping[int, Sequence[int]]) -> None:
        """Start a stretch over these processes."""
        self.files = {pid: read_open_files(pid) for pid in pids}
        self.looks = {pid: [] for pid in pids}
        self.worker_pipes = {
            trainer: frozenset(file.path for pid in workers for file in self.files.get(pid, ()) if file.kind == "pipe")
            for trainer, workers in workers_of.items()
        }
        found = {trainer: _thread_named(trainer, _PIN_THREAD) for trainer in workers_of}
        self.pin_threads = {trainer: tid for trainer, tid in found.items() if tid is not None}

    def look(self) -> None:
        """Look once at each of them."""
        for pid, looks in self.looks.items():
            moment = read_moment(pid)
            if moment is None:
                continue
            looks.append(self._judge(pid, *moment))

    def _judge(self, pid: int, state: str, call: Call | None) -> KernelLook:
        if call is not None and call.name == "futex" and pid in self.pin_threads:
            # with pinned memory the loop waits for a queue, and the thread that fills it for the workers' pipe
            pinning = read_moment(pid, self.pin_threads[pid])
            is_fed = pinning is not None and self._reads(pid, *pinning).is_fed
            return KernelLook(state=state, call=call, is_fed=is_fed)
        return self._reads(pid, state, call)

    def _reads(self, pid: int, state: str, call: Call | None) -> KernelLook:
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


def _thread_named(pid: int, name: str) -> int | None:
    """The thread of a process with a name; None where there is none."""
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            if path.read_text().strip() == name:
                return int(path.parent.name)
        except OSError:
            continue
    return None


def read_trainer_look(look: KernelLook) -> Reading:
    """What a trainer does as far as the kernel tells: it waits for its workers' pipe, it computes, or nobody knows."""
    if look.is_fed:
        return Reading(activity=Activity.DATA_WAIT)
    if look.state in "Tt":
        return Reading(activity=Activity.OTHER, detail=Detail.STOPPED)
    if look.state == "R":
        return Reading(activity=Activity.COMPUTE)
    return Reading(activity=Activity.UNKNOWN, detail=Detail.WAITING)
