"""What grows in a worker over time: its heap, pages that a fork shared, or queued data."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median, median_low

_MIB = 1 << 20
_ARENA = "/memfd:headrace"
_SIZES = ("Rss", "Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty", "Swap")


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """What one process holds, by kind. Reading it costs milliseconds, 25 beside CUDA: each worker reads its own."""

    at_s: float
    heap_bytes: int  # anonymous memory that is its alone
    shared_bytes: int  # anonymous memory that it still shares with its parent or siblings since a fork
    queued_bytes: int  # pages of the loader's arena that it has mapped
    file_bytes: int
    swap_bytes: int


class Kind(enum.Enum):
    """What grows."""

    HEAP = "heap"
    COPY_ON_WRITE = "copy_on_write"
    QUEUED = "queued"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One kind of memory that grows steadily: by how much so far, and how fast."""

    kind: Kind
    grown_bytes: int
    now_bytes: int
    bytes_per_s: float
    over_s: float


def read_holdings(pid: int, at_s: float, *, root: Path = Path("/"), arena: str = _ARENA) -> Holdings | None:
    """Sort a process's memory by kind, from its smaps; None where it is gone or not ours to read."""
    try:
        lines = (root / f"proc/{pid}/smaps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    heap = shared = queued = file = swap = 0
    name, sizes = "", dict.fromkeys(_SIZES, 0)

    def close_mapping() -> None:
        nonlocal heap, shared, queued, file, swap
        swap += sizes["Swap"]
        own = sizes["Private_Clean"] + sizes["Private_Dirty"]
        if name.startswith(arena):
            queued += sizes["Rss"]
        elif name == "" or name.startswith("["):  # no file behind it: heap, stack, anonymous maps
            heap += own
            shared += sizes["Shared_Clean"] + sizes["Shared_Dirty"]
        else:
            # of a private file mapping, what was written to is the process's own
            heap += sizes["Private_Dirty"]
            file += sizes["Rss"] - sizes["Private_Dirty"]

    for line in lines:
        key, _, rest = line.partition(":")
        if key in sizes:
            sizes[key] = int(rest.split()[0]) * 1024
        elif " " in key:  # the head of the next mapping: addresses, rights, offset, device, inode, name
            close_mapping()
            fields = line.split(maxsplit=5)
            name, sizes = (fields[5] if len(fields) > 5 else ""), dict.fromkeys(_SIZES, 0)
    close_mapping()
    if not lines:
        return None
    return Holdings(
        at_s=at_s, heap_bytes=heap, shared_bytes=shared, queued_bytes=queued, file_bytes=file, swap_bytes=swap
    )


def find_growth(
    history: Sequence[Holdings], *, skip_s: float = 0.0, at_least_bytes: int = 64 * _MIB, least_points: int = 6
) -> list[Growth]:
    """The kinds of memory that grow steadily in one process, fastest first.

    A page that was shared and became private (a fork's copy-on-write, broken by reference counts) counts as
    copy-on-write; what the heap gained beyond that is the heap's. Steady means that it grows from the first third of
    the looks to the second and from the second to the last, by more than `at_least_bytes` in all: one burst is no
    growth. Looks of the first `skip_s` are a worker's warm-up.
    """
    if not history:
        return []
    first_s = history[0].at_s
    looks = [look for look in history if look.at_s - first_s >= skip_s]
    if len(looks) < max(3, least_points):
        return []
    start = looks[0]

    def copied(look: Holdings) -> int:
        # what is no longer shared, as far as the process's own memory has grown: the parent may have let go of it
        return max(0, min(start.shared_bytes - look.shared_bytes, look.heap_bytes - start.heap_bytes))

    kinds: list[tuple[Kind, Callable[[Holdings], int]]] = [
        (Kind.HEAP, lambda look: look.heap_bytes - copied(look)),
        (Kind.COPY_ON_WRITE, copied),
        (Kind.QUEUED, lambda look: look.queued_bytes),
    ]
    found = []
    for kind, measure in kinds:
        growth = _steady(kind, [(look.at_s, measure(look)) for look in looks], at_least_bytes)
        if growth is not None:
            found.append(growth)
    return sorted(found, key=lambda growth: -growth.bytes_per_s)


def _steady(kind: Kind, points: Sequence[tuple[float, int]], at_least_bytes: int) -> Growth | None:
    points = points[:: max(1, len(points) // 64)]  # all pairs of some dozens of points are enough
    over_s = points[-1][0] - points[0][0]
    if over_s <= 0:
        return None
    values = [value for _, value in points]
    third = len(values) // 3
    low, middle, high = map(median_low, (values[:third], values[third:-third], values[-third:]))
    # one burst lifts a single one of these steps
    is_steady = min(middle - low, high - middle) >= 0.25 * (high - low)
    grown = values[-1] - values[0]
    if grown < at_least_bytes or high - low < 0.5 * at_least_bytes or not is_steady:
        return None
    # of all pairs (Theil and Sen), so that noise does not tilt it
    slope = median((b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2) if t > s)
    return Growth(kind=kind, grown_bytes=grown, now_bytes=points[-1][1], bytes_per_s=slope, over_s=over_s)
