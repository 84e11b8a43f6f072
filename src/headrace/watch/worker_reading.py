"""From a worker's stack and its thread's state to what the worker is doing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.model import OwnStep, lies_in_room
from headrace.signals import Frame, ThreadStack
from headrace.signals.system import OpenFile, ThreadState

from . import stack_rules as rules
from .stack_reading import SourceLine, no_source, own_frames

_TORCH_LOOP = "/torch/utils/data/_utils/worker.py"
_TORCH_FETCH = "/torch/utils/data/_utils/fetch.py"
_READS = {
    *("read", "pread64", "readv", "preadv", "open", "openat", "stat", "fstat", "lstat", "newfstatat", "statx"),
    *("getdents64", "recvfrom", "recvmsg", "recvmmsg", "connect", "io_getevents", "io_uring_enter"),
}
_BLOCKS = {"futex", "nanosleep", "clock_nanosleep", "wait4", "waitid", "flock", "fcntl", "pause", "select", "pselect6"}


class WorkerActivity(Enum):
    """What a loader worker is at."""

    IDLE = "idle"  # waits for the next task, or for the loop to be done with a batch
    READING = "reading"  # a file or a connection
    DECODING = "decoding"  # the data set's own code: decodes, transforms
    COLLATING = "collating"
    SENDING = "sending"  # hands over what it has made: writes rows, pickles, tells
    BLOCKED = "blocked"  # inside a sample, waiting for a lock, a child, the clock, a pipe
    STOPPED = "stopped"  # by a signal or a debugger
    STARTING = "starting"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class WorkerReading:
    """What a worker does, and the frame of its data set."""

    activity: WorkerActivity
    at: Frame | None = None


# What our own workers' frames say, where no sample's own code is above them.
_OWN = {
    OwnStep.LIFE: WorkerActivity.STARTING,
    OwnStep.STARTING: WorkerActivity.STARTING,
    OwnStep.TASK_WAIT: WorkerActivity.IDLE,
    OwnStep.ROOM_WAIT: WorkerActivity.IDLE,
    OwnStep.SAMPLE: WorkerActivity.DECODING,
    OwnStep.READ: WorkerActivity.READING,
    OwnStep.COLLATE: WorkerActivity.COLLATING,
    OwnStep.ROWS: WorkerActivity.SENDING,
    OwnStep.HAND_OVER: WorkerActivity.SENDING,
}


def is_worker_stack(frames: Sequence[Frame]) -> bool:
    """Whether a thread is a loader worker: torch's loop, or ours."""
    own = own_frames(frames)
    return _torch_loop_at(own) is not None or is_our_worker(own)


def is_our_worker(own: Sequence[Frame]) -> bool:
    """Whether a thread is a worker of our own loader."""
    return any(rules.own_step(frame) is OwnStep.LIFE for frame in own)


def is_our_process(threads: Sequence[ThreadStack]) -> bool:
    """Whether a process is one of our own loader's."""
    return any(rules.own_step(frame) is OwnStep.HOST for thread in threads for frame in own_frames(thread.frames))


def _torch_loop_at(own: Sequence[Frame]) -> int | None:
    loops = (frame.file.endswith(_TORCH_LOOP) and rules.function_of(frame) == "_worker_loop" for frame in own)
    return next((count for count, is_loop in enumerate(loops) if is_loop), None)


