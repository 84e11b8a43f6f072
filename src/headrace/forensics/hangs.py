"""What keeps a worker from coming back: looked at from outside, recognised, and said in English and Chinese."""

import enum
import os
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from headrace.model import OwnStep, Text, step_of
from headrace.signals import Frame, StackFile, Stacks, ThreadStack, dump_with_py_spy, find_py_spy
from headrace.signals.system import OpenFile, ThreadState, read_open_files, read_stat, read_threads

# long enough to see whether it computes
_WATCH_S = 0.1
# below this share of a processor a thread waits, whatever its state says at one moment
_BUSY_SHARE = 0.2
# threads of ours in every worker: they wait by design and hold nothing
_OWN_THREADS = ("headrace-watch",)
_NO_STACKS = Stacks(source="")
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
_F_SETLKW = (7, 38)  # fcntl commands that wait for a lock (of the process, of the open file)


@dataclass(frozen=True, kw_only=True)
class StuckReport:
    """A process seen twice, `watched_s` apart, and its stacks. Pure values: `recognise` works on recorded ones too."""

    pid: int
    watched_s: float
    is_forked: bool | None = None  # its memory is a copy of its parent's, with one of its threads; None: it is gone
    first: tuple[ThreadState, ...] = ()
    threads: tuple[ThreadState, ...] = ()  # the second look, the process's first thread first
    libraries: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # by thread: on its native stack
    polled: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # by thread: descriptors it waits for
    files: tuple[OpenFile, ...] = ()
    stacks: Stacks = _NO_STACKS

    def thread(self, tid: int | None = None) -> ThreadState | None:
        """One thread of the second look; the process's first one unless told otherwise."""
        return next((t for t in self.threads if t.tid == (self.pid if tid is None else tid)), None)

    def earlier(self, thread: ThreadState) -> ThreadState | None:
        return next((t for t in self.first if t.tid == thread.tid), None)

    def cpu_share(self, thread: ThreadState) -> float:
        """Share of a processor that a thread used between the two looks."""
        before = self.earlier(thread)
        return max(0.0, thread.cpu_s - before.cpu_s) / self.watched_s if before and self.watched_s > 0 else 0.0

    def file_in_hand(self, thread: ThreadState) -> OpenFile | None:
        """The file of the system call that a thread is in."""
        if thread.call is None:
            return None
        fd = next(iter(self.polled.get(thread.tid, ())), thread.call.descriptor)
        return next((file for file in self.files if file.fd == fd), None)

    def stack(self, thread: ThreadState) -> ThreadStack | None:
        """The calls of a thread, where the stacks tell which they are."""
        exact = next((stack for stack in self.stacks.threads if stack.tid == thread.tid), None)
        if exact is None and thread.tid == self.pid:
            exact = next((stack for stack in self.stacks.threads if stack.is_main and stack.tid is None), None)
        return exact

    def __str__(self) -> str:
        if self.is_forked is None:
            return f"process {self.pid}: gone"
        count = len(self.threads)
        lines = [f"process {self.pid}: {count} {'thread' if count == 1 else 'threads'}"]
        for thread in self.threads:
            call = f", in {thread.call.name}" if thread.call else ""
            channel = f", waits in {thread.wait_channel}" if thread.wait_channel else ""
            share = f", {self.cpu_share(thread):.0%} of a processor"
            lines.append(f"  {thread.tid} {thread.name}: {thread.state}{call}{channel}{share}")
            if thread.tid in self.libraries and thread.kernel_stack:
                lines.append(f"    kernel: {' < '.join(thread.kernel_stack)}")
            if self.libraries.get(thread.tid):
                lines.append(f"    libraries on its stack: {', '.join(self.libraries[thread.tid])}")
        for file in self.files:
            if file.kind in ("file", "socket") and not file.path.startswith(("/dev/", "/memfd:")):
                size = f" of {file.size}" if file.size is not None else ""
                system = f" ({file.file_system})" if file.file_system else ""
                lines.append(f"  open: {file.fd} {file.path}{system}, at {file.position}{size}")
        if self.stacks.threads:
            lines.append(f"  Python stacks ({self.stacks.source}), innermost call first:")
            lines += [f"    {line}" for line in str(self.stacks).splitlines()]
        elif self.stacks.problem:
            lines.append(f"  no Python stacks: {self.stacks.problem}")
        return "\n".join(lines)


