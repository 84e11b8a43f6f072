"""The CPU control groups of a process, v1 and v2: quotas, and how long they held it up."""

from __future__ import annotations

from pathlib import Path

from .cgroups import find_groups
from .kernel_files import read_table, read_text
from .system_sample import CpuGroupSample

_MARKS = {1: "cpu.cfs_quota_us", 2: "cpu.max"}


def read_cpu_groups(root: Path = Path("/"), *, pid: int | None = None) -> tuple[CpuGroupSample, ...]:
    """The groups above a process that have a quota, the innermost first."""
    return read_quotas(cpu_groups(root, pid=pid))


def read_quotas(groups: list[tuple[int, Path]]) -> tuple[CpuGroupSample, ...]:
    """Those of some groups that have a quota, as they are now."""
    samples = (_read(version, folder, depth) for depth, (version, folder) in enumerate(groups))
    return tuple(sample for sample in samples if sample is not None)


def cpu_groups(root: Path = Path("/"), *, pid: int | None = None) -> list[tuple[int, Path]]:
    """(version, folder) of the CPU groups above a process, the innermost first, whether they have a quota or not."""
    return find_groups("cpu", _MARKS, root, pid=pid)


def _read(version: int, folder: Path, depth: int) -> CpuGroupSample | None:
    if version == 1:
        quota, period = read_text(folder / "cpu.cfs_quota_us").strip(), read_text(folder / "cpu.cfs_period_us").strip()
    else:
        quota, _, period = read_text(folder / "cpu.max").strip().partition(" ")
    if not (quota.isdigit() and period.isdigit() and int(period)):  # -1 and "max": no quota
        return None
    stat = read_table(folder / "cpu.stat")
    throttled_s = stat.get("throttled_time", 0) / 1e9 if version == 1 else stat.get("throttled_usec", 0) / 1e6
    return CpuGroupSample(
        version=version,
        depth=depth,
        quota_cores=int(quota) / int(period),
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled_s=throttled_s,
    )
