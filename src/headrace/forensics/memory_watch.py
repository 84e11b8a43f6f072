"""A short memory of what the processes of a loader held: a ring of samples over the last seconds."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.signals.system import MemoryGroup, memory_groups, read_limits

from .memory_sample import MemorySample, ProcessMemory

# A look at 17 processes and a group with a limit costs 0.3 ms, so four a second cost 0.12 % of a core
# (benchmarks/guard_watching.py).
EVERY_S = 0.25
KEEP_S = 10.0
# Exact figures (smaps_rollup walks a process's page tables: 12 ms for one of 600 MiB) may cost this share of a core.
_ROLLUP_SHARE = 0.0005
_ROLLUP_EVERY_S = 1.0
# Beyond this, walking the page tables would hold up the process itself too long.
_MOST_ROLLUP_BYTES = 2 << 30
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class _Exact:
    """The last exact figures of a process."""

    at_s: float
    pss_bytes: int
    anon_bytes: int


class MemoryWatch:
    """Samples a tree of processes and its control groups. Owns no thread and no open file.

    Call `sample(now_s, worker_pids)` as often as you like: it does nothing until the next look is due. In the training
    loop itself leave `exact` off: a look then takes a fraction of a millisecond. A thread may set it: the system call
    that takes long runs without the interpreter's lock.
    """

    def __init__(
        self,
        main_pid: int,
        *,
        is_forked: bool = True,
        groups: tuple[MemoryGroup, ...] | None = None,
        root: Path = Path("/"),
        every_s: float = EVERY_S,
        keep_s: float = KEEP_S,
    ) -> None:
        self._main_pid = main_pid
        self._is_forked = is_forked  # workers share the training process's memory until they write to it
        self._root = root
        self._groups = memory_groups(root) if groups is None else groups
        # a group without a limit cannot kill: it is not looked at again
        self._limited = tuple(memory.group for memory in read_limits(self._groups))
        self._every_s, self._keep_s = every_s, keep_s
        self._samples: deque[MemorySample] = deque()
        self._exact: dict[int, _Exact] = {}
        self._inherited: dict[int, int] = {}
        self._rollup_due_s = 0.0
        self.due_s = 0.0  # when the next look is due: `if now_s >= watch.due_s` is all that a hot loop needs

    def sample(
        self, now_s: float, worker_pids: Sequence[int], *, queued_bytes: int = 0, exact: bool = False
    ) -> MemorySample | None:
        """Look at the tree if it is time; returns what was seen, else None."""
        if now_s < self.due_s:
            return None
        self.due_s = now_s + self._every_s
        sizes = {}
        for pid in (self._main_pid, *worker_pids):
            size = _read_statm(self._root, pid)
            if size is not None:
                sizes[pid] = size
        main_anon = sizes.get(self._main_pid, (0, 0))[1] if self._is_forked else 0
        self._inherited = {pid: self._inherited.get(pid, min(main_anon, sizes[pid][1])) for pid in sizes}
        self._exact = {pid: figures for pid, figures in self._exact.items() if pid in sizes}
        if exact:
            self._measure_exactly(now_s, sizes)
        available, total = _read_meminfo(self._root)
        sample = MemorySample(
            at_s=now_s,
            processes=tuple(self._memory_of(pid, rss, anon) for pid, (rss, anon) in sizes.items()),
            queued_bytes=queued_bytes,
            groups=read_limits(self._limited),
            available_bytes=available,
            total_bytes=total,
        )
        self._samples.append(sample)
        while now_s - self._samples[0].at_s > self._keep_s:
            self._samples.popleft()
        return sample

    def recent(self) -> tuple[MemorySample, ...]:
        """The samples of the last seconds, oldest first."""
        return tuple(self._samples)

    def _memory_of(self, pid: int, rss: int, anon: int) -> ProcessMemory:
        exact = self._exact.get(pid)
        if exact is not None:
            # between two exact looks, what a process gains or loses is its own
            pss = max(0, exact.pss_bytes + anon - exact.anon_bytes)
        elif pid == self._main_pid:
            pss = rss
        else:
            pss = max(0, anon - self._inherited[pid])  # what it came with is the parent's
        return ProcessMemory(pid=pid, rss_bytes=rss, anon_bytes=anon, pss_bytes=min(pss, rss))

    def _measure_exactly(self, now_s: float, sizes: dict[int, tuple[int, int]]) -> None:
        """Refresh the exact figures that are oldest, as far as their price allows."""
        small = [pid for pid, (rss, _) in sizes.items() if rss <= _MOST_ROLLUP_BYTES]
        if not small or now_s < self._rollup_due_s:
            return
        # those that were never measured first, then the one measured longest ago
        pid = min(small, key=lambda pid: self._exact[pid].at_s if pid in self._exact else -1.0)
        start = time.perf_counter()
        pss = _read_pss(self._root, pid)
        rss, anon = sizes[pid]
        if pss is None:  # not ours to read: keep the estimate, and do not try at every look
            pss = self._memory_of(pid, rss, anon).pss_bytes
        self._exact[pid] = _Exact(now_s, pss, anon)
        cost_s = time.perf_counter() - start
        # one process at a time: each of N is seen anew every N seconds, or less often where that is dear
        self._rollup_due_s = now_s + max(_ROLLUP_EVERY_S, cost_s / _ROLLUP_SHARE)


def _read_statm(root: Path, pid: int) -> tuple[int, int] | None:
    """(resident, anonymous) bytes of a process; None where it is gone."""
    data = _read(root, f"proc/{pid}/statm", 128)
    fields = data.split()
    if len(fields) < 3:
        return None
    resident, shared = int(fields[1]) * _PAGE, int(fields[2]) * _PAGE
    if not resident:  # a process that ended and was not waited for yet has none
        return None
    return resident, max(0, resident - shared)


def _read_pss(root: Path, pid: int) -> int | None:
    for line in _read(root, f"proc/{pid}/smaps_rollup", 4096).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def _read_meminfo(root: Path) -> tuple[int | None, int | None]:
    """(available, total) bytes of the machine."""
    found: dict[bytes, int] = {}
    for line in _read(root, "proc/meminfo", 256).splitlines():  # both stand in the first three lines
        name, _, rest = line.partition(b":")
        if name in (b"MemAvailable", b"MemTotal") and rest.split()[1:] == [b"kB"]:
            found[name] = int(rest.split()[0]) * 1024
    return found.get(b"MemAvailable"), found.get(b"MemTotal")


def _read(root: Path, name: str, size: int) -> bytes:
    """The start of a file, without the layers of `open()`: this runs several times a second for every worker."""
    try:
        fd = os.open(f"{root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size)
    except OSError:  # ended meanwhile
        return b""
    finally:
        os.close(fd)