def look_at(
    pid: int, thread_ids: tuple[int, ...] | None = None, *, stack_file: StackFile | None = None, use_py_spy: bool = True
) -> StuckReport:
    """See where a process stands, in a tenth of a second (longer where py-spy is asked). Changes nothing about it.

    `thread_ids`: the threads whose waits are of interest, where workers share a process; else its first one.
    """
    first = read_threads(pid)
    start_s = time.monotonic()
    if first:
        time.sleep(_WATCH_S)
    threads = read_threads(pid)
    watched_s = time.monotonic() - start_s
    own = read_stat(pid)
    if own is None or not threads:
        return StuckReport(pid=pid, watched_s=watched_s)
    # a thread in uninterruptible sleep may hold its address space locked: to look into that would hang us too
    waiting = [t for t in threads if t.tid in (thread_ids or (pid,)) and all(other.state != "D" for other in threads)]
    calls = {t.tid: t.call for t in waiting if t.call is not None}
    return StuckReport(
        pid=pid,
        watched_s=watched_s,
        is_forked=own.is_forked_from(read_stat(own.parent)),
        first=first,
        threads=threads,
        libraries={tid: call.libraries(pid) for tid, call in calls.items()},
        polled={tid: call.polled(pid) for tid, call in calls.items()},
        files=read_open_files(pid),
        stacks=_take_stacks(pid, threads[0], stack_file, use_py_spy=use_py_spy),
    )


def _take_stacks(pid: int, main: ThreadState, stack_file: StackFile | None, *, use_py_spy: bool) -> Stacks:
    if main.state in "ZX":
        return Stacks(source="", problem="it has ended")
    stands_still = main.state in "TtD"  # a signal would wait, and a debugger would wait for it
    found = []
    if use_py_spy and find_py_spy() is not None:
        found.append(dump_with_py_spy(pid, pauses=not stands_still))
    if stack_file is not None and not stands_still and not any(stacks.threads for stacks in found):
        found.append(stack_file.ask(pid))
    if found and found[-1].threads:
        return found[-1]
    problems = [stacks.problem for stacks in found]
    if stands_still and not found:
        problems.append(f"a process in state {main.state} does not answer")
    return Stacks(source="", problem="; ".join(filter(None, problems)))


