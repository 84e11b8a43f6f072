"""What keeps a worker from coming back, recognised from a report on it. Pure."""

from __future__ import annotations

import enum
import os
import sysconfig
from dataclasses import dataclass
from itertools import takewhile

from headrace.model import OwnStep, step_of
from headrace.signals import Frame
from headrace.signals.system import OpenFile, ThreadState

from .stuck import StuckReport

# below this share of a processor a thread waits, whatever its state says at one moment
_BUSY_SHARE = 0.2
# somebody who waits for the GIL asks for it every 5 ms
_GIL_ASKS_PER_S = 50.0
_SWAP_FAULTS_PER_S = 50.0
# Libraries whose threads do not survive a fork, by the start of their file names.
_POOLS = {
    "libgomp": "OpenMP (libgomp)",
    "libomp": "OpenMP (libomp)",
    "libiomp": "OpenMP (libiomp)",
    "cv2": "OpenCV",
    "libopencv": "OpenCV",
    "libtbb": "TBB",
    "libopenblas": "OpenBLAS",
    "libscipy_openblas": "OpenBLAS",
    "libmkl": "MKL",
}
_STANDARD = sysconfig.get_path("stdlib")
_CALLS = {
    "nanosleep": "sleep",
    "clock_nanosleep": "sleep",
    "wait4": "child",
    "waitid": "child",
    "flock": "file_lock",
}
_SOCKET_CALLS = {"recvfrom", "recvmsg", "recvmmsg", "connect", "accept", "accept4"}
_WAITS_FOR_SEVERAL = {"epoll_wait", "epoll_pwait", "select", "pselect6", "poll", "ppoll"}
_NETWORK_MODULES = ("socket.py", "ssl.py", "/http/client.py", "/urllib3/", "/requests/", "/botocore/", "/aiohttp/")
_F_SETLKW = (7, 38)  # fcntl commands that wait for a lock (of the process, of the open file)


class StuckKind(enum.Enum):
    """Why a worker does not come back. The value is stable: it is written into logs and JSON."""

    GONE = "gone"
    ENDED = "ended"  # dead, and not waited for yet
    STOPPED = "stopped"
    TRACED = "traced"
    FROZEN = "frozen"  # by a control group
    DISK_SLEEP = "disk_sleep"  # uninterruptible
    SWAPPED_OUT = "swapped_out"
    GIL_WAIT = "gil_wait"
    BUSY_PYTHON = "busy_python"
    BUSY_NATIVE = "busy_native"
    BUSY = "busy"
    FORK_DEADLOCK = "fork_deadlock"
    DEADLOCK = "deadlock"
    LOCK_WAIT = "lock_wait"
    NETWORK = "network"
    REMOTE_FILE = "remote_file"
    FILE_LOCK = "file_lock"
    CHILD = "child"
    SLEEP = "sleep"
    IDLE = "idle"  # waits for work: nothing is wrong with it
    PIPE = "pipe"
    FILE = "file"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What holds a thread of a worker, and where."""

    kind: StuckKind
    pid: int
    is_certain: bool = True
    can_be_killed: bool = True  # False: SIGKILL may have to wait until the kernel's wait is over
    at: Frame | None = None  # the innermost call of the user's own code, else of Python
    file: OpenFile | None = None
    detail: str = ""  # a kernel function, a library, a lock, a tracer


def recognise(report: StuckReport, tid: int | None = None) -> Diagnosis:
    """Name what keeps a process (or one thread of it) from coming back. Never guesses: UNKNOWN is an answer."""
    thread = report.thread(tid)
    if report.process is None or thread is None:
        return Diagnosis(kind=StuckKind.GONE, pid=report.pid)
    found = _by_state(report, thread) or _by_work(report, thread) or _by_wait(report, thread)
    if found is not None:
        return found
    channel = thread.wait_channel or (thread.call.name if thread.call else "")
    return _make(report, thread, StuckKind.UNKNOWN, is_certain=False, detail=channel)


def _make(
    report: StuckReport,
    thread: ThreadState,
    kind: StuckKind,
    *,
    is_certain: bool = True,
    can_be_killed: bool = True,
    file: OpenFile | None = None,
    detail: str = "",
) -> Diagnosis:
    stack = report.stack(thread)
    at = user_frame(stack.python) if stack is not None else None
    return Diagnosis(
        kind=kind,
        pid=report.pid,
        is_certain=is_certain,
        can_be_killed=can_be_killed,
        at=at,
        file=file,
        detail=detail,
    )


def user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost call of the user's code: not the standard library's, not an installed package's."""
    own = (f for f in frames if not f.file.startswith(("<", _STANDARD)) and "site-packages" not in f.file)
    return next(own, frames[0] if frames else None)


