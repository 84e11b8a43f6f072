"""What each fault does to the process that it strikes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable

from .fault_plan import FaultKind

HOG_BYTES = 256 << 20


class InjectedFault(ValueError):
    """The exception of a sample that was made bad on purpose."""


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


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _crash() -> None:
    ctypes.string_at(0)


def _read_behind_the_end() -> None:
    """Map a file, cut it, and read what is gone: what happens when somebody rewrites a data set that is in use."""
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE) as mapped:
            file.truncate(0)
            print(mapped[mmap.PAGESIZE])  # noqa: T201  # never reached


def _leave() -> None:
    os._exit(3)


def _hang() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # nobody will release it


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hog() -> None:
    # not in one piece: as a data set does that keeps what it reads
    kept = [bytearray(os.urandom(64) * (1 << 14)) for _ in range(HOG_BYTES >> 20)]
    time.sleep(0.2)
    kept.clear()


_ACTS: dict[FaultKind, Callable[[], None]] = {
    FaultKind.KILL: _kill,
    FaultKind.SEGV: _crash,
    FaultKind.BUS: _read_behind_the_end,
    FaultKind.EXIT: _leave,
    FaultKind.ABORT: os.abort,
    FaultKind.HANG: _hang,
    FaultKind.STOP: _stop,
    FaultKind.HOG: _hog,
}
