"""Which configurations fit a machine: the rows safe, balanced, aggressive and limit of `headrace plan`."""

import os
from dataclasses import dataclass, replace
from typing import Self

from headrace.loader import DEFAULT_SHARE, free_memory, usable_processors
from headrace.model import num_local_ranks

from .memory import Configuration, LoaderName, MemoryPlan, SampleCost, peak_memory

_SHM_SHARE = 0.8  # of the free /dev/shm: a full one is a crash, and others write there too

# Of each tier: the share of the free memory, the share of the cores, prefetch_factor. Memory is what a crash is about,
# so it bounds; workers beyond the cores bring nothing where samples are decoded; prefetch smooths, and brings nothing.
_TIERS = {
    "safe": (0.25, 0.25, 2),
    "balanced": (0.5, 0.5, 2),
    "aggressive": (0.7, 0.75, 3),
    "limit": (0.9, 1.0, 4),
}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a node has for all its ranks."""

    memory_bytes: int  # that may still be used: the tightest of MemAvailable and the control groups
    memory_source: str
    shm_bytes: int | None  # free in /dev/shm
    cores: float
    ranks: int = 1

    @classmethod
    def here(cls, *, ranks: int | None = None) -> Self:
        free, source = free_memory()
        shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
        return cls(
            memory_bytes=free,
            memory_source=source,
            shm_bytes=None if shm is None else shm.f_bavail * shm.f_frsize,
            cores=usable_processors() * num_local_ranks(),
            ranks=ranks or num_local_ranks(),
        )

    @property
    def budget_bytes(self) -> int:
        """What our loader lets batches take on each rank, where nobody says."""
        return int(DEFAULT_SHARE * self.memory_bytes / self.ranks)

    def fits(self, plan: MemoryPlan, *, share: float = 1.0) -> bool:
        """Whether a plan stays within a share of the memory, and its shared memory within /dev/shm."""
        has_shm = self.shm_bytes is None or plan.shm_bytes <= _SHM_SHARE * self.shm_bytes
        return has_shm and plan.total_bytes <= share * self.memory_bytes


@dataclass(frozen=True)
class TierRow:
    """How much of a machine a loader is given, the configuration for it, and what both loaders take with it."""

    tier: str
    torch: MemoryPlan
    headrace: MemoryPlan
    fits: bool  # torch's loader, within the tier's share: the least that there is may be too much


def tier_rows(cost: SampleCost, machine: Machine, base: Configuration, *, worst_sample_s: float) -> tuple[TierRow, ...]:
    """Return the largest configuration of each tier that fits with torch's loader, and ours with as many workers."""
    rows = []
    for tier, (share, cores, prefetch) in _TIERS.items():
        most = max(1, int(machine.cores * cores / machine.ranks))
        tried = [(workers, factor) for workers in range(most, 0, -1) for factor in range(prefetch, 0, -1)]
        for workers, factor in tried:
            chosen = replace(base, num_workers=workers, prefetch_factor=factor, ranks=machine.ranks)
            plan = peak_memory(cost, chosen, LoaderName.TORCH)
            if fits := machine.fits(plan, share=share):
                break
        own = replace(chosen, prefetch_factor=None).with_own_ahead(cost, worst_sample_s=worst_sample_s)
        rows.append(TierRow(tier, plan, peak_memory(cost, own, LoaderName.HEADRACE), fits))
    return tuple(rows)
