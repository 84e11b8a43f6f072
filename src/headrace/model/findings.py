"""What a diagnosis says: a verdict on a run, findings with their causes, tables of where the time went."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .events import FeedReason
from .words import Text

SCHEMA = "headrace/findings/1"


class Cause(Enum):
    """What lost time is attributed to. A cause is never guessed: a finding carries its evidence."""

    LOADER_THROUGHPUT = "loader_throughput"
    BATCH_LOCKSTEP = "batch_lockstep"
    STRAGGLER_SAMPLE = "straggler_sample"
    SHARD_BOUNDARY = "shard_boundary"
    EPOCH_START = "epoch_start"
    WORKER_LOST = "worker_lost"
    WORKER_HANG = "worker_hang"
    CORRUPT_SAMPLE = "corrupt_sample"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    LOGGING = "logging"
    SWAP = "swap"
    MEMORY_PRESSURE = "memory_pressure"
    SHM_FULL = "shm_full"
    FD_LIMIT = "fd_limit"
    GC = "gc"
    H2D_COPY = "h2d_copy"
    CPU_THROTTLED = "cpu_throttled"
    HOST_BOUND = "host_bound"
    CPU_CONTENDED = "cpu_contended"
    COMPUTE = "compute"
    UNKNOWN = "unknown"

    @property
    def page(self) -> str:
        """The page of the documentation about it: how it looks, how it is recognised, what helps."""
        return f"docs/causes/{self.value}.md"


class Bottleneck(Enum):
    """Which part of the loader holds it back, where that was measured."""

    CPU_DECODE = "cpu_decode"
    IO_BANDWIDTH = "io_bandwidth"
    IO_LATENCY = "io_latency"
    IPC_COPY = "ipc_copy"
    SAMPLER = "sampler"  # or whatever else the training process does inside `next`
    GIL = "gil"
    COLLATE = "collate"
    THREADS = "threads"  # in each worker, more than the cores carry
    SERIAL = "serial"  # workers take turns: a lock, one connection, a server with one thread


class Verdict(Enum):
    """A whole run in one word."""

    DATA_BOUND = "data_bound"  # the loop waits for data in its typical steps, or for most of its time
    COMPUTE_BOUND = "compute_bound"  # the step itself is the limit: nothing to fix in the loader
    HOST_BOUND = "host_bound"  # neither data nor the device is the limit: the host does not keep the device busy
    BALANCED = "balanced"  # data arrives about as fast as it is used
    STUTTERING = "stuttering"  # typical steps are fine, some take much longer
    ELSEWHERE = (
        "elsewhere"  # the largest finding, which is no waiting for data or single slow steps, says what takes the time
    )
    UNKNOWN = "unknown"


class Severity(Enum):
    """How much a finding matters."""

    FATAL = "fatal"  # the run ended because of it
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @classmethod
    def of_share(cls, share: float) -> "Severity":
        """Return the severity of a loss of time.

        >>> Severity.of_share(0.4).value, Severity.of_share(0.15).value, Severity.of_share(0.03).value
        ('high', 'medium', 'low')
        """
        return cls.HIGH if share >= 0.25 else cls.MEDIUM if share >= 0.1 else cls.LOW


class Confidence(Enum):
    """How firmly the evidence carries the cause."""

    CERTAIN = "certain"  # the text or a measurement says so itself
    LIKELY = "likely"  # the pattern has this cause and hardly another
    POSSIBLE = "possible"  # the pattern has this cause among others, which are named


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A cause with its share of the wall time, its evidence, what helps and what that would bring."""

    cause: Cause
    share: float  # of the wall time lost to it, 0 to 1; 1 for what ended the run
    evidence: tuple[Text, ...]
    fix: tuple[Text, ...]
    severity: Severity
    confidence: Confidence
    gain: float | None = None  # at most so many times as fast without it: an estimate, 1 / (1 - share)
    bottleneck: Bottleneck | None = None
    futile: tuple[Text, ...] = ()  # advice that cannot help here, and why
    measure: tuple[Text, ...] = ()  # what would decide what this evidence cannot
    figures: Mapping[str, float] = field(default_factory=dict)
    title: Text | None = None  # of a message: its own words, said in place of the cause's
    change: Text | None = None  # the line to change, or the command to run

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is a share of the wall time, 0 to 1, got {self.share}")
        if not self.evidence:
            raise ValueError(f"a finding of {self.cause.value} needs its evidence")

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return it as it stands in a document of schema `headrace/findings/1`."""
        return {
            "cause": self.cause.value,
            "title": self.title.of(language) if self.title else None,
            "page": self.cause.page,
            "severity": self.severity.value,
            "share": round(self.share, 4),
            "evidence": [text.of(language) for text in self.evidence],
            "fix": [text.of(language) for text in self.fix],
            "change": self.change.of(language) if self.change else None,
            "gain": None if self.gain is None else round(self.gain, 2),
            "confidence": self.confidence.value,
            "bottleneck": self.bottleneck.value if self.bottleneck else None,
            "futile": [text.of(language) for text in self.futile],
            "measure": [text.of(language) for text in self.measure],
            "figures": {name: _rounded(value) for name, value in self.figures.items()},
        }


class Activity(Enum):
    """What a training process was doing."""

    STARTUP = "startup"  # before the first epoch: imports, building the model
    EPOCH_START = "epoch_start"  # `iter(loader)` and the first batch of an epoch
    WAIT = "wait"  # every other `next(loader)`
    PIN = "pin"
    H2D = "h2d"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    BETWEEN_STEPS = "between_steps"  # without a loader: from there to the next forward, where nothing else is timed
    SYNC = "sync"  # the host waits for the device, which computes
    RANKS = "ranks"  # the host waits for other ranks
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    LOGGING = "logging"
    GC = "gc"
    PHASE = "phase"  # the user's own mark
    REPLAY = "replay"  # steps on cached batches, which measure the ceiling; copying them
    ENDING = "ending"  # after the last thing that was timed: the script's end
    OTHER = "other"  # the loop's own code, and what nobody timed


class TableRow:
    """A row of a table: a dataclass."""

    def as_json(self) -> dict[str, object]:
        """Return it as it stands in a document."""
        return {name: _plain(name, value) for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class TimeRow(TableRow):
    """One row: exclusive time, so that what lies inside another activity is counted once."""

    activity: Activity
    seconds: float
    share: float  # of the wall clock
    count: int = 0
    name: str = ""  # of a phase
    parts: Mapping[str, float] | None = None  # of a wait: what the workers did meanwhile, as shares of it

    def as_json(self) -> dict[str, object]:
        """Return it as it stands in a document; a name and what the workers did only where there is some."""
        row = super().as_json() | {"workers": {name: round(part, 4) for name, part in (self.parts or {}).items()}}
        return {key: value for key, value in row.items() if key != "parts" and value not in ("", {})}


class PartKind(Enum):
    """What a part of a worker's task is."""

    READ = "read"
    DECODE = "decode"
    TRANSFORM = "transform"
    STAGE = "stage"  # named in the data set: `with headrace.stage(...)`
    OTHER = "other"  # of a sample: code that nobody timed
    COLLATE = "collate"