class StuckKind(enum.Enum):
    """Why a worker does not come back, said.

    Each begins with a verb: "worker 3 " goes before it. {at}, {file} and {detail} are empty or begin with a blank.
    """

    ENDED = Text("has ended", "已经结束")
    STOPPED = Text(
        "is stopped (SIGSTOP or a terminal's ^Z): `kill -CONT {pid}` lets it go on",
        "已被暂停（SIGSTOP 或终端的 ^Z）：执行 `kill -CONT {pid}` 可恢复",
    )
    TRACED = Text("is held by a debugger", "被调试器占住")
    DISK_SLEEP = Text(
        "is in an uninterruptible wait of the kernel, mostly for a disk or a file server{file}{detail}{at}",
        "处于内核的不可中断等待，通常是磁盘或文件服务器没有响应{file}{detail}{at}",
    )
    BUSY_NATIVE = Text("is computing in native code:{detail}{at}", "正在执行原生代码：{detail}{at}")
    BUSY = Text("is computing{at}", "正在计算{at}")
    FORKED_POOL = Text(
        "is in a deadlock{at}: it waits for threads of{detail}, which did not come along when it was forked",
        "已死锁{at}：它在等待{detail} 的线程，而这些线程没有随 fork 一起过来",
    )
    FORK_DEADLOCK = Text(
        "is in a deadlock{at}: it waits for a lock that no thread of it can ever let go; another thread of the "
        "training process held it at the moment of the fork, or the worker took it twice",
        "已死锁{at}：它等待的锁，本进程中没有任何线程能够释放；fork 的一刻训练进程的另一个线程正持有它，"
        "或是 worker 自己重复加锁",
    )
    DEADLOCK = Text(
        "is in a deadlock{at}: it waits for a lock that no thread of it can ever let go",
        "已死锁{at}：它等待的锁，本进程中没有任何线程能够释放",
    )
    LOCK_WAIT = Text("waits for a lock or another thread{at}", "在等待一把锁或另一个线程{at}")
    NETWORK = Text("waits for the network{at}", "在等待网络{at}")
    REMOTE_FILE = Text(
        "waits for a network or FUSE file system{file}{detail}{at}", "在等待网络或 FUSE 文件系统{file}{detail}{at}"
    )
    FILE_LOCK = Text(
        "waits for a file lock that another process holds{file}{at}", "在等待被其他进程占用的文件锁{file}{at}"
    )
    CHILD = Text("waits for a process that it started{at}", "在等待它启动的子进程{at}")
    SLEEP = Text("sleeps of its own accord{at}", "正在主动休眠{at}")
    IDLE = Text("has nothing to do: it waits for work", "空闲，正在等待任务")  # nothing is wrong with it
    PIPE = Text("waits for a pipe{at}", "在等待管道数据{at}")
    FILE = Text("reads{file}{at}", "正在读取{file}{at}")
    UNKNOWN = Text(
        "does not come back, and nothing seen from outside tells why{detail}{at}",
        "迟迟没有返回，从外部看不出原因{detail}{at}",
    )


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What holds a thread of a worker, and where."""

    kind: StuckKind
    pid: int
    at: Frame | None = None  # the innermost call of the user's own code, else of Python
    file: OpenFile | None = None
    detail: str = ""  # a kernel function, a library

    def said(self, language: str = "en") -> str:
        """What holds a worker, as the rest of a sentence that begins with its name.

        >>> Diagnosis(kind=StuckKind.STOPPED, pid=12).said()
        "is stopped (SIGSTOP or a terminal's ^Z): `kill -CONT 12` lets it go on"
        """
        at = Text(" ({at})", "（{at}）").of(language).format(at=self.at) if self.at else ""
        return self.kind.value.of(language).format(
            pid=self.pid,
            at=at,
            file=f" {self.file.path}" if self.file is not None else "",
            detail=f" {self.detail}" if self.detail else "",
        )

    def next_step(self, language: str = "en") -> str:
        """What to do about a worker that was ended for it; empty where nothing sure can be said."""
        return _STEPS.get(self.kind, Text("", "")).of(language)


# What helps, by kind: a setting or command that exists.
_NO_FORK = Text(
    "multiprocessing_context='spawn' (or 'forkserver'); for OpenCV, cv2.setNumThreads(0) before the loader starts",
    "multiprocessing_context='spawn'（或 'forkserver'）；若是 OpenCV，在启动加载器之前调用 cv2.setNumThreads(0)",
)
_STEPS = {
    StuckKind.FORK_DEADLOCK: _NO_FORK,
    StuckKind.FORKED_POOL: _NO_FORK,
    StuckKind.NETWORK: Text("give the request a timeout in the data set", "在数据集里为请求设置超时"),
}


def recognise(report: StuckReport, tid: int | None = None) -> Diagnosis:
    """Name what keeps a process (or one thread of it) from coming back. Never guesses: UNKNOWN is an answer."""
    thread = report.thread(tid)
    if report.is_forked is None or thread is None:
        return Diagnosis(kind=StuckKind.ENDED, pid=report.pid)
    stack = report.stack(thread)
    kind, detail = _by_state(report, thread, stack) or _by_wait(report, thread, stack)
    return Diagnosis(
        kind=kind,
        pid=report.pid,
        at=user_frame(stack.python) if stack is not None else None,
        file=report.file_in_hand(thread),
        detail=detail,
    )


def user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost call of the user's code: not the standard library's, not an installed package's."""
    own = (f for f in frames if not f.file.startswith(("<", _STANDARD)) and "site-packages" not in f.file)
    return next(own, frames[0] if frames else None)


