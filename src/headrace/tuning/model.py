"""How many samples a second a candidate gives, from what one sample costs: known before anything is tried. Pure.

So many workers make so many times as many samples as one does, until something is used up: processors, the
interpreter's lock (threads share it), the reads that storage serves at a time. That they take turns at something else
does not show in a single sample, but in what workers bring.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.model import Text

_SHORTFALL = 0.8  # of what more workers should bring: below, they take turns at something
_LADDER = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Limit(Enum):
    """What a candidate is limited by."""

    ALONE = Text("one process makes them; handing them over costs more", "单进程取样；传递的开销更大")
    WORKERS = Text(
        "each worker adds about {each} samples a second, as far as allowed",
        "每增加一个 worker 约多 {each} 个样本/秒，直到允许的上限",
    )
    PROCESSORS = Text(
        "{cores} processors, {cpu_s} of one a sample; more workers only share them",
        "{cores} 个处理器，每个样本占用 {cpu_s}；再加 worker 只是分摊",
    )
    LOCK = Text("threads take turns at the interpreter's lock", "线程轮流使用解释器锁（GIL）")
    STORAGE = Text("storage is worth about {depth} reads at a time", "存储大约只值 {depth} 路并发读取")
    TURNS = Text(
        "workers take turns at something that they share (a lock, a connection, a disk, processors that others use)",
        "worker 在轮流使用同一个东西（锁、连接、磁盘，或被别人占用的处理器）",
    )


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
    keeps_heap: bool = False  # torch's workers, as `headrace run --malloc keep` has it
    threads: int = 0  # of libraries in torch's workers, as `--worker-threads` has it; 0: as many as they like
    cpus: str | None = None

    @property
    def family(self) -> tuple[str, str]:
        """Return what a limit that is learnt holds for: the same workers, whatever their number."""
        return self.loader, "in-process" if not self.num_workers else self.backend

    @property
    def cost(self) -> tuple[int, bool, int]:
        """Return by what of two equal ones the cheaper is told: workers, threads for processes, batches ahead."""
        return self.num_workers, self.backend == "thread", self.batches_ahead or 0

    @property
    def prefetch_factor(self) -> int | None:
        """Return the batches ahead as torch counts them, for each worker."""
        ahead, workers = self.batches_ahead, self.num_workers
        return math.ceil(ahead / workers) if ahead is not None and workers else None


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a sample costs where nothing happens beside it, collating included: measured in-process."""

    sample_s: float
    cpu_s: float  # of processors, by all threads
    cores: float = 1.0  # that may be used
    no_core_s: float = 0.0  # ready to compute, and no processor free: others have them
    lock_share: float = 0.0  # of the time of a sample in which the interpreter's lock is held
    storage_depth: int = 0  # reads at a time that the storage is worth; 0: samples came from memory
    storage: str = ""  # what their files lie on, where they were seen

    @property
    def blocked_s(self) -> float:
        return max(0.0, self.sample_s - self.cpu_s - self.no_core_s)

    @property
    def own_cores(self) -> float:
        """Return how many processors those get who could use all: others may be on them."""
        return self.cores * self.cpu_s / (self.cpu_s + self.no_core_s) if self.cpu_s > 0 else self.cores

    def limit(self, candidate: Candidate) -> tuple[Limit, float]:
        """Return what limits a candidate first, and the samples a second that it allows."""
        workers = candidate.num_workers
        if not workers:
            return Limit.ALONE, 1 / self.sample_s
        # A worker computes with one thread: what took several in-process takes one of them as long as all.
        limits = {
            Limit.WORKERS: workers / max(self.sample_s, self.cpu_s),
            Limit.PROCESSORS: self.own_cores / max(self.cpu_s, 1e-9),
        }
        if candidate.backend == "thread":
            limits[Limit.LOCK] = 1 / max(self.lock_share * self.sample_s, 1e-9)
        if self.storage_depth and self.blocked_s > 0:
            limits[Limit.STORAGE] = max(self.storage_depth, candidate.io_depth or 0) / self.blocked_s
        return min(limits.items(), key=lambda item: item[1])

    def per_s(self, candidate: Candidate) -> float:
        return self.limit(candidate)[1]

    def take_turns(self, measured: Mapping[Candidate, float]) -> bool:
        """Whether more workers brought less than in proportion to what is said of them: they share something else."""
        pairs = itertools.combinations(sorted((self.per_s(one), per_s) for one, per_s in measured.items()), 2)
        return any(more < _SHORTFALL * less * said_more / said_less for (said_less, less), (said_more, more) in pairs)


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
    for size, workers in itertools.product(batch_sizes, counts):
        kinds = (("process",), (None,)) if loader == "torch" or not workers else (backends, depths)
        for backend, depth in itertools.product(*kinds):
            yield Candidate(loader=loader, num_workers=workers, backend=backend, batch_size=size, io_depth=depth)
