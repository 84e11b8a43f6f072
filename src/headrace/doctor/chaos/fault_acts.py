"""What each fault does: to the process that it strikes, or to the machine as that process sees it."""

import contextlib
import ctypes
import errno
import gc
import mmap
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from .fault_plan import FaultKind

HOG_BYTES = 256 << 20

_SHM = Path("/dev/shm")
_LARGEST_TO_FILL = 64 << 20  # Docker's default; a larger one is not filled, for it is the machine's memory
_OWN_SIZE = 8 << 20
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_SPARE_FDS = 24  # a worker is started with about ten


class InjectedFault(ValueError):
    """The exception of a sample that was made bad on purpose."""


class Interruption(Exception):
    """What a signal handler raises on purpose."""


def strike(kind: FaultKind, *, index: int, always: bool, slow_s: float) -> None:
    """Let a fault happen here and now. Returns only from the harmless ones."""
    if kind is FaultKind.EXCEPTION:
        if always:
            raise InjectedFault(f"sample {index} is bad on purpose")
        raise OSError(errno.EIO, "an input/output error on purpose, which passes")
    if kind is FaultKind.SLOW:
        time.sleep(slow_s)
        return
    _ACTS[kind]()


def _read_behind_the_end() -> None:
    """Map a file, cut it, and read what is gone: what happens when somebody rewrites a data set that is in use."""
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE) as mapped:
            file.truncate(0)
            print(mapped[mmap.PAGESIZE])  # noqa: T201  # never reached


def _hang() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # nobody will release it


def _hog() -> None:
    # not in one piece: as a data set does that keeps what it reads
    kept = [bytearray(os.urandom(64) * (1 << 14)) for _ in range(HOG_BYTES >> 20)]
    time.sleep(0.2)
    kept.clear()


_ACTS: dict[FaultKind, Callable[[], object]] = {
    FaultKind.KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    FaultKind.SEGV: lambda: ctypes.string_at(0),
    FaultKind.BUS: _read_behind_the_end,
    FaultKind.EXIT: lambda: os._exit(3),
    FaultKind.ABORT: os.abort,
    FaultKind.HANG: _hang,
    FaultKind.STOP: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    FaultKind.HOG: _hog,
}


def get_small_shm() -> str | None:
    """Give this process and its children a /dev/shm that may be filled; returns why that is not possible, or None.

    One that is small is used as it is. Else a small one is laid over it in a mount namespace of our own, which needs
    to be root, or a kernel that lets anybody have a user namespace.
    """
    if not _SHM.is_dir():
        return "there is no /dev/shm"
    if _free_bytes() <= _LARGEST_TO_FILL:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_NEWNS if uid == 0 else _CLONE_NEWNS | _CLONE_NEWUSER
    if libc.unshare(flags):
        return f"/dev/shm is too large to fill, and a mount namespace is refused ({os.strerror(ctypes.get_errno())})"
    if flags & _CLONE_NEWUSER:
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)
    if libc.mount(b"tmpfs", bytes(_SHM), b"tmpfs", ctypes.c_ulong(0), f"size={_OWN_SIZE}".encode()):
        return f"/dev/shm is too large to fill, and a mount is refused ({os.strerror(ctypes.get_errno())})"
    return None


def _free_bytes() -> int:
    found = os.statvfs(_SHM)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def full_shm() -> Iterator[None]:
    """Fill /dev/shm until not a byte more goes in; never a large one."""
    path = _SHM / f"headrace-chaos-{os.getpid()}"
    if _free_bytes() > _LARGEST_TO_FILL:
        raise ValueError(f"/dev/shm has {_free_bytes()} bytes free: too many to fill")
    try:
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def few_fds(pids: list[int]) -> Iterator[None]:
    """Lower the soft limit of open files to little more than what is open now, here and in some other processes."""
    before: dict[int, tuple[int, int]] = {}
    for pid in (os.getpid(), *pids):
        with contextlib.suppress(OSError):
            used = len(os.listdir(f"/proc/{pid}/fd"))
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, used + _SPARE_FDS), hard))
            before[pid] = soft, hard
    try:
        yield
    finally:
        for pid, limits in before.items():
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def drop_in_child(held: list[Any]) -> None:
    """Fork a child that drops its copies of what is held, and wait for its end."""
    pid = os.fork()
    if pid == 0:
        held.clear()
        gc.collect()
        os._exit(0)
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise ChildProcessError(f"a forked child that dropped its batches ended with code {code}")


def take_interrupted(batches: Iterator[Any], after_s: float) -> tuple[list[Any], bool]:
    """Return the next batch, if one came, and whether what a signal handler raised came out of `next` instead."""
    got, is_asking, was_interrupted = list[Any](), True, False

    def ring(*_: object) -> None:
        if is_asking:
            raise Interruption

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        got.extend(islice(batches, 1))  # in one step: no signal is handled between `next` and the list
        is_asking = False
    except Interruption:
        was_interrupted = not got
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return got, was_interrupted
