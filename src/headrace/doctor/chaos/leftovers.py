"""What a process has that it should give back: child processes, open files, entries of /dev/shm."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.signals.system import read_all_stats, read_stat, read_text, walk_tree

# helpers of multiprocessing that live as long as the interpreter, started by whoever needs them first
_STAYING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_STAYING_FDS = 4  # and their pipes


@dataclass(frozen=True)
class ProcessHoldings:
    """What this process has at one moment."""

    children: frozenset[int]
    shm: frozenset[str]
    fds: int

    @classmethod
    def now(cls) -> ProcessHoldings:
        return cls(_children(), _shm(), len(os.listdir("/proc/self/fd")))

    def left_since(self, *, patience_s: float = 5.0) -> list[str]:
        """Return what is there now and was not then, once it had some time to go, in words."""
        deadline = time.monotonic() + patience_s
        while True:
            gc.collect()
            left = self._left(ProcessHoldings.now())
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def _left(self, now: ProcessHoldings) -> list[str]:
        left = [f"process {pid}" for pid in sorted(now.children - self.children)]
        left += [f"/dev/shm/{name}" for name in sorted(now.shm - self.shm)]
        if now.fds > self.fds + _STAYING_FDS:
            left.append(f"{now.fds - self.fds} open files more than before")
        return left


def processes_of_session(session: int) -> list[int]:
    """Return the processes that belong to a session and are not zombies."""
    return [one.pid for one in read_all_stats().values() if one.session == session and not one.has_ended]


def name_and_state(pid: int) -> tuple[str, str]:
    """Return the name of a process and the letter of its state; "X", as the kernel says it, where it is gone."""
    stat = read_stat(pid)
    return (stat.name, stat.state) if stat is not None else ("", "X")


def _children() -> frozenset[int]:
    children = {one.pid for one in walk_tree([os.getpid()]) if not one.has_ended} - {os.getpid()}
    commands = {pid: read_text(f"/proc/{pid}/cmdline") for pid in children}
    return frozenset(pid for pid, command in commands.items() if not any(name in command for name in _STAYING))


def _shm() -> frozenset[str]:
    """Entries of /dev/shm that may be ours: of this user, and not named after another process that lives."""
    entries = set()
    for path in Path("/dev/shm").glob("*"):
        owner = ""  # torch's segments, and what fills /dev/shm for another run of chaos, bear a process's number
        if path.name.startswith(("torch_", "headrace-chaos-")):
            owner = path.name.replace("headrace-chaos-", "chaos_").split("_")[1]
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid == os.geteuid() and not (owner.isdigit() and _is_others(int(owner))):
                entries.add(path.name)
    return frozenset(entries)


def _is_others(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid) != os.getsid(0)
    return False
