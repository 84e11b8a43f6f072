"""What the processes of a loader hold: samples over the last seconds, and what grows in a worker over minutes."""

import enum
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from headrace.signals.system import (
    GroupMemory,
    MemoryGroup,
    memory_groups,
    read_available,
    read_limits,
    read_resident,
    read_text,
)

# A look at 17 processes and a group with a limit costs 0.3 ms, so four a second cost 0.12 % of a core
# (benchmarks/guard_watching.py).
EVERY_S = 0.25
KEEP_S = 10.0
_MIB = 1 << 20
_LEAST_LOOKS = 6
# How the lines of a mapping count: 0 is memory of the process alone, 1 what it shares since a fork.
_ANONYMOUS = {"Private_Clean": 0, "Private_Dirty": 0, "Shared_Clean": 1, "Shared_Dirty": 1}
_FILE = {"Private_Dirty": 0}  # of a private file mapping, what was written to is the process's own
_ARENA = "/memfd:headrace"  # queued data


@dataclass(frozen=True, kw_only=True)
class MemorySample:
    """The tree of processes, queued data, control groups and the machine."""

    at_s: float
    own_bytes: Mapping[int, int]  # by process, without what a worker came with from a fork: each page counts once
    queued_bytes: int = 0  # pages of the arena, which the training process has mapped
    groups: tuple[GroupMemory, ...] = ()  # those with a limit, innermost first
    available_bytes: int | None = None  # of the machine
    total_bytes: int | None = None

    @property
    def tree_bytes(self) -> int:
        return sum(self.own_bytes.values())


class MemoryWatch:
    """Samples a tree of processes and its control groups. Owns no thread and no open file."""

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
        # a group without a limit cannot kill: it is not looked at again
        known = read_limits(memory_groups(root) if groups is None else groups)
        self._limited = tuple(memory.group for memory in known)
        self._every_s, self._keep_s = every_s, keep_s
        self._samples: deque[MemorySample] = deque()
        self._inherited: dict[int, int] = {}  # by process: what it came with is its parent's
        self.due_s = 0.0  # when the next look is due: `if now_s >= watch.due_s` is all that a hot loop needs

    def sample(self, now_s: float, worker_pids: Sequence[int], *, queued_bytes: int = 0) -> MemorySample | None:
        """Look at the tree if it is time; returns what was seen, else None."""
        if now_s < self.due_s:
            return None
        self.due_s = now_s + self._every_s
        known = {pid: read_resident(pid, root=self._root) for pid in (self._main_pid, *worker_pids)}
        sizes = {pid: size for pid, size in known.items() if size is not None}
        main_anon = sizes.get(self._main_pid, (0, 0))[1] if self._is_forked else 0
        self._inherited = {pid: self._inherited.get(pid, min(main_anon, sizes[pid][1])) for pid in sizes}
        available, total = read_available(self._root)
        sample = MemorySample(
            at_s=now_s,
            own_bytes={
                pid: rss if pid == self._main_pid else max(0, anon - self._inherited[pid])
                for pid, (rss, anon) in sizes.items()
            },
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


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """Anonymous memory of one process. Reading it costs milliseconds, 25 beside CUDA: each worker reads its own."""

    at_s: float
    heap_bytes: int  # that is its alone
    shared_bytes: int  # that it still shares with its parent or siblings since a fork


class GrowthKind(enum.Enum):
    HEAP = "heap"
    COPY_ON_WRITE = "copy_on_write"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One kind of memory that grows steadily: by how much so far, and how fast."""

    kind: GrowthKind
    grown_bytes: int
    bytes_per_s: float


def read_worker_memory(pid: int, at_s: float, *, root: Path = Path("/")) -> WorkerMemory | None:
    """Sort a process's memory by kind, from its smaps; None where it is gone or not ours to read."""
    lines = read_text(root / f"proc/{pid}/smaps").splitlines()
    sizes, counted = [0, 0], _ANONYMOUS
    for line in lines:
        key, _, rest = line.partition(":")
        if " " in key:  # the head of the next mapping: addresses, rights, offset, device, inode, name
            name = "".join(line.split(maxsplit=5)[5:])
            has_file = name and not name.startswith("[")
            counted = {} if name.startswith(_ARENA) else _FILE if has_file else _ANONYMOUS
        elif key in counted:
            sizes[counted[key]] += int(rest.split()[0]) * 1024
    return WorkerMemory(at_s=at_s, heap_bytes=sizes[0], shared_bytes=sizes[1]) if lines else None


def find_growth(
    history: Sequence[WorkerMemory], *, skip_s: float = 0.0, at_least_bytes: int = 64 * _MIB
) -> list[Growth]:
    """The kinds of memory that grow steadily in one process, fastest first.

    A page that was shared and became private (a fork's copy-on-write, broken by reference counts) counts as
    copy-on-write; what the heap gained beyond that is the heap's. Steady means that it grows from the first third of
    the looks to the second and from the second to the last, by more than `at_least_bytes` in all: one burst is no
    growth. Looks of the first `skip_s` are a worker's warm-up.
    """
    looks = [look for look in history if look.at_s - history[0].at_s >= skip_s]
    if len(looks) < _LEAST_LOOKS:
        return []
    start = looks[0]

    def copied(look: WorkerMemory) -> int:
        # what is no longer shared, as far as the process's own memory has grown: the parent may have let go of it
        return max(0, min(start.shared_bytes - look.shared_bytes, look.heap_bytes - start.heap_bytes))

    kinds: dict[GrowthKind, Callable[[WorkerMemory], int]] = {
        GrowthKind.HEAP: lambda look: look.heap_bytes - copied(look),
        GrowthKind.COPY_ON_WRITE: copied,
    }
    found = [_steady(kind, [(look.at_s, size(look)) for look in looks], at_least_bytes) for kind, size in kinds.items()]
    return sorted((growth for growth in found if growth is not None), key=lambda growth: -growth.bytes_per_s)


def _steady(kind: GrowthKind, points: Sequence[tuple[float, int]], at_least_bytes: int) -> Growth | None:
    seconds, values = points[-1][0] - points[0][0], [value for _, value in points]
    third = len(values) // 3
    low, middle, high = map(median_low, (values[:third], values[third:-third], values[-third:]))
    # one burst lifts a single one of these steps
    is_steady = min(middle - low, high - middle) >= 0.25 * (high - low)
    grown = values[-1] - values[0]
    if seconds <= 0 or grown < at_least_bytes or high - low < 0.5 * at_least_bytes or not is_steady:
        return None
    return Growth(kind=kind, grown_bytes=grown, bytes_per_s=grown / seconds)
