"""What a loader says of itself at one moment."""

from dataclasses import dataclass, field

from .adjustments import Adjustment
from .stages import Stages


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

    total: int = 0
    free: int = 0
    filling: int = 0
    filled: int = 0
    leased: int = 0
    slot_bytes: int = 0
    touched_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class WaitStats:
    """Time that the training loop spent in `next(loader)`, and between two of them."""

    count: int = 0
    total_s: float = 0.0
    median_s: float = 0.0
    p95_s: float = 0.0
    worst_s: float = 0.0
    first_batch_s: float = 0.0
    recent_s: tuple[float, ...] = ()
    step_median_s: float = 0.0


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
    hits: int  # extents that a worker found, at once or after a wait
    hit_bytes: int
    waits: int  # of the hits, those that were still on their way
    wait_s: float  # of all workers together
    self_reads: int  # extents that a worker read by itself
    files: int  # loose files brought into the page cache
    file_bytes: int


@dataclass(frozen=True, kw_only=True)
class LoaderStats:
    """A frozen snapshot of a loader. Every figure was measured in this run; `None` means not measured."""

    backend: str
    backend_reason: str
    num_workers: int
    num_workers_reason: str
    start_method: str = ""
    budget_bytes: int
    budget_reason: str
    epoch: int = -1
    batches_delivered: int = 0
    samples_delivered: int = 0
    samples_per_s: float = 0.0
    bytes_per_s: float = 0.0
    prefetch_batches: int = 0
    prefetch_reason: str = "not started yet"
    batches_ready: int = 0
    batches_in_flight: int = 0
    chunk_samples: int = 0
    slot_batches: int = 0
    general_batches: int = 0
    copied_batches: int = 0
    page_faults_per_sample: float | None = None
    sample_times: SampleTimes | None = None
    waits: WaitStats = WaitStats()
    slots: SlotStats = SlotStats()
    workers: tuple[WorkerStats, ...] = ()
    account: EpochAccount = EpochAccount()
    workers_lost: int = 0  # and replaced
    stages: Stages = field(default_factory=Stages)
    reader: ReaderStats | None = None  # None: nothing is read ahead
    adjustments: tuple[Adjustment, ...] = ()  # the last ones of `tune="online"`
