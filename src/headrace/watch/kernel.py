"""Many cheap looks at the threads of a training while stacks are sampled; without stacks they have to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model import worker_number
from headrace.signals.system import Call, OpenFile, ThreadState, polled_descriptors, read_moment, read_open_files

from .stack_reading import Activity, Detail, Reading

_PIN_THREAD = "pt_data_pin"  # torch 2.6 and later name it
_READS = {"read", "pread64", "readv", "preadv", "poll", "ppoll"}


@dataclass(frozen=True, kw_only=True)
class KernelLook:
    """State and system call of a thread, and what that call is about."""

    state: str
    call: Call | None
    file: OpenFile | None = None  # of a read
    is_fed: bool = False  # reads or polls a pipe whose other end a worker holds

    @property
    def is_in_lock(self) -> bool:
        return self.call is not None and self.call.name == "futex"

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
    """Looks at processes by their pid: at the first thread, or at those that are workers of ours.

    Open files are read anew for each stretch, not for each look.
    """

    files: dict[int, tuple[OpenFile, ...]] = field(default_factory=dict)
    looks: dict[int, list[KernelLook]] = field(default_factory=dict)
    worker_pipes: Mapping[int, frozenset[str]] = field(default_factory=dict)  # by trainer
    worker_threads: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by process of ours with several
    pin_threads: Mapping[int, int] = field(default_factory=dict)  # by trainer: the thread between it and its workers

    def begin(self, pids: Sequence[int], workers_of: Mapping[int, Sequence[int]]) -> None:
        """Start a stretch over these processes."""
        self.files = {pid: read_open_files(pid) for pid in pids}
        self.looks = {pid: [] for pid in pids}
        self.worker_pipes = {
            trainer: frozenset(file.path for pid in workers for file in self.files.get(pid, ()) if file.kind == "pipe")
            for trainer, workers in workers_of.items()
        }
        pinning = {trainer: _threads_named(trainer, lambda name: name == _PIN_THREAD) for trainer in workers_of}
        self.pin_threads = {trainer: tids[0] for trainer, tids in pinning.items() if tids}
        workers = [pid for some in workers_of.values() for pid in some]
        serving = {pid: _threads_named(pid, lambda name: worker_number(name) is not None) for pid in workers}
        self.worker_threads = {pid: tids for pid, tids in serving.items() if tids and tids != [pid]}

    def look(self) -> None:
        """Look once at each of them."""
        for pid, looks in self.looks.items():
            if pid in self.worker_threads:
                looks += self._look_at_threads(pid, self.worker_threads[pid])
            elif (moment := read_moment(pid)) is not None:
                looks.append(self._judge(pid, *moment))

    def _look_at_threads(self, pid: int, tids: Sequence[int]) -> list[KernelLook]:
        looks = [self._reads(pid, *moment) for tid in tids if (moment := read_moment(pid, tid)) is not None]
        if not any(look.state == "R" for look in looks):
            return looks
        # while one of them runs, another that waits in a lock waits for its turn at the interpreter: it is at work
        return [KernelLook(state="R", call=None) if look.is_in_lock else look for look in looks]

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


def _threads_named(pid: int, is_it: Callable[[str], bool]) -> list[int]:
    """The threads of a process whose names are so; of those with one name the first, for its own bear it, too."""
    found: dict[str, int] = {}
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            name, tid = path.read_text().strip(), int(path.parent.name)
            if is_it(name):
                found[name] = min(tid, found.get(name, tid))
    return sorted(found.values())


def read_trainer_look(look: KernelLook) -> Reading:
    """What a trainer does as far as the kernel tells: it waits for its workers' pipe, it computes, or nobody knows."""
    if look.is_fed:
        return Reading(activity=Activity.DATA_WAIT)
    if look.state in "Tt":
        return Reading(activity=Activity.OTHER, detail=Detail.STOPPED)
    if look.state == "R":
        return Reading(activity=Activity.COMPUTE)
    return Reading(activity=Activity.UNKNOWN, detail=Detail.WAITING)
