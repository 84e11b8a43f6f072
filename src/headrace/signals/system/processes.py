"""What /proc says of a process: its line in `stat`, its status, its memory, its open files, and the tree below it."""

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import NamedTuple

from .kernel_files import find_bytes, find_number, read_start, read_text
from .samples import ProcessSample

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Exact figures of memory walk a process's page tables (12 ms for one of 600 MiB): they may cost this share of a core.
_DEAR_SHARE = 0.0015
# Beyond this the walk would hold up the process itself too long.
_MOST_ROLLUP_BYTES = 4 << 30
# File systems whose server may stop answering.
_NETWORK_KINDS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "afs", "9p", "virtiofs", "orangefs")
)


# ---------------------------------------------------------------------------------------- stat, status, memory


class ProcessStat(NamedTuple):
    """What /proc/<pid>/stat tells of a process, or of one thread. Counters grow."""

    pid: int
    name: str  # of its first thread, at most 15 characters
    state: str  # R running or ready, S asleep, D in the kernel and not to be woken, T stopped, t traced, Z ended
    parent: int
    session: int
    minor_faults: int
    major_faults: int
    cpu_user_s: float
    cpu_system_s: float
    cpu_children_s: float  # of those that have ended and were asked for
    threads: int
    born_ticks: int  # its start since boot: a pid alone may come back
    rss_bytes: int
    place: tuple[str, str] | None  # where its code and its first stack lie; None: hidden from us
    block_io_s: float
    exit_status: int  # of one that has ended, as `wait` gives it; others than its owner are told 0

    @property
    def has_ended(self) -> bool:
        """Whether it is dead, and only waits for its parent to ask."""
        return self.state in "ZX"

    @property
    def cpu_s(self) -> float:
        return self.cpu_user_s + self.cpu_system_s

    def is_forked_from(self, parent: "ProcessStat | None") -> bool:
        """Whether it runs its parent's program: the same places in both, so no `exec` came between."""
        return parent is not None and self.place is not None and self.place == parent.place


