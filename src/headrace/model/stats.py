"""What a loader says of itself at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from .stage_times import Stages


@dataclass(frozen=True, kw_only=True)
class SampleTimes:
    """Service times of samples, from a histogram with steps of a quarter octave (so within 10 %)."""

    count: int
    mean_s: float
    median_s: float
    p95_s: float
    p99_s: float
    worst_s: float


@dataclass(frozen=True, kw_only=True)
class WorkerStats:
    """One worker: what it did, and what it is doing now."""

    worker: int
    pid: int
    state: str
    samples_done: int
    chunks_done: int
    bytes_written: int
    busy_share: float
    busy_s: float
    page_faults: int
    current_position: int | None  # None with an age: it collates a batch
    current_age_s: float | None


@dataclass(frozen=True, kw_only=True)
class SlotStats:
    """Batch slots: how many there are, and who has them."""

    total: int
    free: int
    filling: int
    filled: int
    leased: int
    slot_bytes: int
    touched_bytes: int


@dataclass(frozen=True, kw_only=True)
class WaitStats:
    """Time that the training loop spent in `next(loader)`, and between two of them."""

    count: int
    total_s: float
    median_s: float
    p95_s: float
    worst_s: float
    first_batch_s: float
    recent_s: tuple[float, ...]
    step_median_s: float


@dataclass(frozen=True, kw_only=True)
class EpochAccount:
    """What became of an epoch's samples: given out = delivered + quarantined + still in flight.

    `filled` samples come a second time, in the places that are missing at the end of an epoch with quarantined ones.
    """

    given_out: int = 0  # by the sampler, or by an iterable data set
    delivered: int = 0  # without those that filled a place
    quarantined: int = 0
    filled: int = 0

    @property
    def in_flight(self) -> int:
        return self.given_out - self.delivered - self.quarantined


@dataclass(frozen=True, kw_only=True)
class ReaderStats:
    """What the reader did since the loader's workers were started, and what workers found of it."""

    is_alive: bool
    depth: int  # reads in flight at most, now
    block_bytes: int
    bytes_read: int
    reads: int
    failed_reads: int
    vain_bytes: int  # read ahead, and never used
    too_large: int  # extents that do not fit: workers read them
    hits: int  # extents that a worker found, at once or after a wait
    hit_bytes: int
    waits: int  # of the hits, those that were still on their way
    wait_s: float  # of all workers together
    self_reads: int  # extents that a worker read by itself
    self_bytes: int
    files: int  # loose files brought into the page cache
    file_bytes: int


@dataclass(frozen=True, kw_only=True)
class LoaderStats:
    """A frozen snapshot of a loader. Every figure was measured in this run; `None` means not measured."""

    backend: str
    backend_reason: str
    num_workers: int
    num_workers_reason: str
    start_method: str
    budget_bytes: int
    budget_reason: str
    epoch: int
    batches_delivered: int
    samples_delivered: int
    samples_per_s: float
    bytes_per_s: float
    prefetch_batches: int
    prefetch_reason: str
    batches_ready: int
    batches_in_flight: int
    chunk_samples: int
    slot_batches: int
    general_batches: int
    copied_batches: int
    page_faults_per_sample: float | None
    sample_times: SampleTimes | None
    waits: WaitStats
    slots: SlotStats
    workers: tuple[WorkerStats, ...]
    account: EpochAccount = EpochAccount()
    workers_lost: int = 0  # and replaced
    stages: Stages = field(default_factory=Stages)
    reader: ReaderStats | None = None  # None: nothing is read ahead
