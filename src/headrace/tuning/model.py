"""How many samples a second a candidate gives, from what one sample costs: known before anything is tried. Pure.

So many workers make so many times as many samples as one does, until something is used up: processors, the
interpreter's lock (threads share it), the reads that storage serves at a time, or something that all of them take turns
at. The last one does not show in a single sample; it is learnt where more workers were tried and brought no more.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

_LADDER = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_SHARPNESS = 16  # of the corner between two limits: where both are equal, 4 % below them
_SHORTFALL = 0.8  # of what more workers should bring: below, they take turns at something
_TORCH_SHARE = 0.8  # of ours, before it is measured: fresh memory for each batch (docs/decisions)


class Limit(Enum):
    """What a candidate is limited by."""

    WORKERS = "workers"
    PROCESSORS = "processors"
    LOCK = "lock"
    STORAGE = "storage"
    TURNS = "turns"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is chosen of a loader. None: as the loader chooses by itself."""

    loader: str = "headrace"  # or "torch"
    num_workers: int
    backend: str = "process"  # or "thread"; in-process: of no meaning
    batch_size: int | None = None
    batches_ahead: int | None = None
    io_depth: int | None = None
    memory_bytes: int | None = None  # that queued batches may take, of ours

    @property
    def family(self) -> tuple[str, str]:
        """Return what a limit that is learnt holds for: the same workers, whatever their number."""
        return self.loader, "in-process" if not self.num_workers else self.backend

    @property
    def cost(self) -> tuple[int, bool, int]:
        """Return by what of two equal ones the cheaper is told: workers, threads for processes, batches ahead."""
        return self.num_workers, self.backend == "thread", self.batches_ahead or 0


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a sample costs where nothing happens beside it, collating included: measured in-process."""

    sample_s: float
    cpu_s: float  # of processors, by all threads
    no_core_s: float = 0.0  # ready to compute, and no processor free: others have them
    lock_share: float = 0.0  # of the time of a sample in which the interpreter's lock is held
    worst_s: float = 0.0  # of a batch, for each of its samples
    storage_depth: int = 0  # reads at a time that the storage is worth; 0: samples came from memory
    storage: str = ""  # what their files lie on, where they were seen

    @property
    def blocked_s(self) -> float:
        return max(0.0, self.sample_s - self.cpu_s - self.no_core_s)

    @property
    def cpu_share(self) -> float:
        return min(1.0, self.cpu_s / self.sample_s)

    @property
    def core_share(self) -> float:
        """Return the part of a processor that one gets who could use a whole one."""
        return self.cpu_s / (self.cpu_s + self.no_core_s) if self.cpu_s > 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class ThroughputModel:
    """What a sample costs, on so many processors; and what was learnt of limits that one sample does not show."""

    service: Service
    cores: float
    turns: tuple[tuple[tuple[str, str], float], ...] = ()  # samples a second that a family does not pass

    def limits(self, candidate: Candidate) -> dict[Limit, float]:
        """Return samples a second that each limit allows, if all others were away."""
        service, workers = self.service, candidate.num_workers
        share = _TORCH_SHARE if candidate.loader == "torch" and workers else 1.0
        if not workers:
            return {Limit.WORKERS: 1 / service.sample_s}
        # A worker computes with one thread: what took several in-process takes one of them as long as all.
        limits = {
            Limit.WORKERS: share * workers / max(service.sample_s, service.cpu_s),
            Limit.PROCESSORS: share * self.cores * service.core_share / max(service.cpu_s, 1e-9),
        }
        if candidate.backend == "thread":
            limits[Limit.LOCK] = 1 / max(service.lock_share * service.sample_s, 1e-9)
        if service.storage_depth and service.blocked_s > 0:
            depth = max(service.storage_depth, candidate.io_depth or 0)
            limits[Limit.STORAGE] = depth / service.blocked_s
        if (turns := dict(self.turns).get(candidate.family)) is not None:
            limits[Limit.TURNS] = turns
        return limits

    def per_s(self, candidate: Candidate) -> float:
        """Return samples a second: the least limit, less near a corner where two meet."""
        limits = self.limits(candidate).values()
        least = min(limits)
        return float(least * sum((least / one) ** _SHARPNESS for one in limits) ** (-1 / _SHARPNESS))

    def limit(self, candidate: Candidate) -> Limit:
        """Return what limits a candidate first."""
        limits = self.limits(candidate)
        return min(limits, key=lambda one: limits[one])

    def learnt(self, measured: Sequence[tuple[Candidate, float]]) -> ThroughputModel:
        """Return the model with the limits that show in what was measured: samples a second of candidates."""
        turns = {}
        for family in {one.family for one, _ in measured if one.num_workers}:
            # Each with what the model says of it: where more workers brought less than in proportion, they take turns.
            rates = sorted((self.per_s(one), per_s) for one, per_s in measured if one.family == family)
            pairs = itertools.combinations(rates, 2)
            if any(more < _SHORTFALL * less * said_more / said_less for (said_less, less), (said_more, more) in pairs):
                short = [per_s for said, per_s in rates if per_s < _SHORTFALL * said]
                turns[family] = statistics.median(short or [max(per_s for _, per_s in rates)])
        return replace(self, turns=tuple(sorted(turns.items())))


def worker_counts(most: int) -> tuple[int, ...]:
    """Return the numbers of workers that are worth telling apart.

    >>> worker_counts(10)
    (0, 1, 2, 3, 4, 6, 8, 10)
    """
    return (*(one for one in _LADDER if one < most), most)


def candidates(
    counts: Sequence[int],
    *,
    loader: str = "headrace",
    backends: Sequence[str] = ("process", "thread"),
    batch_sizes: Sequence[int | None] = (None,),
    depths: Sequence[int | None] = (None,),
) -> Iterator[Candidate]:
    """Yield what there is to choose from: with so many workers each."""
    for batch_size in batch_sizes:
        for workers in counts:
            for backend in ("process",) if loader == "torch" or not workers else backends:
                for depth in depths if loader != "torch" and workers else (None,):
                    yield Candidate(
                        loader=loader, num_workers=workers, backend=backend, batch_size=batch_size, io_depth=depth
                    )


def torch_prefetch_factor(workers: int, batch_s: float, worst_batch_s: float, step_s: float) -> int:
    """Return the batches that each worker of torch's loader should have ahead: 2, or what hides its slowest batch.

    A worker's queue lasts for `workers` steps a batch; while it is in its slowest batch, the loop takes the others.

    >>> torch_prefetch_factor(4, 0.1, 0.12, 0.05), torch_prefetch_factor(4, 0.1, 2.0, 0.05)
    (2, 10)
    """
    step_s = max(step_s, batch_s / max(1, workers), 1e-9)
    return min(16, max(2, math.ceil((worst_batch_s - batch_s) / (workers * step_s)))) if workers else 2
