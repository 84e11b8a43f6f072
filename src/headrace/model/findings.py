"""What a diagnosis says: a verdict on a run, findings with their causes, tables of where the time went."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .events import FeedReason
from .words import Said, Text

SCHEMA = "headrace/findings/1"


class Cause(Said):
    """What lost time is attributed to. A cause is never guessed: a finding carries its evidence."""

    LOADER_THROUGHPUT = "loader_throughput", Text("the loader is too slow", "加载器吞吐不足")
    BATCH_LOCKSTEP = "batch_lockstep", Text("workers in lock-step", "worker 同步成批")
    STRAGGLER_SAMPLE = "straggler_sample", Text("single late batches", "个别 batch 迟到")
    SHARD_BOUNDARY = "shard_boundary", Text("starts of shards", "切换分片")
    EPOCH_START = "epoch_start", Text("a slow start of each epoch", "epoch 开头慢")
    WORKER_LOST = "worker_lost", Text("a worker was lost", "worker 丢失")
    WORKER_HANG = "worker_hang", Text("a worker hangs", "worker 卡死")
    CORRUPT_SAMPLE = "corrupt_sample", Text("a damaged sample", "样本损坏")
    CHECKPOINT = "checkpoint", Text("saving checkpoints", "保存检查点")
    EVALUATION = "evaluation", Text("evaluation", "评估")
    LOGGING = "logging", Text("logging", "写日志")
    SWAP = "swap", Text("swapping", "内存换页")
    MEMORY_PRESSURE = "memory_pressure", Text("too little memory", "内存不足")
    SHM_FULL = "shm_full", Text("shared memory is full", "共享内存已满")
    FD_LIMIT = "fd_limit", Text("too few file descriptors", "文件描述符不足")
    GC = "gc", Text("garbage collection", "垃圾回收")
    H2D_COPY = "h2d_copy", Text("copies to the GPU", "拷贝到 GPU")
    CPU_THROTTLED = "cpu_throttled", Text("the CPU is throttled", "CPU 被限流")
    HOST_BOUND = "host_bound", Text("the GPU waits for the host", "主机端喂不满 GPU")
    CPU_CONTENDED = "cpu_contended", Text("no free core", "没有空闲核心")
    COMPUTE = "compute", Text("computing", "计算")
    UNKNOWN = "unknown", Text("slow steps that the evidence does not explain", "原因不明的慢步")

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


class Verdict(Said):
    """A whole run in one word."""

    # the loop waits for data in its typical steps, or for most of its time
    DATA_BOUND = "data_bound", Text("data-bound: the training waits for data", "数据受限：训练在等数据")
    COMPUTE_BOUND = (
        "compute_bound",
        Text(
            "compute-bound: the step itself is the limit, nothing to fix in the loader",
            "计算受限：瓶颈在训练步本身，加载器没有可改的",
        ),
    )
    HOST_BOUND = (
        "host_bound",
        Text(
            "host-bound: the GPU waits, but not for data: the host does not keep it busy",
            "主机受限：GPU 在空等，等的不是数据，而是主机端",
        ),
    )
    BALANCED = (
        "balanced",
        Text("balanced: data arrives about as fast as it is used", "基本平衡：数据到达的速度与消耗相当"),
    )
    STUTTERING = (
        "stuttering",
        Text("stuttering: typical steps are fine, some take much longer", "时快时慢：多数步正常，少数步明显更久"),
    )
    # the largest finding, which is no waiting for data or single slow steps, says what takes the time
    ELSEWHERE = (
        "elsewhere",
        Text(
            "the largest cost is no waiting for data: {what}, {share} of the time",
            "最大的开销不是等数据：{what}，占时间的 {share}",
        ),
    )
    UNKNOWN = "unknown", Text("undecided: this evidence does not tell", "无法判断：现有证据不足")


class Severity(Said):
    FATAL = "fatal", Text("ended the run", "导致运行终止")
    HIGH = "high", Text("high", "严重")
    MEDIUM = "medium", Text("medium", "中等")
    LOW = "low", Text("low", "轻微")

    @classmethod
    def of_share(cls, share: float) -> "Severity":
        """Return the severity of a loss of time.

        >>> Severity.of_share(0.4).value, Severity.of_share(0.15).value, Severity.of_share(0.03).value
        ('high', 'medium', 'low')
        """
        return cls.HIGH if share >= 0.25 else cls.MEDIUM if share >= 0.1 else cls.LOW


class Confidence(Said):
    """How firmly the evidence carries the cause."""

    CERTAIN = "certain", Text("certain", "确定")  # the text or a measurement says so itself
    LIKELY = "likely", Text("likely", "很可能")  # the pattern has this cause and hardly another
    POSSIBLE = "possible", Text("possible", "有可能")  # the pattern has this cause among others, which are named


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


class Activity(Said):
    STARTUP = (
        "startup",
        Text("starting: imports, model, before the first epoch", "启动：导入、建模型，第一个 epoch 之前"),
    )
    # `iter(loader)` and the first batch of an epoch
    EPOCH_START = "epoch_start", Text("start and end of epochs, first batch", "epoch 的开头（含第一个 batch）与结束")
    WAIT = "wait", Text("waiting for data", "等数据")  # every other `next(loader)`
    PIN = "pin", Text("pinning memory", "锁页拷贝")
    H2D = "h2d", Text("copies to the device", "拷贝到设备")
    FORWARD = "forward", Text("forward", "前向")
    BACKWARD = "backward", Text("backward", "反向")
    OPTIMIZER = "optimizer", Text("optimizer", "优化器")
    # without a loader: from there to the next forward, where nothing else is timed
    BETWEEN_STEPS = (
        "between_steps",
        Text(
            "between steps: data made by the loop itself, or other Python",
            "步与步之间：循环自己准备数据，或其他 Python 代码",
        ),
    )
    SYNC = "sync", Text("waiting for the device, which computes", "等设备算完")
    RANKS = "ranks", Text("waiting for other ranks (barriers)", "等其他 rank（barrier）")
    CHECKPOINT = "checkpoint", Text("checkpoints", "检查点")
    EVALUATION = "evaluation", Text("evaluation", "评估")
    LOGGING = "logging", Text("logging", "写日志")
    GC = "gc", Text("garbage collection", "垃圾回收")
    PHASE = "phase", Text("phase: {name}", "阶段：{name}")  # the user's own mark
    # steps on cached batches, which measure the ceiling; copying them
    REPLAY = "replay", Text("replay: steps on cached batches, to measure", "回放：用缓存 batch 训练的步，用于测量")
    ENDING = "ending", Text("ending: after the last event", "收尾：最后一个事件之后")
    OTHER = "other", Text("other: the loop's own code, not timed", "其他：循环自身的代码，未计时")


class TableRow:
    """A row of a table: a dataclass."""

    def as_json(self) -> dict[str, object]:
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


class PartKind(Said):
    """What a part of a worker's task is."""

    READ = "read", Text("read: {name}", "读取：{name}")
    DECODE = "decode", Text("decode: {name}", "解码：{name}")
    TRANSFORM = "transform", Text("transform: {name}", "变换：{name}")
    STAGE = "stage", Text("stage: {name}", "阶段：{name}")  # named in the data set: `with headrace.stage(...)`
    OTHER = "other", Text("other: not timed", "其他：未计时")  # of a sample: code that nobody timed
    COLLATE = "collate", Text("collating", "拼 batch")


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


class LoaderRole(Said):
    TRAINING = "training", Text("training", "训练")
    EVALUATION = "evaluation", Text("evaluation", "评估")
    OTHER = "other", Text("other", "其他")  # no model was called in a pass over it, or none is trained


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