def worker_threads(threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The threads of a process that serve samples: one, or several where workers are threads."""
    return tuple(thread for thread in threads if is_worker_stack(thread.frames))


def read_worker(frames: Sequence[Frame], source_line: SourceLine = no_source) -> WorkerReading:
    """Say what a worker's stack tells; whether it reads or is blocked the kernel knows better (`refine`)."""
    own = own_frames(frames)
    if not own:
        return WorkerReading(activity=WorkerActivity.UNKNOWN)
    if is_our_worker(own):
        return _read_ours(own, source_line)
    loop = _torch_loop_at(own)
    if loop is None:
        return WorkerReading(activity=WorkerActivity.STARTING, at=own[0])
    inner = own[:loop]
    at = _torch_sample_frame(inner)
    if any(rules.is_importing(frame) and "<frozen" in frame.file for frame in inner[:8]) and at is None:
        return WorkerReading(activity=WorkerActivity.STARTING, at=inner[0])
    if any("/collate.py" in frame.file or re.search("collate", frame.function) for frame in inner):
        return WorkerReading(activity=WorkerActivity.COLLATING, at=at or inner[0])
    if at is None:
        return WorkerReading(activity=_between_samples(inner), at=inner[0] if inner else None)
    return WorkerReading(activity=_in_sample(inner, source_line), at=at)


def _read_ours(own: Sequence[Frame], source_line: SourceLine) -> WorkerReading:
    """Our own worker: the innermost frame that has a meaning tells, and above it is the user's code."""
    steps = [(count, step) for count, frame in enumerate(own) if (step := rules.own_step(frame)) is not None]
    count, step = steps[0]
    in_sample = next((place for place, one in steps if one is OwnStep.SAMPLE), None)
    if step is OwnStep.READ and in_sample is not None:
        return WorkerReading(activity=WorkerActivity.READING, at=_users_frame(own[:in_sample]) or own[0])
    at = _users_frame([frame for frame in own[:count] if not lies_in_room(frame.file, "engine")])
    if step is OwnStep.SAMPLE and at is not None:
        return WorkerReading(activity=_in_sample(own, source_line), at=at)
    if step is OwnStep.SAMPLE and count:  # what the engine does around a sample
        return WorkerReading(activity=WorkerActivity.SENDING, at=own[0])
    return WorkerReading(activity=_OWN.get(step, WorkerActivity.UNKNOWN), at=at or own[0])


def _in_sample(inner: Sequence[Frame], source_line: SourceLine) -> WorkerActivity:
    is_reading = rules.line_reads(source_line(inner[0])) or inner[0].file.endswith(("/socket.py", "/ssl.py"))
    return WorkerActivity.READING if is_reading else WorkerActivity.DECODING


def _torch_sample_frame(inner: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the data set's own code, above torch's `fetch`."""
    for count, frame in enumerate(inner):
        if _TORCH_FETCH in frame.file and rules.function_of(frame) not in ("__init__", "create_fetcher"):
            return _users_frame([one for one in inner[:count] if "/torch/utils/data/_utils/" not in one.file])
    return None


def _users_frame(frames: Sequence[Frame]) -> Frame | None:
    """A library's frame on top says little; the user's own line under it says which call it was."""
    users = (one for one in frames if "-packages/" not in one.file and "/lib/python3" not in one.file)
    return next(users, frames[0] if frames else None)


def _between_samples(inner: Sequence[Frame]) -> WorkerActivity:
    names = [rules.function_of(frame) for frame in inner]
    if "put" in names or "_send_bytes" in names or any("/reductions.py" in frame.file for frame in inner):
        return WorkerActivity.SENDING
    if "get" in names or "poll" in names:
        return WorkerActivity.IDLE
    return WorkerActivity.STARTING if "init_fn" in " ".join(names) else WorkerActivity.UNKNOWN


def refine(reading: WorkerReading, thread: ThreadState | None, file: OpenFile | None) -> WorkerReading:
    """Let the kernel's word decide where a stack cannot: stopped, reading, blocked."""
    if thread is None:
        return reading
    kernel = read_kernel(thread, file)
    if kernel is WorkerActivity.STOPPED:
        return WorkerReading(activity=kernel, at=reading.at)
    # a worker that reads may stand in a lock: another process or thread reads for it
    may_be = {
        WorkerActivity.DECODING: (WorkerActivity.READING, WorkerActivity.BLOCKED),
        WorkerActivity.READING: (WorkerActivity.READING,),
    }
    if kernel in may_be.get(reading.activity, ()):
        return WorkerReading(activity=kernel, at=reading.at)
    if reading.activity is WorkerActivity.UNKNOWN:
        return WorkerReading(activity=kernel, at=reading.at)
    return reading


def read_kernel(thread: ThreadState, file: OpenFile | None) -> WorkerActivity:
    """Say what the kernel alone tells of a worker's thread: its state and the system call that it is in."""
    if thread.state in "Tt":
        return WorkerActivity.STOPPED
    if thread.state in "ZX":
        return WorkerActivity.UNKNOWN
    name = thread.call.name if thread.call else ""
    if name in _READS and (file is None or file.kind in ("file", "socket")):
        return WorkerActivity.READING
    if name in _READS and file is not None and file.kind == "pipe":
        return WorkerActivity.IDLE  # our worker waits for its task in a plain read
    if thread.state == "D":
        return WorkerActivity.READING  # a page of a mapped file, or a call that we may not see
    if thread.state == "R":
        return WorkerActivity.DECODING
    if name in ("poll", "ppoll", "epoll_wait", "epoll_pwait"):
        return WorkerActivity.IDLE  # torch's worker polls its index queue
    if not name:
        channel = thread.wait_channel
        return WorkerActivity.IDLE if "poll" in channel or "pipe" in channel else WorkerActivity.UNKNOWN
    return WorkerActivity.BLOCKED if name in _BLOCKS else WorkerActivity.UNKNOWN