@dataclass(frozen=True, kw_only=True)
class PartRow(TableRow):
    """One part, over all workers. Shares are of its own time, without parts inside it: they add up to 1."""

    kind: PartKind
    name: str
    count: int  # samples in which it was called; of a stage and of collating: calls
    total_s: float  # of a stage: with what is inside it
    own_s: float
    median_s: float
    p95_s: float
    share: float  # of the tasks' time
    still_share: float | None = None  # of its own time, for which the worker stood still; None: not known
    mb_per_s: float | None = None  # None: nobody said how many bytes came out


class LoaderRole(Enum):
    """What a loader's batches were for."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    OTHER = "other"  # no model was called in a pass over it, or none is trained


@dataclass(frozen=True, kw_only=True)
class _OneLoader(TableRow):
    """A row about a loader. One that is made anew at the same line, in each epoch say, is one loader."""

    name: str
    place: str  # file and line of the script that make it; empty: not known

    @property
    def title(self) -> str:
        """Its name, and its place without folders."""
        return f"{self.name} ({self.place.rpartition('/')[2]})" if self.place else self.name


@dataclass(frozen=True, kw_only=True)
class LoaderRow(_OneLoader):
    """One loader in one role."""

    role: LoaderRole
    num_made: int  # how many times it was made
    passes: int
    batches: int
    wait_median_s: float  # but for the first batch of a pass
    wait_share: float  # of the training's time


@dataclass(frozen=True, kw_only=True)
class FeedRow(_OneLoader):
    """One torch loader under `headrace run --feed`. Waits: but for the first batch of a pass; None: there were none."""

    by: str  # whose workers made its batches at the end, "torch" or "headrace"
    reason: FeedReason
    detail: str
    profile: str
    num_workers: int  # of ours
    is_tuned: bool | None  # while it ran; None: nobody asked for it
    torch_batches: int
    torch_wait_median_s: float | None
    torch_wait_worst_s: float | None
    torch_wait_share: float | None  # of the time of these steps
    torch_step_s: float | None  # on average, with its wait
    ours_batches: int
    ours_wait_median_s: float | None
    ours_wait_worst_s: float | None
    ours_wait_share: float | None
    ours_step_s: float | None


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a command that diagnoses has to say; what ended a run comes first, then the larger shares."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    notes: tuple[Text, ...] = ()  # what was measured, finding or not, and should not be overlooked
    facts: tuple[Text, ...] = ()  # what else was measured
    limits: tuple[Text, ...] = ()  # what cannot be concluded
    measure: tuple[Text, ...] = ()  # what to measure next
    figures: Mapping[str, float] = field(default_factory=dict)
    source: Mapping[str, object] = field(default_factory=dict)  # what was read
    times: tuple[TimeRow, ...] = ()  # where the wall clock went, of a run that was recorded
    parts: tuple[PartRow, ...] = ()  # where the workers' time went, of such a run
    loaders: tuple[LoaderRow, ...] = ()  # of such a run
    feeds: tuple[FeedRow, ...] = ()  # of one with `--feed`
    headline: Text | None = None  # in place of the verdict's, where the run had two loaders to tell apart

    @classmethod
    def in_order(cls, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return findings by their share; what ended the run comes before all others."""
        return tuple(sorted(findings, key=lambda one: (one.severity is not Severity.FATAL, -one.share)))

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return the document that every diagnosing command prints with `--json`."""
        document: dict[str, object] = {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "findings": [finding.as_json(language) for finding in self.findings],
            "facts": [text.of(language) for text in (*self.notes, *self.facts)],
            "limits": [text.of(language) for text in self.limits],
            "measure": [text.of(language) for text in self.measure],
            "figures": {name: _rounded(value) for name, value in self.figures.items()},
            "source": dict(self.source),
        }
        tables: dict[str, tuple[TableRow, ...]] = {"times": self.times, "parts": self.parts, "loaders": self.loaders}
        tables["feeds"] = self.feeds
        return document | {name: [row.as_json() for row in rows] for name, rows in tables.items() if rows}


def gain_of(share: float) -> float | None:
    """Return how many times as fast a run could be without a loss: an upper bound, 1 / (1 - share).

    >>> gain_of(0.5), gain_of(1.0)
    (2.0, None)
    """
    return 1 / (1 - share) if share < 1 else None


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _plain(name: str, value: object) -> object:
    if isinstance(value, float):
        return round(value, 4) if name == "seconds" or name.endswith("share") else _rounded(value)
    return value.value if isinstance(value, Enum) else value