# ---------------------------------------------------------------------------------------- by what the kernel says


def _by_state(report: StuckReport, thread: ThreadState) -> Diagnosis | None:
    state = thread.state
    if state in "ZX":
        return _make(report, thread, StuckKind.ENDED)
    if state == "T":
        return _make(report, thread, StuckKind.STOPPED)
    if state == "t":
        tracer = report.process.tracer_pid if report.process else 0
        return _make(report, thread, StuckKind.TRACED, detail=str(tracer))
    kernel = (thread.wait_channel, *thread.kernel_stack)
    if report.process is not None and report.process.is_frozen:
        return _make(report, thread, StuckKind.FROZEN, detail=thread.wait_channel)
    before = report.earlier(thread)
    if _is_swapping(report, thread):
        return _make(report, thread, StuckKind.SWAPPED_OUT, is_certain=False, can_be_killed=state != "D")
    stays = before is not None and before.state == "D" and before.wait_channel == thread.wait_channel
    if state == "D" and stays and report.cpu_share(thread) < 0.01:
        file = report.file_in_hand(thread)
        # waits of NFS and FUSE look the same in the process list, but a SIGKILL ends them
        can_be_killed = any("killable" in name or name.startswith(("fuse_", "nfs", "rpc_")) for name in kernel)
        detail = thread.wait_channel
        return _make(report, thread, StuckKind.DISK_SLEEP, can_be_killed=can_be_killed, file=file, detail=detail)
    return None


def _is_swapping(report: StuckReport, thread: ThreadState) -> bool:
    """Most of it lies in swap, and it is reading pages back."""
    before, process = report.earlier(thread), report.process
    if before is None or process is None or report.watched_s <= 0:
        return False
    faults = (thread.major_faults - before.major_faults) / report.watched_s
    return process.swap_bytes > process.rss_bytes / 4 and (faults >= _SWAP_FAULTS_PER_S or thread.state == "D")


# ---------------------------------------------------------------------------------------- by what it does


def _by_work(report: StuckReport, thread: ThreadState) -> Diagnosis | None:
    share = report.cpu_share(thread)
    busiest = max((report.cpu_share(other) for other in report.others(thread)), default=0.0)
    if share < _BUSY_SHARE <= busiest and report.switches_per_s(thread) >= _GIL_ASKS_PER_S:
        is_asking = thread.call is None or (thread.call.name == "futex" and not thread.call.is_lock_wait)
        if is_asking:
            return _make(report, thread, StuckKind.GIL_WAIT, is_certain=False)
    if share < _BUSY_SHARE:
        return None
    stack = report.stack(thread)
    if stack is None or not stack.frames:
        return _make(report, thread, StuckKind.BUSY)
    if report.stacks.source == "py-spy --native":
        inner = stack.frames[0]
        if inner.is_native and not os.path.basename(inner.file).startswith(("libpython", "python")):
            return _make(report, thread, StuckKind.BUSY_NATIVE, detail=str(inner))
        return _make(report, thread, StuckKind.BUSY_PYTHON)
    later = report.stack(thread, report.later_stacks) if report.later_stacks else None
    if later is not None and later.frames != stack.frames:
        return _make(report, thread, StuckKind.BUSY_PYTHON)
    # the same line twice: one long native call, or a loop on one line
    return _make(report, thread, StuckKind.BUSY)


