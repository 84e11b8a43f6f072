"""The processes below a training, and what /proc says of each."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from .kernel_files import read_start
from .system_sample import ProcessSample

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Exact figures of memory walk a process's page tables (12 ms for one of 600 MiB): they may cost this share of a core.
_DEAR_SHARE = 0.0015
_MAPS_EVERY = 4  # looks; as dear, and of interest only where a program maps tens of thousands of things
# Beyond this the walk would hold up the process itself too long.
_MOST_ROLLUP_BYTES = 4 << 30


@dataclass
class _Member:
    """A process of the tree, and what was last read of it that is too dear to read each time."""

    born: int
    name: str
    pss_bytes: int | None = None
    uss_bytes: int | None = None
    maps: int | None = None
    read_at_s: float = -1.0
    looks: int = 0


class ProcessTree:
    """A process and all below it, also those whose parent is gone meanwhile."""

    def __init__(self, pid: int, *, root: Path = Path("/"), dear_share: float = _DEAR_SHARE) -> None:
        self.pid = pid
        self._dear_share = dear_share
        self._proc = f"{root}/proc"
        self._members: dict[int, _Member] = {}
        self._others: set[int] = set()  # known not to be in the tree: their parents are not asked for again
        self._dear_due_s = 0.0
        self._fd_size_counts = _fd_size_counts(self._proc)

    def sample(self) -> tuple[ProcessSample, ...]:
        """What each process of the tree does now, the first one first."""
        self._find()
        samples = []
        for pid, member in list(self._members.items()):
            sample = self._read(pid, member)
            if sample is None:
                del self._members[pid]
            else:
                samples.append(sample)
        self._read_dear(samples)
        return tuple(self._with_dear(sample) for sample in samples)

    def _find(self) -> None:
        """Look for new processes: only those whose number was not there at the last look are asked for their parent."""
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            return
        self._others &= present
        parents: dict[int, tuple[int, int, str]] = {}
        for pid in present - self._others - self._members.keys():
            fields = _stat(self._proc, pid)
            if fields is not None:
                parents[pid] = (int(fields[2]), int(fields[20]), fields[0].decode("utf-8", "replace"))
        if self.pid in parents:
            self._members[self.pid] = _Member(*parents.pop(self.pid)[1:])
        is_growing = True
        while is_growing:
            found = [pid for pid, (parent, _, _) in parents.items() if parent in self._members]
            for pid in found:
                self._members[pid] = _Member(*parents.pop(pid)[1:])
            is_growing = bool(found)
        self._others |= parents.keys()

    def _read(self, pid: int, member: _Member) -> ProcessSample | None:
        stat = _stat(self._proc, pid)
        if stat is None or int(stat[20]) != member.born:
            return None
        base = f"{self._proc}/{pid}"
        io = read_start(f"{base}/io", 512)
        status = read_start(f"{base}/status", 4096)
        schedule = read_start(f"{base}/schedstat", 128).split()
        channel = read_start(f"{base}/wchan", 128)
        return ProcessSample(
            pid=pid,
            parent=int(stat[2]),
            name=stat[0].decode("utf-8", "replace"),
            state=stat[1].decode("ascii", "replace"),
            wait_channel="" if channel in (b"0", b"") else channel.decode("ascii", "replace"),
            threads=int(stat[18]),
            cpu_user_s=int(stat[12]) * _TICK_S,
            cpu_system_s=int(stat[13]) * _TICK_S,
            run_delay_s=int(schedule[1]) / 1e9 if len(schedule) > 1 else None,
            block_io_s=int(stat[40]) * _TICK_S,
            rss_bytes=int(stat[22]) * _PAGE,
            pss_bytes=None,
            uss_bytes=None,
            swap_bytes=_kib(_value(status, b"\nVmSwap:")),
            minor_faults=int(stat[8]),
            major_faults=int(stat[10]),
            read_bytes=_int(_value(io, b"\nread_bytes:")),
            write_bytes=_int(_value(io, b"\nwrite_bytes:")),
            read_calls_bytes=_int(_value(io, b"rchar:")),
            write_calls_bytes=_int(_value(io, b"\nwchar:")),
            fds=self._count_fds(base),
            maps=None,
            voluntary_switches=_int(_value(status, b"\nvoluntary_ctxt_switches:")),
            involuntary_switches=_int(_value(status, b"\nnonvoluntary_ctxt_switches:")),
        )

    def _count_fds(self, base: str) -> int | None:
        try:
            if self._fd_size_counts:
                return os.stat(f"{base}/fd").st_size if os.access(f"{base}/fd", os.R_OK) else None
            return len(os.listdir(f"{base}/fd"))
        except OSError:
            return None

    def _read_dear(self, samples: list[ProcessSample]) -> None:
        """Refresh the figures of the one process that was looked at longest ago, as often as their price allows."""
        now_s = time.monotonic()
        if now_s < self._dear_due_s or not samples:
            return
        sample = min(samples, key=lambda one: self._members[one.pid].read_at_s)
        member, base = self._members[sample.pid], f"{self._proc}/{sample.pid}"
        start = time.perf_counter()
        if sample.rss_bytes <= _MOST_ROLLUP_BYTES:
            rollup = read_start(f"{base}/smaps_rollup", 4096)
            member.pss_bytes = _kib(_value(rollup, b"\nPss:"))
            private = [_kib(_value(rollup, name)) for name in (b"\nPrivate_Clean:", b"\nPrivate_Dirty:")]
            member.uss_bytes = None if None in private else sum(filter(None, private))
        if member.looks % _MAPS_EVERY == 0:
            member.maps = _count_lines(f"{base}/maps")
        member.looks += 1
        member.read_at_s = now_s
        cost_s = time.perf_counter() - start
        self._dear_due_s = now_s + cost_s / self._dear_share

    def _with_dear(self, sample: ProcessSample) -> ProcessSample:
        member = self._members[sample.pid]
        return sample._replace(pss_bytes=member.pss_bytes, uss_bytes=member.uss_bytes, maps=member.maps)


def _stat(proc: str, pid: int) -> list[bytes] | None:
    """The name of a process, then its state and what follows in /proc/<pid>/stat; None where it is gone."""
    data = read_start(f"{proc}/{pid}/stat", 1024)
    start, end = data.find(b"("), data.rfind(b")")
    if end < 0:
        return None
    fields = [data[start + 1 : end], *data[end + 2 :].split()]
    return fields if len(fields) > 40 else None


def _value(data: bytes, name: bytes) -> bytes | None:
    """What stands after a name, up to the end of its line; None where it is not there. All of sixty are not split."""
    start = data.find(name)
    if start < 0:
        return None
    start += len(name)
    return data[start : data.find(b"\n", start)].strip()


def _int(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None


def _kib(value: bytes | None) -> int | None:
    return None if value is None else (_int(value.split()[0]) or 0) * 1024


def _count_lines(path: str) -> int | None:
    try:
        with open(path, "rb", buffering=1 << 16) as file:
            return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 16), b""))
    except OSError:
        return None


def _fd_size_counts(proc: str) -> bool:
    """Whether the size of /proc/<pid>/fd is the number of its entries, as since Linux 6.2."""
    try:
        return os.stat(f"{proc}/self/fd").st_size > 0
    except OSError:
        return False
