"""The control groups of a process, v1 and v2: limits of memory, kills there, quotas of processors, limits of tasks.

Facts about the kernel that the readers rest on:

- a limit of any group above the process holds for it, so all levels are read, the innermost first;
- v2 `memory.events` counts a group and all below it, `memory.events.local` the group alone; v1 counts a kill in the
  victim's own group, whichever group above it hit its limit;
- v2 `oom` (local) and v1 `memory.failcnt` rise at the level whose limit was hit; `oom_kill` rises for every kill, also
  for one of the whole machine (`oom_kill` of /proc/vmstat, which counts the kills of all groups too).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .kernel_files import find_number, read_int, read_table, read_text
from .samples import CpuGroupSample, MemoryGroupSample

# by version: the files of limit, use and peak; in `memory.stat` the names of inactive and active files and of refaults
_MEMORY = {
    1: (
        *("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"),
        *("total_inactive_file", "total_active_file", "total_workingset_refault_file"),
    ),
    2: (*("memory.max", "memory.current", "memory.peak"), *("inactive_file", "active_file", "workingset_refault_file")),
}
# a group has these; the root group of a machine has no limit file in v2: it holds nothing that could be read here
_MARKS = {
    "memory": {version: names[0] for version, names in _MEMORY.items()},
    "cpu": {1: "cpu.cfs_quota_us", 2: "cpu.max"},
    "pids": {1: "pids.max", 2: "pids.max"},
}
_NO_LIMIT = 1 << 60  # v1 writes "no limit" as the largest multiple of a page

_Mount = tuple[Path, PurePosixPath]  # where a hierarchy is mounted, and which of its groups is at that place


@dataclass(frozen=True)
class MemoryGroup:
    """One control group with memory accounting: its version and its folder."""

    version: int
    folder: Path

    @property
    def name(self) -> str:
        return f"cgroup v{self.version}"


@dataclass(frozen=True, kw_only=True)
class GroupMemory:
    """What a control group holds at one moment; `None`: not known here."""

    group: MemoryGroup
    limit_bytes: int | None  # None: no limit
    throttle_bytes: int | None  # v2 `memory.high`: beyond it the kernel slows the group down instead of killing
    used_bytes: int
    inactive_file_bytes: int  # cache that the kernel drops first
    active_file_bytes: int  # cache in use: droppable too, at the price of reading it again
    peak_bytes: int | None
    refault_pages: int = 0  # of files, read again shortly after there was no room to keep them; it grows

    @property
    def working_set_bytes(self) -> int:
        """Use without the cache that the kernel drops first."""
        return max(0, self.used_bytes - self.inactive_file_bytes)

    @property
    def hard_bytes(self) -> int:
        """Use that the kernel cannot drop: beyond the limit, it kills."""
        return max(0, self.used_bytes - self.inactive_file_bytes - self.active_file_bytes)


@dataclass(frozen=True, kw_only=True)
class GroupKills:
    """Counters of one control group; `None`: this kernel does not count it."""

    group: MemoryGroup
    kills: int | None  # processes that the kernel killed for memory
    limit_hits: int | None  # times that this very group's limit was hit (v2 `oom`, v1 `failcnt`)


@dataclass(frozen=True, kw_only=True)
class OomCounts:
    """How often the kernel has killed for memory, per group of a process (innermost first) and on the machine."""

    groups: tuple[GroupKills, ...] = ()
    machine: int | None = None


def memory_groups(root: Path = Path("/"), *, pid: int | None = None) -> tuple[MemoryGroup, ...]:
    """The control groups with memory accounting that hold for a process, the innermost first."""
    return tuple(MemoryGroup(version, folder) for version, folder in _find_groups("memory", root, pid))


def _find_groups(controller: str, root: Path, pid: int | None) -> list[tuple[int, Path]]:
    """(version, folder) of the groups of a controller that hold for a process."""
    mounts, marks = _mounts(root, controller), _MARKS[controller]
    found = []
    for line in read_text(root / "proc" / ("self" if pid is None else str(pid)) / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not path or (controllers and controller not in controllers.split(",")):
            continue
        version = 1 if controllers else 2  # v2's line names no controllers
        folders = (folder for folder in _upwards(mounts[version], path) if (folder / marks[version]).exists())
        found += [(version, folder) for folder in folders]
    return found


def read_group(group: MemoryGroup) -> GroupMemory | None:
    """A group's memory now; None where it is gone or unreadable."""
    folder = str(group.folder)
    limit_file, used_file, peak_file, inactive, active, refaults = _MEMORY[group.version]
    used, limit = read_int(f"{folder}/{used_file}"), read_int(f"{folder}/{limit_file}")
    if used is None:
        return None
    stat = read_text(f"{folder}/memory.stat")
    return GroupMemory(
        group=group,
        limit_bytes=limit if limit is not None and limit < _NO_LIMIT else None,
        throttle_bytes=read_int(f"{folder}/memory.high") if group.version == 2 else None,
        used_bytes=used,
        inactive_file_bytes=find_number(stat, f"{inactive} ") or 0,
        active_file_bytes=find_number(stat, f"{active} ") or 0,
        peak_bytes=read_int(f"{folder}/{peak_file}"),
        refault_pages=find_number(stat, f"{refaults} ") or 0,
    )


def read_limits(groups: tuple[MemoryGroup, ...]) -> tuple[GroupMemory, ...]:
    """Those groups that have a limit, as they are now."""
    known = (read_group(group) for group in groups)
    return tuple(memory for memory in known if memory is not None and memory.limit_bytes is not None)


