"""How much memory a configuration takes at its peak, term by term, with torch's loader and with ours; which ones fit.

The peak is that of a loop slower than its loader: everything ahead is full, and nobody waits. What each term rests on
is in docs/guides/plan.md. A worker of torch's has all samples of a batch in hand until they are copied into shared
memory, and at the end of the first filling all workers do so at once. One of ours has one in hand, and keeps the pages
of its heap. A forked worker copies what a garbage collection writes to (ours have put that aside: the training process
alone copies it, once), and what it counts references to.
"""

import math
import os
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from headrace.loader import DEFAULT_SHARE, expected_ahead, free_memory, usable_processors
from headrace.model import Said, Text, format_bytes, num_local_ranks

# pages that the code of our engine touches in a worker, beyond what torch's does: measured, Python 3.11
_OWN_CODE_BYTES = 5 << 20
_HEAP_BYTES = 32 << 20  # what is smaller may stay in a heap for the next one
_KEPT_BYTES = 128 << 20  # likewise in ours
_MAPPED_BYTES = 4 << 20  # what is larger is looked at where it lies
_STEP_S = 0.1  # of a training that nobody has timed yet; it counts where samples are slower than that
_SHM_SHARE = 0.8  # of the free /dev/shm: a full one is a crash, and others write there too

# Of each tier: the share of the free memory, the share of the cores, prefetch_factor. Memory is what a crash is about,
# so it bounds; workers beyond the cores bring nothing where samples are decoded; prefetch smooths, and brings nothing.
_TIERS = {
    Text("safe", "安全"): (0.25, 0.25, 2),
    Text("balanced", "平衡"): (0.5, 0.5, 2),
    Text("aggressive", "激进"): (0.7, 0.75, 3),
    Text("limit", "极限"): (0.9, 1.0, 4),
}


class TermKind(Said):
    """What takes memory."""

    QUEUE = "queue", Text("batches ahead", "预取的 batch")  # finished or being filled
    LOOP = "loop", Text("in the loop's hands", "训练循环手里的 batch")
    IN_HAND = "in_hand", Text("samples in the workers' hands", "worker 手里的样本")  # and the peak of fetching one
    COLLATION = "collation", Text("batches being collated", "正在拼接的 batch")  # by a function of the user's own
    INTERPRETER = "interpreter", Text("interpreters of workers", "worker 的解释器")
    DATASET = "dataset", Text("data set, copied by workers", "被 worker 复制的数据集")
    PINNED = "pinned", Text("pinned copies", "锁页副本")
    READ_AHEAD = "read_ahead", Text("bytes read ahead", "提前读取的字节")
    VALIDATION = "validation", Text("validation loader beside it", "同时存在的验证加载器")
    TRAINING = (
        "training",
        Text("training process, without model", "训练进程（不含模型）"),
    )  # interpreter, imports, data set


