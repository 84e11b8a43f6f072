"""What the processes of a loader and their control groups held at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.signals.system import GroupMemory


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """One process. `pss_bytes` divides shared pages between those who share them, so sums are true."""

    pid: int
    rss_bytes: int
    anon_bytes: int  # of it, neither file nor shared memory; pages that a fork shares count in each process
    pss_bytes: int


@dataclass(frozen=True, kw_only=True)
class MemorySample:
    """The tree of processes (the training process first), queued data, control groups and the machine."""

    at_s: float
    processes: tuple[ProcessMemory, ...]
    queued_bytes: int = 0  # pages of the arena, which `pss_bytes` of those who map it contain
    groups: tuple[GroupMemory, ...] = ()  # those with a limit, innermost first
    available_bytes: int | None = None  # of the machine
    total_bytes: int | None = None

    @property
    def tree_bytes(self) -> int:
        """What the whole tree holds, each page counted once."""
        return sum(process.pss_bytes for process in self.processes)

    def of(self, pid: int) -> ProcessMemory | None:
        return next((process for process in self.processes if process.pid == pid), None)
