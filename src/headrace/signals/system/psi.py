"""How long tasks wait for memory and processors (PSI), and how fast pages come back from swap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cgroups import MemoryGroup


@dataclass(frozen=True, kw_only=True)
class Psi:
    """One pressure file: shares of time from 0 to 1. `some`: a task waited; `full`: all of them did at once."""

    source: str
    some_avg10: float
    full_avg10: float
    some_total_s: float
    full_total_s: float


@dataclass(frozen=True, kw_only=True)
class SwapCounts:
    """Counters of /proc/vmstat since the machine started."""

    pages_in: int
    pages_out: int
    major_faults: int


def read_psi(path: Path, *, source: str) -> Psi | None:
    """A file of /proc/pressure or a group's `memory.pressure`; None where the kernel offers none."""
    rows: dict[str, dict[str, float]] = {}
    try:
        for line in path.read_text().splitlines():
            kind, *fields = line.split()
            rows[kind] = {name: float(value) for name, _, value in (field.partition("=") for field in fields)}
        some = rows["some"]
        full = rows.get("full", {})  # older kernels have no `full` for processors
        return Psi(
            source=source,
            some_avg10=some["avg10"] / 100,
            full_avg10=full.get("avg10", 0.0) / 100,
            some_total_s=some["total"] / 1e6,
            full_total_s=full.get("total", 0.0) / 1e6,
        )
    except (OSError, ValueError, KeyError):  # switched off (`psi=0`) the file exists, and reading it fails
        return None


def read_memory_psi(groups: tuple[MemoryGroup, ...], root: Path = Path("/")) -> tuple[Psi, ...]:
    """Memory pressure where it can be read: the innermost v2 group that tells it, and the machine."""
    return _read_both("memory", groups, root)


def read_cpu_psi(groups: tuple[MemoryGroup, ...], root: Path = Path("/")) -> tuple[Psi, ...]:
    """The same for processors."""
    return _read_both("cpu", groups, root)


def read_io_psi(groups: tuple[MemoryGroup, ...], root: Path = Path("/")) -> tuple[Psi, ...]:
    """The same for disks."""
    return _read_both("io", groups, root)


def _read_both(kind: str, groups: tuple[MemoryGroup, ...], root: Path) -> tuple[Psi, ...]:
    own = (read_psi(g.folder / f"{kind}.pressure", source=g.name) for g in groups if g.version == 2)
    innermost = next((psi for psi in own if psi is not None), None)
    machine = read_psi(root / "proc/pressure" / kind, source="machine")
    return tuple(psi for psi in (innermost, machine) if psi is not None)


def read_swap_counts(root: Path = Path("/")) -> SwapCounts | None:
    """Pages swapped in and out so far; None where /proc/vmstat is not readable."""
    counts: dict[str, int] = {}
    try:
        for line in (root / "proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("pswpin", "pswpout", "pgmajfault"):
                counts[name] = int(value)
        return SwapCounts(pages_in=counts["pswpin"], pages_out=counts["pswpout"], major_faults=counts["pgmajfault"])
    except (OSError, ValueError, KeyError):
        return None
