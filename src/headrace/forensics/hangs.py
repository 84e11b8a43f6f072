"""What keeps a worker from coming back, recognised from a report on it and said in English and Chinese. Pure."""

from __future__ import annotations

import enum
import os
import sysconfig
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from headrace.model import OwnStep, Text, step_of
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


# ---------------------------------------------------------------------------------------- the words

# Each begins with a verb: "worker 3 " goes before it. {at}, {file} and {detail} are empty or begin with a blank.
_SAID = {
    StuckKind.GONE: Text("is gone", "已不存在"),
    StuckKind.ENDED: Text("has ended", "已经结束"),
    StuckKind.STOPPED: Text(
        "is stopped (SIGSTOP or a terminal's ^Z): `kill -CONT {pid}` lets it go on",
        "已被暂停（SIGSTOP 或终端的 ^Z）：执行 `kill -CONT {pid}` 可恢复",
    ),
    StuckKind.TRACED: Text("is held by a debugger (pid{detail})", "被调试器占住（pid{detail}）"),
    StuckKind.FROZEN: Text(
        "is frozen by its control group (a paused container or job)", "被所在的 cgroup 冻结（容器或作业被暂停）"
    ),
    StuckKind.DISK_SLEEP: Text(
        "is in an uninterruptible wait of the kernel, mostly for a disk or a file server{file}{detail}{at}{killable}",
        "处于内核的不可中断等待，通常是磁盘或文件服务器没有响应{file}{detail}{at}{killable}",
    ),
    StuckKind.SWAPPED_OUT: Text(
        "was swapped out and is reading its memory back{at}", "已被换出到交换区，正在读回内存{at}"
    ),
    StuckKind.GIL_WAIT: Text(
        "waits for Python's interpreter lock, which another thread of it keeps busy{at}",
        "在等待 Python 解释器锁（GIL），它的另一个线程一直占用着{at}",
    ),
    StuckKind.BUSY_PYTHON: Text("is computing in Python{at}", "正在执行 Python 代码{at}"),
    StuckKind.BUSY_NATIVE: Text("is computing in native code:{detail}{at}", "正在执行原生代码：{detail}{at}"),
    StuckKind.BUSY: Text(
        "is computing, in native code or in a loop on one line{at}", "正在计算：处于原生代码，或在同一行上循环{at}"
    ),
    StuckKind.FORK_DEADLOCK: Text(
        "is in a deadlock{at}: it waits for {lock} that no thread of it can ever let go; another thread of the "
        "training process held it at the moment of the fork, or the worker took it twice",
        "已死锁{at}：它等待的{lock}，本进程中没有任何线程能够释放；fork 的一刻训练进程的另一个线程正持有它，"
        "或是 worker 自己重复加锁",
    ),
    StuckKind.DEADLOCK: Text(
        "is in a deadlock{at}: it waits for {lock} that no thread of it can ever let go",
        "已死锁{at}：它等待的{lock}，本进程中没有任何线程能够释放",
    ),
    StuckKind.LOCK_WAIT: Text("waits for a lock or another thread{at}", "在等待一把锁或另一个线程{at}"),
    StuckKind.NETWORK: Text("waits for the network{at}", "在等待网络{at}"),
    StuckKind.REMOTE_FILE: Text(
        "waits for a network or FUSE file system{file}{detail}{at}", "在等待网络或 FUSE 文件系统{file}{detail}{at}"
    ),
    StuckKind.FILE_LOCK: Text(
        "waits for a file lock that another process holds{file}{at}", "在等待被其他进程占用的文件锁{file}{at}"
    ),
    StuckKind.CHILD: Text("waits for a process that it started{at}", "在等待它启动的子进程{at}"),
    StuckKind.SLEEP: Text("sleeps of its own accord{at}", "正在主动休眠{at}"),
    StuckKind.IDLE: Text("has nothing to do: it waits for work", "空闲，正在等待任务"),
    StuckKind.PIPE: Text("waits for a pipe{at}", "在等待管道数据{at}"),
    StuckKind.FILE: Text("reads{file}{at}", "正在读取{file}{at}"),
    StuckKind.UNKNOWN: Text(
        "does not come back, and nothing seen from outside tells why{detail}{at}",
        "迟迟没有返回，从外部看不出原因{detail}{at}",
    ),
}
_FORKED_POOL = Text(
    "is in a deadlock{at}: it waits for threads of{detail}, which did not come along when it was forked",
    "已死锁{at}：它在等待{detail} 的线程，而这些线程没有随 fork 一起过来",
)
_NOT_KILLABLE = Text("; until that answers, it may not react to SIGKILL", "；在此之前可能无法杀死")
_LOCKS = {
    "": Text("a lock", "锁"),
    "logging": Text("a lock of `logging`", "`logging` 的锁"),
    "import": Text("the import lock", "导入锁"),
    "multiprocessing": Text("a multiprocessing lock", "multiprocessing 的锁"),
}
# What helps, by kind: a setting or command that exists.
_STEPS = {
    StuckKind.FORK_DEADLOCK: Text(
        "multiprocessing_context='spawn' (or 'forkserver'); for OpenCV, cv2.setNumThreads(0) before the loader starts",
        "multiprocessing_context='spawn'（或 'forkserver'）；若是 OpenCV，在启动加载器之前调用 cv2.setNumThreads(0)",
    ),
    StuckKind.NETWORK: Text("give the request a timeout in the data set", "在数据集里为请求设置超时"),
    StuckKind.SWAPPED_OUT: Text(
        "fewer workers (num_workers=) or less queued data (memory=)", "减少 worker（num_workers=）或排队数据（memory=）"
    ),
}


def describe_stuck(diagnosis: Diagnosis, *, language: str = "en") -> str:
    """What holds a worker, as the rest of a sentence that begins with its name.

    >>> describe_stuck(Diagnosis(kind=StuckKind.STOPPED, pid=12))
    "is stopped (SIGSTOP or a terminal's ^Z): `kill -CONT 12` lets it go on"
    """
    is_pool = diagnosis.kind is StuckKind.FORK_DEADLOCK and diagnosis.detail not in _LOCKS
    said = _FORKED_POOL if is_pool else _SAID[diagnosis.kind]
    at = Text(" ({at})", "（{at}）").of(language).format(at=diagnosis.at) if diagnosis.at else ""
    return said.of(language).format(
        pid=diagnosis.pid,
        at=at,
        file=f" {diagnosis.file.path}" if diagnosis.file is not None else "",
        detail=f" {diagnosis.detail}" if diagnosis.detail else "",
        lock=_LOCKS.get(diagnosis.detail, _LOCKS[""]).of(language),
        killable="" if diagnosis.can_be_killed else _NOT_KILLABLE.of(language),
    )


def next_step_for(diagnosis: Diagnosis, *, language: str = "en") -> str:
    """What to do about a worker that was ended for it; empty where nothing sure can be said."""
    step = _STEPS.get(diagnosis.kind)
    return step.of(language) if step is not None else ""


# ---------------------------------------------------------------------------------------- the recognition


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


def _make(report: StuckReport, thread: ThreadState, kind: StuckKind, **more: Any) -> Diagnosis:
    stack = report.stack(thread)
    return Diagnosis(kind=kind, pid=report.pid, at=user_frame(stack.python) if stack is not None else None, **more)


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