_BY_STATE = {"Z": StuckKind.ENDED, "X": StuckKind.ENDED, "T": StuckKind.STOPPED, "t": StuckKind.TRACED}
_Found = tuple[StuckKind, str]  # and the detail


def _by_state(report: StuckReport, thread: ThreadState, stack: ThreadStack | None) -> _Found | None:
    """Stopped, ended, in an uninterruptible sleep, or at work."""
    if (kind := _BY_STATE.get(thread.state)) is not None:
        return kind, ""
    before, cpu_share = report.earlier(thread), report.cpu_share(thread)
    stays = before is not None and before.state == "D" and before.wait_channel == thread.wait_channel
    if thread.state == "D" and stays and cpu_share < 0.01:
        return StuckKind.DISK_SLEEP, thread.wait_channel
    if cpu_share < _BUSY_SHARE:
        return None
    inner = stack.frames[0] if stack is not None and stack.frames else None
    if inner is not None and inner.is_native and not os.path.basename(inner.file).startswith(("libpython", "python")):
        return StuckKind.BUSY_NATIVE, str(inner)
    return StuckKind.BUSY, ""


_BY_CALL = {
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), StuckKind.SLEEP),
    **dict.fromkeys(("wait4", "waitid"), StuckKind.CHILD),
    **dict.fromkeys(("recvfrom", "recvmsg", "recvmmsg", "connect", "accept", "accept4"), StuckKind.NETWORK),
    "flock": StuckKind.FILE_LOCK,
}
_BY_FILE = {"socket": StuckKind.NETWORK, "pipe": StuckKind.PIPE, "file": StuckKind.FILE}


def _by_wait(report: StuckReport, thread: ThreadState, stack: ThreadStack | None) -> _Found:
    """By the system call, and by the file that it is about."""
    call, file, channel = thread.call, report.file_in_hand(thread), thread.wait_channel
    if call is None:
        return StuckKind.UNKNOWN, channel
    if call.name == "futex":
        return _by_lock(report, thread)
    if call.name == "fcntl" and call.args[1] in _F_SETLKW:
        return StuckKind.FILE_LOCK, ""
    kernel = (channel, *thread.kernel_stack)
    is_remote = any(name.startswith(("nfs", "rpc_", "fuse_", "request_wait_answer", "cifs_")) for name in kernel)
    if call.name not in _BY_CALL and (is_remote or (file is not None and file.is_remote)):
        return StuckKind.REMOTE_FILE, channel
    kind = _BY_CALL.get(call.name) or _BY_FILE.get(file.kind if file is not None else "", StuckKind.UNKNOWN)
    inner = stack.python[:1] if stack is not None else ()
    if kind is StuckKind.PIPE and any(step_of(frame.file, frame.function) is OwnStep.TASK_WAIT for frame in inner):
        kind = StuckKind.IDLE
    return kind, channel or call.name


def _by_lock(report: StuckReport, thread: ThreadState) -> _Found:
    """Waits for another thread. If there is none that could let go, it is a deadlock."""
    others = [one for one in report.threads if one.tid != thread.tid and one.name not in _OWN_THREADS]
    if not _waits_for_ever(thread) or any(not _waits_for_ever(one) or report.cpu_share(one) for one in others):
        return StuckKind.LOCK_WAIT, ""
    if not report.is_forked:
        return StuckKind.DEADLOCK, ""
    # beyond Python's own code lie callers, and what finished calls left on the stack
    libraries = report.libraries.get(thread.tid, ())[:3]
    inner = takewhile(lambda library: not library.startswith(("libpython", "python")), libraries)
    pool = next((name for library in inner for start, name in _POOLS.items() if library.startswith(start)), "")
    return StuckKind.FORKED_POOL if pool else StuckKind.FORK_DEADLOCK, pool


def _waits_for_ever(thread: ThreadState) -> bool:
    return thread.call is not None and thread.call.waits_for_thread