# ---------------------------------------------------------------------------------------- by what it waits for


def _by_wait(report: StuckReport, thread: ThreadState) -> Diagnosis | None:
    call = thread.call
    if call is None:
        return None
    if call.name == "futex":
        return _by_lock(report, thread)
    if call.name in _CALLS:
        return _make(report, thread, StuckKind(_CALLS[call.name]), file=report.file_in_hand(thread))
    if call.name == "fcntl" and call.args[1] in _F_SETLKW:
        return _make(report, thread, StuckKind.FILE_LOCK, file=report.file_in_hand(thread))
    file = report.file_in_hand(thread)
    kernel = (thread.wait_channel, *thread.kernel_stack)
    is_remote = any(name.startswith(("nfs", "rpc_", "fuse_", "request_wait_answer", "cifs_")) for name in kernel)
    if is_remote or (file is not None and file.is_remote):
        return _make(report, thread, StuckKind.REMOTE_FILE, file=file, detail=thread.wait_channel)
    if call.name in _SOCKET_CALLS or (file is not None and file.kind == "socket"):
        return _make(report, thread, StuckKind.NETWORK, file=file, detail=call.name)
    stack = report.stack(thread)
    frames: tuple[Frame, ...] = stack.python if stack is not None else ()
    if call.name in _WAITS_FOR_SEVERAL and any(part in frame.file for frame in frames for part in _NETWORK_MODULES):
        return _make(report, thread, StuckKind.NETWORK, detail=call.name)
    if file is not None and file.kind == "pipe":
        is_idle = any(step_of(frame.file, frame.function) is OwnStep.TASK_WAIT for frame in frames[:1])
        return _make(report, thread, StuckKind.IDLE if is_idle else StuckKind.PIPE, file=file)
    if file is not None and file.kind == "file":
        return _make(report, thread, StuckKind.FILE, file=file, detail=thread.wait_channel)
    return None


def _by_lock(report: StuckReport, thread: ThreadState) -> Diagnosis:
    """Waits for another thread. If there is none that could let go, it is a deadlock."""
    call = thread.call
    libraries = report.libraries.get(thread.tid, ())
    if call is None or not call.is_lock_wait or not call.is_private:
        return _make(report, thread, StuckKind.LOCK_WAIT, is_certain=False, detail=_lock_name(report, thread))
    others = report.others(thread)
    if not all(_waits_for_ever(other) and report.cpu_share(other) == 0 for other in others):
        return _make(report, thread, StuckKind.LOCK_WAIT, is_certain=False, detail=_lock_name(report, thread))
    # beyond Python's own code lie callers, and what finished calls left on the stack
    inner = takewhile(lambda library: not library.startswith(("libpython", "python")), libraries[:3])
    pool = next((name for library in inner for start, name in _POOLS.items() if library.startswith(start)), "")
    is_forked = report.process is not None and report.process.is_forked
    kind = StuckKind.FORK_DEADLOCK if is_forked else StuckKind.DEADLOCK
    return _make(report, thread, kind, detail=pool or _lock_name(report, thread))


def _waits_for_ever(thread: ThreadState) -> bool:
    return thread.call is not None and thread.call.is_lock_wait and thread.call.is_private


def _lock_name(report: StuckReport, thread: ThreadState) -> str:
    """Whose lock it is, where the innermost frames tell."""
    stack = report.stack(thread)
    for frame in (stack.python if stack is not None else ())[:4]:
        if "/logging/" in frame.file:
            return "logging"
        if "importlib" in frame.file:
            return "import"
        if frame.file.endswith("/multiprocessing/synchronize.py"):
            return "multiprocessing"
    return ""
