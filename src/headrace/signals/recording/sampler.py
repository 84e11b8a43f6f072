"""One look at the system around a training: its processes, its machine, its control groups, its GPUs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..system import (
    GpuReader,
    MemoryGroup,
    MemoryGroupSample,
    PressureSample,
    ProcessTree,
    Psi,
    SystemSample,
    cpu_groups,
    find_disks,
    memory_groups,
    read_cpu_psi,
    read_disks,
    read_group,
    read_int,
    read_io_psi,
    read_machine,
    read_memory_psi,
    read_quotas,
    read_table,
)
from .run_facts import RunFacts

_PRESSURES = {"cpu": read_cpu_psi, "memory": read_memory_psi, "io": read_io_psi}
_GROUPS_EVERY_S = 10.0  # a launcher may put the training into another group after it started


class SystemSampler:
    """Looks at a process, all below it, and what limits them. Owns no thread."""

    def __init__(self, pid: int, *, root: Path = Path("/"), directory: Path | None = None, gpus: bool = True) -> None:
        self._root = root
        self._tree = ProcessTree(pid, root=root)
        self._gpus = GpuReader() if gpus else None
        self._disks = find_disks(root)
        self._groups: tuple[MemoryGroup, ...] = ()
        self._cpu_groups: list[tuple[int, Path]] = []
        self._groups_due_s = 0.0
        self._find_groups()
        self._directory = directory

    @property
    def pid(self) -> int:
        return self._tree.pid

    def watch(self, pid: int) -> None:
        """Look at another process from now on."""
        self._tree = ProcessTree(pid, root=self._root)
        self._groups_due_s = 0.0

    def sample(self) -> SystemSample:
        """Look once. Whatever cannot be read is missing from the sample; nothing is raised for it."""
        now_s = time.monotonic()
        if now_s >= self._groups_due_s:
            self._find_groups()
        return SystemSample(
            at_ns=time.monotonic_ns(),
            machine=read_machine(self._root),
            processes=self._tree.sample(),
            disks=read_disks(self._root, among=self._disks),
            pressures=tuple(self._pressures()),
            memory_groups=tuple(self._memory_groups()),
            cpu_groups=read_quotas(self._cpu_groups),
            gpus=self._gpus.sample() if self._gpus is not None else None,
        )

    def complete(self, facts: RunFacts) -> RunFacts:
        """Add to a run's facts what a look at this machine tells, where they do not say it."""
        machine = read_machine(self._root)
        limits = [one.limit_bytes for one in self._memory_groups() if one.limit_bytes is not None]
        quotas = [one.quota_cores for one in read_quotas(self._cpu_groups) if one.quota_cores is not None]
        return replace(
            facts,
            memory_bytes=facts.memory_bytes or (machine.total_bytes if machine else None),
            memory_limit_bytes=facts.memory_limit_bytes or min(limits, default=None),
            core_quota=facts.core_quota or min(quotas, default=None),
            gpus=facts.gpus or (self._gpus.names if self._gpus is not None else None),
            gpu_note=facts.gpu_note or (self._gpus.note if self._gpus is not None else ""),
        )

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.close()

    def _find_groups(self) -> None:
        pid = self._tree.pid if os.path.exists(f"{self._root}/proc/{self._tree.pid}") else None
        self._groups = memory_groups(self._root, pid=pid)
        self._cpu_groups = cpu_groups(self._root, pid=pid)
        self._groups_due_s = time.monotonic() + _GROUPS_EVERY_S

    def _pressures(self) -> Iterator[PressureSample]:
        for resource, read in _PRESSURES.items():
            for psi in read(self._groups, self._root):
                yield _pressure(resource, psi)

    def _memory_groups(self) -> Iterator[MemoryGroupSample]:
        for depth, group in enumerate(self._groups):
            with contextlib.suppress(OSError):
                memory = read_group(group)
                if memory is None:
                    continue
                limit_hits, throttle_hits, ooms, kills, swap = _group_counts(group, memory.used_bytes)
                yield MemoryGroupSample(
                    version=group.version,
                    depth=depth,
                    used_bytes=memory.used_bytes,
                    limit_bytes=memory.limit_bytes,
                    throttle_bytes=memory.throttle_bytes,
                    inactive_file_bytes=memory.inactive_file_bytes,
                    active_file_bytes=memory.active_file_bytes,
                    peak_bytes=memory.peak_bytes,
                    swap_bytes=swap,
                    limit_hits=limit_hits,
                    throttle_hits=throttle_hits,
                    ooms=ooms,
                    kills=kills,
                    refault_pages=memory.refault_pages,
                )


def _group_counts(
    group: MemoryGroup, used_bytes: int
) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    """(limit hits, throttle hits, ooms, kills, swapped bytes) of a group."""
    folder = group.folder
    if group.version == 1:
        both = read_int(folder / "memory.memsw.usage_in_bytes")
        swap = None if both is None else max(0, both - used_bytes)
        kills = read_table(folder / "memory.oom_control").get("oom_kill")
        return read_int(folder / "memory.failcnt"), None, None, kills, swap
    events = read_table(folder / "memory.events")
    swap = read_int(folder / "memory.swap.current")
    return events.get("max"), events.get("high"), events.get("oom"), events.get("oom_kill"), swap


def _pressure(resource: str, psi: Psi) -> PressureSample:
    return PressureSample(
        resource=resource,
        scope="machine" if psi.source == "machine" else "group",
        some_avg10=psi.some_avg10,
        full_avg10=psi.full_avg10,
        some_total_s=psi.some_total_s,
        full_total_s=psi.full_total_s,
    )