@dataclass(frozen=True, kw_only=True)
class SampleCost:
    """What a sample and a worker cost, in bytes."""

    sample_bytes: int  # as the data set returns it
    batch_sample_bytes: int  # its part of a collated batch
    fetch_peak_bytes: int  # the most that fetching one takes, what it returns included
    worker_bytes: int  # a worker's interpreter: what it has for itself before any sample
    collected_bytes: int  # what a garbage collection over everything adds to it
    dataset_bytes: int  # what a worker comes to copy of the data set, by counting references
    training_bytes: int  # the training process before it has a loader
    read_ahead_bytes: int = 0  # most that our reader holds, where the data set says where samples lie
    uses_rows: bool = True  # samples of one layout that torch's rule collates: ours writes rows
    worst_sample_s: float = 0.0  # the longest that fetching one took

    @property
    def times_queued(self) -> int:
        """How often a batch of ours lies in its budget: without rows, also as blocks and as blocks that are kept."""
        return 1 if self.uses_rows else 3

    def of_size(self, size: int) -> Self:
        """Return the same with samples whose size is all that is known: fetching takes twice that, bytes and arrays."""
        return replace(self, sample_bytes=size, batch_sample_bytes=size, fetch_peak_bytes=2 * size, dataset_bytes=0)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How a loader is set up, on each rank of a node."""

    batch_size: int
    num_workers: int
    prefetch_factor: int | None = None  # torch's: 2; ours: as far ahead as it goes by itself
    budget_bytes: int | None = None  # `memory=` of ours
    pin_memory: bool = False
    val_workers: int = 0  # of a validation loader that lives beside this one
    ranks: int = 1

    def ahead(self, loader: str, cost: SampleCost) -> int:
        """Batches ahead of the loop."""
        if loader == "torch" or self.prefetch_factor is not None or not self.num_workers:
            return (self.prefetch_factor or 2) * self.num_workers
        return expected_ahead(
            batch_size=self.batch_size,
            batch_bytes=self.batch_size * cost.batch_sample_bytes,
            num_workers=self.num_workers,
            worst_sample_s=cost.worst_sample_s,
            step_s=_STEP_S,
        )


@dataclass(frozen=True)
class Term:
    """One thing that takes memory, and how its size was found."""

    kind: TermKind
    bytes: int
    formula: str

    @classmethod
    def product(cls, kind: TermKind, size: int, *counts: int, plus: int = 0) -> Self:
        """Return a size so many times, and perhaps another one once."""
        formula = " x ".join((*map(str, counts), format_bytes(size))) + (f" + {format_bytes(plus)}" if plus else "")
        return cls(kind, math.prod(counts) * size + plus, formula)


@dataclass(frozen=True)
class MemoryPlan:
    """The terms of one rank, and what all ranks of the node take together."""

    loader: str
    configuration: Configuration
    terms: tuple[Term, ...]

    @property
    def rank_bytes(self) -> int:
        return sum(term.bytes for term in self.terms)

    @property
    def total_bytes(self) -> int:
        return self.configuration.ranks * self.rank_bytes

    @property
    def shm_bytes(self) -> int:
        """What lies in /dev/shm, of all ranks: torch's batches; ours lie in a file of no mount."""
        if self.loader == "headrace" or not self.configuration.num_workers:
            return 0
        in_shm = (TermKind.QUEUE, TermKind.LOOP, TermKind.VALIDATION)
        return self.configuration.ranks * sum(term.bytes for term in self.terms if term.kind in in_shm)


def peak_memory(cost: SampleCost, configuration: Configuration, loader: str) -> MemoryPlan:
    """Return what a loader takes at its peak, term by term.

    >>> names = ("sample_bytes", "batch_sample_bytes", "worker_bytes", "collected_bytes", "dataset_bytes")
    >>> cost = SampleCost(**dict.fromkeys(names, 5 << 20), fetch_peak_bytes=10 << 20, training_bytes=200 << 20)
    >>> plan = peak_memory(cost, Configuration(batch_size=8, num_workers=4), "torch")
    >>> [(term.kind.name, term.formula) for term in plan.terms][:3]
    [('QUEUE', '4 x 2 x 8 x 5.00 MiB'), ('LOOP', '8 x 5.00 MiB'), ('IN_HAND', '4 x (7 x 5.00 MiB + 10.0 MiB)')]
    """
    terms = _terms(cost, configuration, loader)
    if configuration.val_workers:
        beside = replace(configuration, num_workers=configuration.val_workers, val_workers=0)
        inner = sum(term.bytes for term in _terms(cost, beside, loader))
        terms.append(Term(TermKind.VALIDATION, inner, f"{configuration.val_workers} workers, as above"))
    terms.append(Term.product(TermKind.TRAINING, cost.training_bytes))
    return MemoryPlan(loader, configuration, tuple(term for term in terms if term.bytes))


