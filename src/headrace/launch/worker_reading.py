"""From a worker's stack and its thread's state to what the worker is doing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.signals import Frame, OpenFile, ThreadStack, ThreadState

from . import stack_rules as rules
from .stack_reading import SourceLine, no_source, own_frames

_TORCH_LOOP = "/torch/utils/data/_utils/worker.py"
_OUR_ROOM = "/headrace/engine/"
_READS = {
    *("read", "pread64", "readv", "preadv", "open", "openat", "stat", "fstat", "lstat", "newfstatat", "statx"),
    *("getdents64", "recvfrom", "recvmsg", "recvmmsg", "connect", "io_getevents", "io_uring_enter"),
}
_BLOCKS = {"futex", "nanosleep", "clock_nanosleep", "wait4", "waitid", "flock", "fcntl", "pause", "select", "pselect6"}


class WorkerActivity(Enum):
    """What a loader worker is at."""

    IDLE = "idle"  # waits for the next task
    READING = "reading"  # a file or a connection
    DECODING = "decoding"  # the data set's own code: decodes, transforms
    COLLATING = "collating"
    SENDING = "sending"  # hands a batch over
    BLOCKED = "blocked"  # inside a sample, waiting for a lock, a child, the clock, a pipe
    STOPPED = "stopped"  # by a signal or a debugger
    STARTING = "starting"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class WorkerReading:
    """What a worker does, and the frame of its data set."""

    activity: WorkerActivity
    at: Frame | None = None


def is_worker_stack(frames: Sequence[Frame]) -> bool:
    """Whether a thread is a loader worker: torch's loop, or ours."""
    return _loop_at(own_frames(frames)) is not None


def _loop_at(own: Sequence[Frame]) -> int | None:
    for count, frame in enumerate(own):
        name = rules.function_of(frame)
        if frame.file.endswith(_TORCH_LOOP) and name == "_worker_loop":
            return count
        if _OUR_ROOM in frame.file and name in ("_run_worker", "run_host"):
            return count
    return None


def worker_threads(threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The threads of a process that serve samples: one, or several where workers are threads."""
    return tuple(thread for thread in threads if is_worker_stack(thread.frames))


def read_worker(frames: Sequence[Frame], source_line: SourceLine = no_source) -> WorkerReading:
    """Say what a worker's stack tells; whether it reads or is blocked the kernel knows better (`refine`)."""
    own = own_frames(frames)
    if not own:
        return WorkerReading(activity=WorkerActivity.UNKNOWN)
    loop = _loop_at(own)
    if loop is None:
        return WorkerReading(activity=WorkerActivity.STARTING, at=own[0])
    inner = own[:loop]
    at = _sample_frame(inner)
    if any(rules.is_importing(frame) and "<frozen" in frame.file for frame in inner[:8]) and at is None:
        return WorkerReading(activity=WorkerActivity.STARTING, at=inner[0])
    if any("/collate.py" in frame.file or re.search("collate", frame.function) for frame in inner):
        return WorkerReading(activity=WorkerActivity.COLLATING, at=at or inner[0])
    if at is None:
        return WorkerReading(activity=_between_samples(inner, own[loop]), at=inner[0] if inner else None)
    if rules.line_reads(source_line(inner[0])) or inner[0].file.endswith(("/socket.py", "/ssl.py")):
        return WorkerReading(activity=WorkerActivity.READING, at=at)
    return WorkerReading(activity=WorkerActivity.DECODING, at=at)


def _sample_frame(inner: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the data set's own code: above torch's `fetch`, or above our engine's."""
    for count, frame in enumerate(inner):
        is_fetch = "/torch/utils/data/_utils/fetch.py" in frame.file or "/headrace/engine/fetch" in frame.file
        if is_fetch and rules.function_of(frame) not in ("__init__", "create_fetcher"):
            samples = [one for one in inner[:count] if not _is_machinery(one)]
            # a library's frame on top says little; the user's own line under it says which call it was
            users = [one for one in samples if "-packages/" not in one.file and "/lib/python3" not in one.file]
            return users[0] if users else samples[0] if samples else None
    return None


def _is_machinery(frame: Frame) -> bool:
    return "/torch/utils/data/_utils/" in frame.file or _OUR_ROOM in frame.file


def _between_samples(inner: Sequence[Frame], loop: Frame) -> WorkerActivity:
    names = [rules.function_of(frame) for frame in inner]
    is_torchs = loop.file.endswith(_TORCH_LOOP)
    if "put" in names or "_send_bytes" in names or any("/reductions.py" in frame.file for frame in inner):
        return WorkerActivity.SENDING
    if is_torchs and ("get" in names or "poll" in names):
        return WorkerActivity.IDLE
    if "_next_message" in names[:3] or (names[:1] == ["run"] and _OUR_ROOM in inner[0].file):
        return WorkerActivity.IDLE
    if any(_OUR_ROOM in frame.file for frame in inner[:3]):
        # in our engine but in no sample: writes rows, answers, or prepares its first sample
        started = any(name in ("_serve", "_serve_one", "_serve_chunk", "_hand_over") for name in names)
        return WorkerActivity.SENDING if started else WorkerActivity.STARTING
    return WorkerActivity.STARTING if "init_fn" in " ".join(names) else WorkerActivity.UNKNOWN


def refine(reading: WorkerReading, thread: ThreadState | None, file: OpenFile | None) -> WorkerReading:
    """Let the kernel's word decide where a stack cannot: stopped, reading, blocked."""
    if thread is None:
        return reading
    kernel = read_kernel(thread, file)
    if kernel is WorkerActivity.STOPPED:
        return WorkerReading(activity=kernel, at=reading.at)
    in_sample = reading.activity in (WorkerActivity.DECODING, WorkerActivity.READING)
    if in_sample and kernel in (WorkerActivity.READING, WorkerActivity.BLOCKED):
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