def read_oom_counts(groups: tuple[MemoryGroup, ...], root: Path = Path("/")) -> OomCounts:
    """The kernel's counters of kills for memory. Two of them, before and after a death, tell whether it was one."""
    machine = read_table(root / "proc/vmstat").get("oom_kill")
    return OomCounts(groups=tuple(map(_read_kills, groups)), machine=machine)


def _read_kills(group: MemoryGroup) -> GroupKills:
    folder = group.folder
    if group.version == 1:
        kills = read_table(folder / "memory.oom_control").get("oom_kill")
        return GroupKills(group=group, kills=kills, limit_hits=read_int(folder / "memory.failcnt"))
    events, local = (read_table(folder / name) for name in ("memory.events", "memory.events.local"))
    # without the local file (Linux before 5.2) the hierarchical count stands in for it
    return GroupKills(group=group, kills=events.get("oom_kill"), limit_hits=local.get("oom", events.get("oom")))


def sample_groups(groups: tuple[MemoryGroup, ...]) -> tuple[MemoryGroupSample, ...]:
    """All that is to be said of some groups now, for a recording; those that are gone are left out."""
    found = []
    for depth, group in enumerate(groups):
        memory = read_group(group)
        if memory is None:
            continue
        folder = group.folder
        if group.version == 1:
            both = read_int(folder / "memory.memsw.usage_in_bytes")
            swap = None if both is None else max(0, both - memory.used_bytes)
            events = read_table(folder / "memory.oom_control")
            limit_hits = read_int(folder / "memory.failcnt")
        else:
            swap = read_int(folder / "memory.swap.current")
            events = read_table(folder / "memory.events")
            limit_hits = events.get("max")
        told: dict[str, Any] = {name: value for name, value in vars(memory).items() if name != "group"}
        told |= {"throttle_hits": events.get("high"), "ooms": events.get("oom"), "kills": events.get("oom_kill")}
        told |= {"swap_bytes": swap, "limit_hits": limit_hits}
        found.append(MemoryGroupSample(version=group.version, depth=depth, **told))
    return tuple(found)


# ---------------------------------------------------------------------------------------- processors


def cpu_groups(root: Path = Path("/"), *, pid: int | None = None) -> list[tuple[int, Path]]:
    """(version, folder) of the CPU groups above a process, the innermost first, whether they have a quota or not."""
    return _find_groups("cpu", root, pid)


def read_quotas(groups: list[tuple[int, Path]]) -> tuple[CpuGroupSample, ...]:
    """Those of some groups that have a quota, as they are now."""
    found = []
    for depth, (version, folder) in enumerate(groups):
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if version == 1 else ("cpu.max",)
        quota, period, *_ = (*" ".join(read_text(folder / name) for name in files).split(), "", "")
        if not (quota.isdigit() and period.isdigit() and int(period)):  # -1 and "max": no quota
            continue
        stat = read_table(folder / "cpu.stat")
        throttled_s = stat.get("throttled_time", 0) / 1e9 if version == 1 else stat.get("throttled_usec", 0) / 1e6
        periods, throttled = stat.get("nr_periods", 0), stat.get("nr_throttled", 0)
        found.append(CpuGroupSample(version, depth, int(quota) / int(period), periods, throttled, throttled_s))
    return tuple(found)


def read_quota(root: Path = Path("/")) -> float | None:
    """How many cores the tightest quota leaves this process; None where there is none."""
    quotas = (one.quota_cores for one in read_quotas(cpu_groups(root)))
    return min((quota for quota in quotas if quota is not None), default=None)


# ---------------------------------------------------------------------------------------- processes and threads


def read_task_limit(root: Path = Path("/")) -> tuple[int, int] | None:
    """(processes and threads now, most of them) of the group with the least room; None where there is no limit."""
    folders = [folder for _, folder in _find_groups("pids", root, None)]
    known = [(read_int(folder / "pids.current"), read_int(folder / "pids.max")) for folder in folders]
    limits = [(now, most) for now, most in known if now is not None and most is not None]
    return min(limits, key=lambda one: one[1] - one[0], default=None)


# ---------------------------------------------------------------------------------------- files and folders


def _mounts(root: Path, controller: str) -> Mapping[int, _Mount]:
    """Where v1's hierarchy of a controller and v2's are mounted: from mountinfo, else the usual places."""
    usual, top = root / "sys/fs/cgroup", PurePosixPath("/")
    found = {1: (usual / controller, top), 2: (usual, top)}
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        is_v1 = kind[0] == "cgroup" and controller in kind[2].split(",")
        if is_v1 or kind[0] == "cgroup2":
            place = root / fields[4].replace("\\040", " ").lstrip("/")
            found[1 if is_v1 else 2] = place, PurePosixPath(fields[3])
    return found


def _upwards(mount: _Mount, path: str) -> Iterator[Path]:
    """Folders of a group and of all above it that are visible here."""
    mounted, top = mount
    group = PurePosixPath(path)
    if group.is_relative_to(top):
        group = PurePosixPath("/") / group.relative_to(top)
    folder = mounted / str(group).lstrip("/")
    # a path of the host, or one above our namespace ("/../.."), is not there: the mount's own root is the group
    if ".." in group.parts or not folder.exists():
        folder = mounted
    yield folder
    while folder != mounted:
        folder = folder.parent
        yield folder