def _terms(cost: SampleCost, configuration: Configuration, loader: str) -> list[Term]:
    """What is ahead of the loop and in its hands, and what workers have for themselves."""
    rows, workers, sample = configuration.batch_size, configuration.num_workers, cost.sample_bytes
    is_ours, budget = loader == "headrace" and workers > 0, configuration.budget_bytes
    own_part, batch_bytes = cost.batch_sample_bytes, rows * cost.batch_sample_bytes
    ahead = configuration.ahead(loader, cost)
    if is_ours and budget is not None:
        ahead = max(1, min(ahead, budget // max(1, cost.times_queued * batch_bytes) - 1))
    queued = (workers, ahead // workers) if workers and ahead % workers == 0 else (ahead,)
    terms = [Term.product(TermKind.QUEUE, own_part, *queued, rows), Term.product(TermKind.LOOP, own_part, rows)]
    if workers and not cost.uses_rows:
        # A worker collates into memory of its own, and that is copied into shared memory; torch's while it fetches its
        # next, if it may. Ours gathers samples from blocks in shared memory, small ones as copies; and at first it is
        # as far ahead as torch's, for how large a batch is shows with the first one.
        if is_ours:
            first = max(ahead, 2 * workers) if configuration.prefetch_factor is None and budget is None else ahead
            copies = first + workers * (1 + (batch_bytes < _KEPT_BYTES) + (cost.sample_bytes < _MAPPED_BYTES))
        else:
            copies = workers if ahead > workers or batch_bytes < _HEAP_BYTES else 0
        terms.append(Term.product(TermKind.COLLATION, own_part, copies, rows))
    if configuration.pin_memory and not is_ours:
        pinned = 1 << max(0, math.ceil(math.log2(max(1, batch_bytes))))
        extra = (ahead + 1) * (pinned - batch_bytes) + batch_bytes  # and one that is being copied lies in both
        formula = f"{ahead + 1} x ({format_bytes(pinned)} - {format_bytes(batch_bytes)}) + {format_bytes(batch_bytes)}"
        terms.append(Term(TermKind.PINNED, extra, formula))
    peak = max(cost.fetch_peak_bytes, sample)
    whole = Term.product(TermKind.IN_HAND, sample, rows - 1, plus=peak)
    if not workers:
        return [*terms, whole]
    if is_ours:
        own, once = cost.worker_bytes + _OWN_CODE_BYTES, cost.collected_bytes
        terms.append(Term.product(TermKind.IN_HAND, peak, workers))
        terms.append(Term(TermKind.READ_AHEAD, cost.read_ahead_bytes, f"<= {format_bytes(cost.read_ahead_bytes)}"))
    else:
        own, once = cost.worker_bytes + cost.collected_bytes, 0
        terms.append(Term(TermKind.IN_HAND, workers * whole.bytes, f"{workers} x ({whole.formula})"))
    terms.append(Term.product(TermKind.INTERPRETER, own, workers, plus=once))
    return [*terms, Term.product(TermKind.DATASET, cost.dataset_bytes, workers)]


# ------------------------------------------------------------------------------------------------ what fits a machine


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

    tier: Text
    torch: MemoryPlan
    headrace: MemoryPlan
    fits: bool  # torch's loader, within the tier's share: the least that there is may be too much


def tier_rows(cost: SampleCost, machine: Machine, base: Configuration) -> tuple[TierRow, ...]:
    """Return the largest configuration of each tier that fits with torch's loader, and ours with as many workers."""
    rows = []
    for tier, (share, cores, prefetch) in _TIERS.items():
        most = max(1, int(machine.cores * cores / machine.ranks))
        for workers, factor in product(range(most, 0, -1), range(prefetch, 0, -1)):
            chosen = replace(base, num_workers=workers, prefetch_factor=factor, ranks=machine.ranks)
            plan = peak_memory(cost, chosen, "torch")
            if fits := machine.fits(plan, share=share):
                break
        own = peak_memory(cost, replace(chosen, prefetch_factor=None), "headrace")
        rows.append(TierRow(tier, plan, own, fits))
    return tuple(rows)