def read_stat(pid: int | str, *, tid: int | None = None, root: Path | str = "/") -> ProcessStat | None:
    """The `stat` of a process, or of one of its threads; None where it is gone."""
    data = read_start(f"{root}/proc/{pid}/stat" if tid is None else f"{root}/proc/{pid}/task/{tid}/stat", 1024)
    # "pid (name) state parent …": the name may hold anything, also brackets
    start, end = data.find(b"("), data.rfind(b")")
    fields = data[end + 2 :].split()
    if end < 0 or len(fields) < 26:
        return None
    return ProcessStat(
        pid=int(data[:start]),
        name=data[start + 1 : end].decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        session=int(fields[3]),
        minor_faults=int(fields[7]),
        major_faults=int(fields[9]),
        cpu_user_s=int(fields[11]) * _TICK_S,
        cpu_system_s=int(fields[12]) * _TICK_S,
        cpu_children_s=(int(fields[13]) + int(fields[14])) * _TICK_S,
        threads=int(fields[17]),
        born_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE,
        place=None if fields[25] in (b"0", b"1") else (fields[23].decode(), fields[25].decode()),
        block_io_s=int(fields[39]) * _TICK_S if len(fields) > 39 else 0.0,
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def read_all_stats(root: Path | str = "/") -> dict[int, ProcessStat]:
    """The `stat` of every process of the machine that we see."""
    found = (read_stat(pid, root=root) for pid in _list_pids(root))
    return {one.pid: one for one in found if one is not None}


def count_tasks(uid: int, root: Path | str = "/") -> int:
    """How many processes and threads a user has: what `ulimit -u` counts."""
    total = 0
    for pid in _list_pids(root):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if os.stat(f"{root}/proc/{pid}").st_uid == uid and (one := read_stat(pid, root=root)) is not None:
                total += one.threads
    return total


def walk_tree(pids: Iterable[int], stats: Mapping[int, ProcessStat] | None = None) -> list[ProcessStat]:
    """These processes and all below them, parents before children, also such as have ended and were not asked for."""
    stats = read_all_stats() if stats is None else stats
    children: dict[int, list[int]] = {}
    for one in stats.values():
        children.setdefault(one.parent, []).append(one.pid)
    found: dict[int, ProcessStat] = {}
    todo = list(pids)
    for pid in todo:
        if pid in stats and pid not in found:
            found[pid] = stats[pid]
            todo += children.get(pid, [])
    return list(found.values())


def _list_pids(root: Path | str) -> set[int]:
    try:
        return {int(name) for name in os.listdir(f"{root}/proc") if name.isdigit()}
    except OSError:
        return set()


def read_status(folder: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in read_text(folder / "status").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def catches(pid: int, number: int, *, root: Path = Path("/")) -> bool:
    """Whether a process has a handler for a signal: else a real-time signal would end it."""
    mask = int(read_status(root / f"proc/{pid}").get("SigCgt", "0"), 16)
    return bool(mask >> (number - 1) & 1)


def read_resident(pid: int, *, root: Path | str = "/") -> tuple[int, int] | None:
    """(resident, anonymous) bytes of a process; None where it is gone, or has ended. Cheap: a few counters."""
    fields = read_start(f"{root}/proc/{pid}/statm", 128).split()
    if len(fields) < 3 or fields[1] == b"0":
        return None
    resident, shared = int(fields[1]) * _PAGE, int(fields[2]) * _PAGE
    return resident, max(0, resident - shared)


def read_schedule(pid: int, *, tid: int | None = None, root: Path | str = "/") -> tuple[float, float] | None:
    """Seconds on a core, and ready to run without one, of a process's first thread or of another; None: it is gone."""
    name = f"{pid}/schedstat" if tid is None else f"{pid}/task/{tid}/schedstat"
    fields = read_start(f"{root}/proc/{name}", 128).split()
    return (int(fields[0]) / 1e9, int(fields[1]) / 1e9) if len(fields) > 1 else None


class Rollup(NamedTuple):
    """Exact figures of a process's memory: shared pages are divided between those who share them (PSS)."""

    pss_bytes: int
    shared_pss_bytes: int  # of it, shared memory
    own_bytes: int  # pages that are this process's alone (USS)


def read_rollup(pid: int, *, root: Path | str = "/") -> Rollup | None:
    """Walk the page tables of a process, which takes milliseconds; None where it is gone or not ours to read."""
    text = read_start(f"{root}/proc/{pid}/smaps_rollup", 4096).decode("ascii", "replace")
    names = ("Pss:", "Pss_Shmem:", "Private_Clean:", "Private_Dirty:")
    pss, shared, clean, dirty = (find_bytes(text, name) for name in names)
    return None if pss is None else Rollup(pss, shared or 0, (clean or 0) + (dirty or 0))


# ---------------------------------------------------------------------------------------- the tree below a training


def read_tree_memory(pid: int) -> int | None:
    """The bytes that a process and all below it occupy; None where the kernel does not tell.

    The sum of their PSS. But a segment of shared memory on its way from a worker to the loop is mapped by nobody for a
    while: shared memory counts with what its segments have allocated where that is more than what is mapped.
    """
    pids = [one.pid for one in walk_tree([pid])]
    told = [rollup for rollup in map(read_rollup, pids) if rollup is not None]
    segments: dict[tuple[int, int], int] = {}  # allocated bytes by device and inode
    for link in (link for one in pids for link in glob(f"/proc/{one}/fd/*")):
        with contextlib.suppress(OSError):  # closed since we listed it
            if os.readlink(link).startswith(("/dev/shm/", "/memfd:")):
                entry = os.stat(link)
                segments[entry.st_dev, entry.st_ino] = 512 * entry.st_blocks
    mapped = sum(rollup.shared_pss_bytes for rollup in told)
    private = sum(rollup.pss_bytes for rollup in told) - mapped
    return private + max(mapped, sum(segments.values())) if told else None


@dataclass
class _Member:
    """A process of the tree, and what was last read of it that is too dear to read each time."""

    born_ticks: int
    memory: Rollup | None = None
    read_at_s: float = -1.0


class ProcessTree:
    """A process and all below it, also those whose parent is gone meanwhile."""

    def __init__(self, pid: int, *, root: Path = Path("/"), dear_share: float = _DEAR_SHARE) -> None:
        self.pid = pid
        self._dear_share = dear_share
        self._root = root
        self._members: dict[int, _Member] = {}
        self._others: set[int] = set()  # known not to be in the tree: their parents are not asked for again
        self._dear_due_s = 0.0

    def sample(self) -> tuple[ProcessSample, ...]:
        """What each process of the tree does now, the first one first."""
        self._find()
        self._read_dear()
        found = {pid: self._read(pid, member) for pid, member in self._members.items()}
        self._members = {pid: member for pid, member in self._members.items() if found[pid] is not None}
        return tuple(sample for sample in found.values() if sample is not None)

    def _find(self) -> None:
        """Look for new processes: only those whose number was not there at the last look are asked for their parent."""
        present = _list_pids(self._root)
        self._others &= present
        found = (read_stat(pid, root=self._root) for pid in present - self._others - self._members.keys())
        new = {one.pid: one for one in found if one is not None}
        below = [one.pid for one in new.values() if one.parent in self._members]
        for one in walk_tree([self.pid, *below], new):
            self._members[one.pid] = _Member(one.born_ticks)
        self._others |= new.keys() - self._members.keys()

    def _read(self, pid: int, member: _Member) -> ProcessSample | None:
        own = read_stat(pid, root=self._root)
        if own is None or own.born_ticks != member.born_ticks:
            return None
        base = f"{self._root}/proc/{pid}"
        io, status = (
            read_start(f"{base}/{name}", size).decode("ascii", "replace")
            for name, size in (("io", 512), ("status", 4096))
        )
        schedule = read_schedule(pid, root=self._root)
        channel = read_start(f"{base}/wchan", 128)
        return ProcessSample(
            pid=pid,
            parent=own.parent,
            name=own.name,
            state=own.state,
            wait_channel="" if channel in (b"0", b"") else channel.decode("ascii", "replace"),
            threads=own.threads,
            cpu_user_s=own.cpu_user_s,
            cpu_system_s=own.cpu_system_s,
            main_cpu_s=schedule[0] if schedule is not None else None,
            run_delay_s=schedule[1] if schedule is not None else None,
            block_io_s=own.block_io_s,
            rss_bytes=own.rss_bytes,
            pss_bytes=member.memory.pss_bytes if member.memory else None,
            uss_bytes=member.memory.own_bytes if member.memory else None,
            swap_bytes=find_bytes(status, "VmSwap:"),
            minor_faults=own.minor_faults,
            major_faults=own.major_faults,
            read_bytes=find_number(io, "read_bytes:"),
            write_bytes=find_number(io, "write_bytes:"),
            read_calls_bytes=find_number(io, "rchar:"),
            write_calls_bytes=find_number(io, "wchar:"),
            voluntary_switches=find_number(status, "voluntary_ctxt_switches:"),
            involuntary_switches=find_number(status, "nonvoluntary_ctxt_switches:"),
            cpu_children_s=own.cpu_children_s,
        )

    def _read_dear(self) -> None:
        """Refresh the figures of the one process that was looked at longest ago, as often as their price allows."""
        now_s = time.monotonic()
        if now_s < self._dear_due_s or not self._members:
            return
        pid, member = min(self._members.items(), key=lambda one: one[1].read_at_s)
        start, resident = time.perf_counter(), read_resident(pid, root=self._root)
        if resident is not None and resident[0] <= _MOST_ROLLUP_BYTES:
            member.memory = read_rollup(pid, root=self._root)
        member.read_at_s = now_s
        self._dear_due_s = now_s + (time.perf_counter() - start) / self._dear_share


# ---------------------------------------------------------------------------------------- open files


@dataclass(frozen=True, kw_only=True)
class OpenFile:
    """One descriptor: a path, or what the kernel calls it ("socket:[123]", "pipe:[45]")."""

    fd: int
    path: str
    position: int
    size: int | None
    kind: str  # "file", "socket", "pipe", "other"
    file_system: str  # "" where it is not known
    flags: int = os.O_RDONLY  # with which it was opened

    @property
    def is_remote(self) -> bool:
        """Whether reading it may wait for a server."""
        return _is_remote(self.file_system)


def _is_remote(file_system: str) -> bool:
    """Whether it is a network file system, or one in user space (FUSE)."""
    return file_system in _NETWORK_KINDS or file_system.partition(".")[0] in {"fuse", "fuseblk"}


def read_open_files(pid: int, *, root: Path = Path("/")) -> tuple[OpenFile, ...]:
    """The open files of a process by descriptor; empty where they may not be seen."""
    folder = root / f"proc/{pid}"
    try:
        fds = sorted(int(name) for name in os.listdir(folder / "fd"))
    except OSError:
        return ()
    mounts = (line.partition(" - ") for line in read_text(folder / "mountinfo").splitlines())
    systems = {int(left.split()[0]): right.split()[0] for left, _, right in mounts if left and right}
    found = (_read_file(folder, fd, systems) for fd in fds)
    return tuple(file for file in found if file is not None)


def _read_file(folder: Path, fd: int, systems: dict[int, str]) -> OpenFile | None:
    link = folder / "fd" / str(fd)
    try:
        path = os.readlink(link)
        fields = dict(line.split(":", 1) for line in (folder / f"fdinfo/{fd}").read_text().splitlines() if ":" in line)
    except OSError:  # closed meanwhile
        return None
    file_system = systems.get(int(fields.get("mnt_id", "-1")), "")
    kind = next((kind for kind in ("socket", "pipe") if path.startswith(f"{kind}:")), "other")
    size = None
    if path.startswith("/"):
        kind = "file"
        if file_system and not _is_remote(file_system):  # to ask a server that does not answer would hang us too
            with contextlib.suppress(OSError):
                result = os.stat(link)
                size = result.st_size if stat.S_ISREG(result.st_mode) else None
    position, flags = int(fields.get("pos", "0")), int(fields.get("flags", "0"), 8)
    return OpenFile(fd=fd, path=path, position=position, size=size, kind=kind, file_system=file_system, flags=flags)
