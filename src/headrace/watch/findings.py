"""From all that was watched to a verdict and findings, in sentences. Pure: looks in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from headrace.model import (
    Bottleneck,
    Cause,
    Confidence,
    Finding,
    Findings,
    Severity,
    Text,
    Verdict,
    format_bytes,
    format_seconds,
    format_share,
    gain_of,
)

from .alarms import AlarmSettings, is_stuck, stood_still
from .look import Alarm, Look, TrainerLook, WorkerLook
from .reading import Detail, TrainerActivity, WorkerActivity
from .shares import Share

_FEW_SAMPLES = 30  # under two seconds of stacks: a step may be longer
_LEAST_WAIT = 0.05  # from here on waiting for data is worth a finding, as in the reading of logs

ACTIVITIES = {
    TrainerActivity.DATA_WAIT: Text("waiting for data", "等待数据"),
    TrainerActivity.COMPUTE: Text("computing", "计算"),
    TrainerActivity.H2D_COPY: Text("copying to the GPU", "拷贝到 GPU"),
    TrainerActivity.SYNCHRONISATION: Text("synchronising", "同步等待"),
    TrainerActivity.CHECKPOINT: Text("saving a checkpoint", "保存检查点"),
    TrainerActivity.EVALUATION: Text("evaluating", "评估"),
    TrainerActivity.LOGGING: Text("logging", "写日志"),
    TrainerActivity.GC: Text("collecting garbage", "垃圾回收"),
    TrainerActivity.OTHER: Text("something else", "其他"),
    TrainerActivity.UNKNOWN: Text("not known", "未知"),
}
DOING = {
    WorkerActivity.IDLE: Text("idle", "空闲"),
    WorkerActivity.READING: Text("reading", "读取"),
    WorkerActivity.DECODING: Text("decoding", "解码"),
    WorkerActivity.COLLATING: Text("collating", "组 batch"),
    WorkerActivity.SENDING: Text("sending", "发送"),
    WorkerActivity.BLOCKED: Text("blocked", "阻塞"),
    WorkerActivity.STOPPED: Text("stopped", "已暂停"),
    WorkerActivity.STARTING: Text("starting", "启动中"),
    WorkerActivity.UNKNOWN: Text("not known", "未知"),
}

# ------------------------------------------------------------------------------------------ what helps

_OURS = Text(
    "`from headrace import DataLoader`: it gives out samples instead of batches, so the waits become even and one slow "
    "sample holds up nobody; what a sample costs stays the same",
    "改用 `from headrace import DataLoader`：它按样本而不是按 batch 分派，等待变得均匀，单个慢样本不再拖住全队；"
    "但样本本身的开销不变",
)
_CHEAPER_DECODING = Text(
    "more workers while cores are free, or cheaper decoding (`headrace.codecs`, smaller or pre-processed samples)",
    "有空闲核就增加 worker；否则降低解码开销（`headrace.codecs`，更小或预处理过的样本）",
)
_CHEAPER_DECODING_ON_A_FULL_CPU = Text(
    "cheaper decoding (`headrace.codecs`, smaller or pre-processed samples) or more cores: more workers would only "
    "share the same processors",
    "降低解码开销（`headrace.codecs`，更小或预处理过的样本）或增加 CPU 核：再加 worker 也只是分摊同样的核",
)
_FASTER_READS = Text(
    "data on faster storage, in fewer and larger files, or cached; more workers help only if the storage answers "
    "several readers at once",
    "把数据放到更快的存储、合并成更少更大的文件，或加缓存；只有存储能同时服务多个读者时，增加 worker 才有用",
)
_CHEAPER_COLLATION = (
    Text(
        "a cheaper `collate_fn`: what it does to each sample belongs into the data set, where all workers share it",
        "降低 `collate_fn` 的开销：对每个样本做的事放进数据集里，由所有 worker 分担",
    ),
    Text(
        "without a `collate_fn` of its own, `headrace.DataLoader` writes each sample straight into its batch",
        "不自定义 `collate_fn` 时，`headrace.DataLoader` 会把每个样本直接写进 batch",
    ),
)
_SMALLER_BATCHES = Text(
    "smaller batches in bytes (uint8 instead of float32, crop before collation)",
    "减小 batch 的字节数（用 uint8 代替 float32，先裁剪再组 batch）",
)
_LOOK_WHERE = Text(
    "look where they wait: `headrace watch PID --dump` shows stacks, locks and open files",
    "看它们在等什么：`headrace watch PID --dump` 会给出调用栈、锁和打开的文件",
)
_ENDS_HANGING = Text(
    "`from headrace import DataLoader` ends a sample that hangs and names it; torch's `timeout=` ends the run",
    "改用 `from headrace import DataLoader`：卡死的样本会被终止并指名；torch 加载器的 `timeout=` 则是直接终止训练",
)
_LESS_MEMORY = Text(
    "fewer workers (`num_workers=`) or fewer batches ahead (`prefetch_factor=`)",
    "减少 worker（`num_workers=`）或预取的 batch（`prefetch_factor=`）",
)
_LARGER_SHM = Text(
    "a larger one (`docker run --shm-size 8g`), or `from headrace import DataLoader`, which does not use it",
    "加大共享内存（`docker run --shm-size 8g`），或改用不依赖它的 `from headrace import DataLoader`",
)
_WHO_REPLACES = Text(
    "`headrace explain` on the training's log names the cause; headrace's own loader replaces the worker",
    "用 `headrace explain` 分析训练日志可找到原因；headrace 的加载器会补上 worker 并继续训练",
)
# What is neither waiting nor computing: its cause, from which share on it is worth a finding (evaluation is meant to
# take some), and what helps.
_PHASES = {
    TrainerActivity.CHECKPOINT: (
        Cause.CHECKPOINT,
        0.05,
        Text(
            "save less often, or asynchronously (`torch.distributed.checkpoint.async_save`)",
            "降低保存频率，或异步保存（`torch.distributed.checkpoint.async_save`）",
        ),
    ),
    TrainerActivity.LOGGING: (Cause.LOGGING, 0.05, Text("log less often", "降低写日志的频率")),
    TrainerActivity.GC: (
        Cause.GC,
        0.05,
        Text(
            "collect less often: `gc.freeze()` after the start, or `gc.disable()`",
            "减少回收：启动后调用 `gc.freeze()`，或 `gc.disable()`",
        ),
    ),
    TrainerActivity.H2D_COPY: (
        Cause.H2D_COPY,
        0.10,
        Text(
            "`pin_memory=True` and `.to(device, non_blocking=True)`",
            "使用 `pin_memory=True` 与 `.to(device, non_blocking=True)`",
        ),
    ),
    TrainerActivity.EVALUATION: (
        Cause.EVALUATION,
        0.10,
        Text("evaluate less often, or on fewer samples", "降低评估频率，或减少评估样本"),
    ),
}
# What is said instead to those who have our loader already; None: nothing.
_WITH_OURS: dict[Text, Text | None] = {
    _OURS: None,
    _FASTER_READS: Text(
        "data on faster storage, or in shards (`headrace.Shards`), which are read ahead in large pieces: `io_depth=` "
        "is how many at a time; `readahead=` does it for loose files",
        "把数据放到更快的存储，或打成分片（`headrace.Shards`），会提前大块读取：`io_depth=` 是同时读取的块数；散文件用 "
        "`readahead=`",
    ),
    _SMALLER_BATCHES: Text(
        "smaller samples in bytes (uint8 instead of float32, crop before the sample is returned): each is written once "
        "into its batch, and that is what takes long",
        "减小样本的字节数（用 uint8 代替 float32，返回前先裁剪）：每个样本写进 batch 一次，耗时的正是这一步",
    ),
    _ENDS_HANGING: Text(
        "`timeout=60, on_error='quarantine'` in the loader: a sample that hangs is ended, named and left out",
        "在加载器里设置 `timeout=60, on_error='quarantine'`：卡死的样本会被终止、指名并剔除",
    ),
    _LARGER_SHM: Text(
        "a larger one (`docker run --shm-size 8g`); the loader itself does not use it",
        "加大共享内存（`docker run --shm-size 8g`）；加载器本身并不使用它",
    ),
    _WHO_REPLACES: Text(
        "the loader replaces the worker and says in the log what killed it; `headrace explain` on the log says more",
        "加载器会补上 worker，并在日志里说明它因何被杀；用 `headrace explain` 分析日志可了解更多",
    ),
}


def _fix(*texts: Text, workers: Iterable[WorkerLook]) -> tuple[Text, ...]:
    """What helps somebody with torch's loader; where the workers are of ours, what helps with that one."""
    if not any(worker.is_ours for worker in workers):
        return texts
    return tuple(said for text in texts if (said := _WITH_OURS.get(text, text)) is not None)


# ------------------------------------------------------------------------------------------ what was watched


@dataclass
class History:
    """What is kept of many looks: the last of each process, means, and everything that was alarming."""

    num_looks: int = 0
    watched_s: float = 0.0
    trainers: dict[tuple[int, int], TrainerLook] = field(default_factory=dict)
    workers: dict[tuple[int, int], WorkerLook] = field(default_factory=dict)
    worker_shares: dict[tuple[int, int], dict[WorkerActivity, float]] = field(default_factory=dict)  # sums over looks
    worker_looks: dict[tuple[int, int], int] = field(default_factory=dict)
    memory_pressure: float = 0.0  # a sum over looks
    most_shm_share: float = 0.0
    swap_in_bytes: float = 0.0
    most_memory_share: float = 0.0
    cpu_shares: list[float] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)

    def add(self, look: Look) -> None:
        """Take in one look."""
        seconds, self.watched_s = look.watched_s - self.watched_s, look.watched_s
        self.num_looks += 1
        for trainer in look.trainers:
            self.trainers[trainer.pid, trainer.started] = trainer
        for worker in look.workers:
            key = worker.pid, worker.started
            self.workers[key] = worker
            totals = self.worker_shares.setdefault(key, {})
            for activity, share in worker.shares.items():
                totals[activity] = totals.get(activity, 0.0) + share
            self.worker_looks[key] = self.worker_looks.get(key, 0) + 1
        machine = look.machine
        self.memory_pressure += machine.pressure.get("memory", 0.0)
        if machine.shm_total_bytes and machine.shm_used_bytes is not None:
            self.most_shm_share = max(self.most_shm_share, machine.shm_used_bytes / machine.shm_total_bytes)
        self.swap_in_bytes += (machine.swap_in_bytes_per_s or 0.0) * seconds
        self.most_memory_share = max(self.most_memory_share, machine.memory_share or 0.0)
        if machine.cpu_share is not None:
            self.cpu_shares.append(machine.cpu_share)
        self.alarms += look.alarms

    def mean_shares(self, keys: Sequence[tuple[int, int]]) -> dict[WorkerActivity, float]:
        """What workers did over all looks at them, in the mean of them."""
        found: dict[WorkerActivity, float] = {}
        for key in keys:
            for activity, total in self.worker_shares[key].items():
                found[activity] = found.get(activity, 0.0) + total / self.worker_looks[key] / len(keys)
        return found

    @property
    def mean_memory_pressure(self) -> float:
        return self.memory_pressure / self.num_looks if self.num_looks else 0.0


def judge(history: History, settings: AlarmSettings | None = None) -> Findings:
    """Say what the watched time was lost to. The trainer that waited most speaks for all."""
    stuck_s = (settings or AlarmSettings()).stuck_s
    trainers = sorted(history.trainers.values(), key=lambda one: -one.wait.value)
    trainer = next((one for one in trainers if one.num_samples), None)
    around = [*_system(history), *_ends(history)]
    if trainer is None:
        return Findings(verdict=Verdict.UNKNOWN, findings=Findings.in_order(around))
    found = [*_waits(history, trainer, stuck_s), *_phases(trainer), *around]
    verdict = _verdict(trainer)
    longer = Text(
        "watch for longer: `headrace watch PID --duration 60`", "延长观察时间：`headrace watch PID --duration 60`"
    )
    shares = {f"{activity.value}_share": share.value for activity, share in trainer.shares.items()}
    return Findings(
        verdict=verdict,
        findings=Findings.in_order(found),
        facts=tuple(_facts(history, trainers)),
        limits=tuple(_limits(trainer)),
        measure=() if verdict is not Verdict.UNKNOWN else (longer,),
        figures={"watched_s": history.watched_s, "samples": float(trainer.num_samples), **shares},
        source={"watched_s": round(history.watched_s, 3), "trainers": len(trainers), "samples": trainer.num_samples},
    )


def _verdict(trainer: TrainerLook) -> Verdict:
    """A word for the whole: from the share of waiting, as far as its interval allows one."""
    wait, unknown = trainer.wait, trainer.shares.get(TrainerActivity.UNKNOWN)
    if trainer.num_samples < _FEW_SAMPLES or (unknown is not None and unknown.value > 0.5):
        return Verdict.UNKNOWN
    if wait.value >= 0.25 and wait.low >= 0.1:
        return Verdict.DATA_BOUND
    if wait.value < 0.05 and wait.high < 0.2:
        return Verdict.COMPUTE_BOUND
    if wait.value < 0.25:
        return Verdict.BALANCED
    return Verdict.UNKNOWN


def _waits(history: History, trainer: TrainerLook, stuck_s: float) -> Iterable[Finding]:
    """The loop's waits, and what the workers did meanwhile. A stuck worker explains them all."""
    keys = [key for key, worker in history.workers.items() if worker.trainer_pid == trainer.pid]
    workers = [history.workers[key] for key in keys]
    stuck = [worker for worker in workers if is_stuck(worker, stuck_s)]
    wait = trainer.wait
    if stuck:
        yield from (_stuck_finding(worker, wait) for worker in stuck)
    elif wait.value >= _LEAST_WAIT and wait.low > 0.0 and trainer.num_samples >= _FEW_SAMPLES:
        yield _explained_wait(trainer, workers, history.mean_shares(keys), _mean(history.cpu_shares))


def _explained_wait(
    trainer: TrainerLook, workers: Sequence[WorkerLook], doing: Mapping[WorkerActivity, float], cpu_share: float
) -> Finding:
    wait, evidence = trainer.wait, [_share_text(trainer.wait, TrainerActivity.DATA_WAIT)]
    if trainer.details.get(Detail.IN_PROCESS, 0.0) >= 0.5 * wait.value and not workers:
        evidence.append(
            Text(
                "the training process loads the data itself (num_workers=0)", "数据由训练进程自己加载（num_workers=0）"
            )
        )
        more = Text(
            "`num_workers=` one for each free core: then loading overlaps with training",
            "设置 `num_workers=`，每个空闲核一个：加载即可与训练重叠",
        )
        return _finding(Cause.LOADER_THROUGHPUT, wait, evidence, (more,), Confidence.CERTAIN)
    if trainer.details.get(Detail.STARTING_WORKERS, 0.0) >= 0.5 * wait.value:
        evidence.append(
            Text("most of it is the start of the workers of an epoch", "大部分时间花在每个 epoch 启动 worker 上")
        )
        keep = Text(
            "`persistent_workers=True`: workers stay from one epoch to the next",
            "`persistent_workers=True`：worker 跨 epoch 保留",
        )
        return _finding(Cause.EPOCH_START, wait, evidence, (keep,), Confidence.CERTAIN)
    busy = sorted(worker.busy.value for worker in workers if worker.busy.num_samples)
    if not busy:
        find_out = Text(
            "find out what the workers do: `pip install headrace[stacks]` and watch again",
            "先弄清 worker 在做什么：`pip install headrace[stacks]` 后再观察一次",
        )
        return _finding(Cause.LOADER_THROUGHPUT, wait, evidence, (find_out,), Confidence.POSSIBLE)
    evidence += [_busy_text(workers, busy), _doing_text(doing, workers)]
    if len(busy) > 1 and busy[-1] >= 0.7 and busy[len(busy) // 2] < 0.5:
        late = max(workers, key=lambda one: one.busy.value)
        said = Text(
            "{name} (pid {pid}) is busy while most of the others are idle: {place}",
            "{name}（pid {pid}）一直在忙，其余多数空闲：{place}",
        )
        evidence.append(said.filled(name=late.name, pid=late.pid, place=late.place))
        look = Text(
            "look at the samples that take long; they are the same in every epoch if the data are to blame",
            "检查耗时长的样本；若问题在数据，每个 epoch 都是同一批",
        )
        fix = _fix(look, _OURS, workers=workers)
        return _finding(Cause.STRAGGLER_SAMPLE, wait, evidence, fix, Confidence.LIKELY)
    if busy[0] >= 0.6:
        said = Text("the machine's processors are {share} busy", "整机 CPU 占用 {share}")
        evidence.append(said.filled(share=format_share(cpu_share)))
        bottleneck, texts = _bottleneck(doing, cpu_is_full=cpu_share >= 0.9)
        fix = _fix(*texts, workers=workers)
        deeper = Text(
            "a higher `prefetch_factor`: the workers have no time left, so a deeper buffer only takes longer to run "
            "dry",
            "加大 `prefetch_factor`：worker 已经没有余力，缓冲再深也只是晚一点见底",
        )
        futile = (deeper,) if busy[0] >= 0.9 else ()
        return _finding(Cause.LOADER_THROUGHPUT, wait, evidence, fix, Confidence.LIKELY, bottleneck, futile)
    evidence.append(
        Text(
            "the loop waits although no worker is busy most of the time: they wait for each other",
            "训练循环在等数据，而 worker 多数时间也不忙：双方互相等待",
        )
    )
    ahead = Text(
        "a higher `prefetch_factor`, if single batches take much longer than others",
        "若个别 batch 明显更久，可加大 `prefetch_factor`",
    )
    return _finding(Cause.UNKNOWN, wait, evidence, _fix(ahead, _OURS, workers=workers), Confidence.POSSIBLE)


def _bottleneck(
    doing: Mapping[WorkerActivity, float], *, cpu_is_full: bool
) -> tuple[Bottleneck | None, tuple[Text, ...]]:
    """What busy workers do most, and what helps against it."""
    collating, sending = (doing.get(one, 0.0) for one in (WorkerActivity.COLLATING, WorkerActivity.SENDING))
    shares = {
        WorkerActivity.READING: doing.get(WorkerActivity.READING, 0.0),
        WorkerActivity.SENDING: sending + collating,
        WorkerActivity.BLOCKED: doing.get(WorkerActivity.BLOCKED, 0.0),
        WorkerActivity.DECODING: doing.get(WorkerActivity.DECODING, 0.0),
    }
    match max(shares, key=lambda one: shares[one]):  # the first where two are alike
        case WorkerActivity.READING:
            # whether more readers at once would help (latency) or not (bandwidth), a look from outside cannot tell
            return None, (_FASTER_READS, _OURS)
        case WorkerActivity.SENDING if collating > sending:
            return None, _CHEAPER_COLLATION
        case WorkerActivity.SENDING:
            return Bottleneck.IPC_COPY, (_SMALLER_BATCHES, _OURS)
        case WorkerActivity.BLOCKED:
            return None, (_LOOK_WHERE,)
    decoding = _CHEAPER_DECODING_ON_A_FULL_CPU if cpu_is_full else _CHEAPER_DECODING
    return Bottleneck.CPU_DECODE, (decoding, _OURS)


def _stuck_finding(worker: WorkerLook, wait: Share) -> Finding:
    go_on = Text("`kill -CONT {pid}` lets it go on", "执行 `kill -CONT {pid}` 可让它继续")
    dump = Text(
        "`headrace watch {pid} --dump` shows its stack, its locks and its open files",
        "`headrace watch {pid} --dump` 可查看它的调用栈、锁和打开的文件",
    )
    is_stopped = worker.activity is WorkerActivity.STOPPED
    fix = (go_on,) if is_stopped else _fix(dump, _ENDS_HANGING, workers=[worker])
    return Finding(
        cause=Cause.WORKER_HANG,
        share=wait.value,
        evidence=(stood_still(worker), _share_text(wait, TrainerActivity.DATA_WAIT)),
        fix=tuple(text.filled(pid=worker.pid) for text in fix),
        severity=Severity.HIGH,
        confidence=Confidence.CERTAIN,
    )


def _phases(trainer: TrainerLook) -> Iterable[Finding]:
    """What is neither waiting nor computing."""
    if trainer.num_samples < _FEW_SAMPLES:
        return
    for activity, (cause, least, fix) in _PHASES.items():
        share = trainer.shares.get(activity)
        if share is None or share.value < least or share.low <= 0.0:
            continue
        evidence = [_share_text(share, activity)]
        waiting = trainer.details.get(Detail.WAITING_FOR_DATA, 0.0)
        if activity is TrainerActivity.EVALUATION and waiting > 0.0:
            said = Text("{share} of the evaluation is a wait for data", "评估时间中有 {share} 在等数据")
            evidence.append(said.filled(share=format_share(min(1.0, waiting / share.value))))
        yield _finding(cause, share, evidence, (fix,), Confidence.CERTAIN)


def _system(history: History) -> Iterable[Finding]:
    """What the machine lacked."""
    pressure = history.mean_memory_pressure
    if history.swap_in_bytes >= 1 << 20:
        said = Text("{size} were read back from swap in {time}", "{time} 内从交换区读回了 {size}")
        said = said.filled(size=format_bytes(history.swap_in_bytes), time=format_seconds(history.watched_s))
        yield _of_the_machine(Cause.SWAP, pressure, said, _LESS_MEMORY)
    elif pressure >= 0.1:
        said = Text("some task waited for memory {share} of the time (PSI)", "有 {share} 的时间存在任务在等内存（PSI）")
        yield _of_the_machine(Cause.MEMORY_PRESSURE, pressure, said.filled(share=format_share(pressure)), _LESS_MEMORY)
    line = next((alarm for alarm in history.alarms if alarm.kind == "memory"), None)
    if line is not None:
        yield _of_the_machine(Cause.MEMORY_PRESSURE, 0.0, line.what, _LESS_MEMORY)
    if history.most_shm_share >= 0.95:
        said = Text("/dev/shm was {share} full", "/dev/shm 已用 {share}")
        said = said.filled(share=format_share(history.most_shm_share))
        yield _of_the_machine(Cause.SHM_FULL, 0.0, said, *_fix(_LARGER_SHM, workers=history.workers.values()))


def _ends(history: History) -> Iterable[Finding]:
    """Workers and trainers that were lost."""
    for alarm in history.alarms:
        if alarm.kind in ("worker_gone", "trainer_gone"):
            is_worker = alarm.kind == "worker_gone"
            lost = [worker for worker in history.workers.values() if worker.pid == alarm.pid]
            log = Text("`headrace explain` on the training's log", "用 `headrace explain` 分析训练日志")
            is_certain = alarm.evidence.get("signal") is not None or alarm.evidence.get("exit_code") is not None
            yield Finding(
                cause=Cause.WORKER_LOST if is_worker else Cause.UNKNOWN,
                share=0.0 if is_worker else 1.0,
                evidence=(alarm.what,),
                fix=_fix(_WHO_REPLACES if is_worker else log, workers=lost),
                severity=Severity.HIGH if is_worker else Severity.FATAL,
                confidence=Confidence.CERTAIN if is_certain else Confidence.LIKELY,
            )


def _finding(
    cause: Cause,
    share: Share,
    evidence: Sequence[Text],
    fix: tuple[Text, ...],
    confidence: Confidence,
    bottleneck: Bottleneck | None = None,
    futile: tuple[Text, ...] = (),
) -> Finding:
    return Finding(
        cause=cause,
        share=share.value,
        evidence=tuple(evidence),
        fix=fix,
        severity=Severity.of_share(share.value),
        confidence=confidence,
        gain=gain_of(share.value),
        bottleneck=bottleneck,
        futile=futile,
        figures={"share_low": share.low, "share_high": share.high},
    )


def _of_the_machine(cause: Cause, share: float, said: Text, *fix: Text) -> Finding:
    return Finding(
        cause=cause,
        share=min(1.0, share),
        evidence=(said,),
        fix=fix,
        severity=Severity.of_share(share),
        confidence=Confidence.LIKELY,
    )


def _mean(shares: Sequence[float]) -> float:
    return fmean(shares) if shares else 0.0


def _share_text(share: Share, activity: TrainerActivity) -> Text:
    name = ACTIVITIES[activity]
    return Text(
        f"{name.en}: {{share}} of the time ({{low}} to {{high}} at 95 % confidence, {{samples}} samples of its stack)",
        f"{name.zh}：占时间的 {{share}}（95% 置信区间 {{low}} 到 {{high}}，{{samples}} 次栈采样）",
    ).filled(
        share=format_share(share.value),
        low=format_share(share.low),
        high=format_share(share.high),
        samples=share.num_samples,
    )


def _busy_text(workers: Sequence[WorkerLook], busy: Sequence[float]) -> Text:
    count = sum(worker.num_workers for worker in workers if worker.busy.num_samples)
    low, middle, high = (format_share(share) for share in (busy[0], busy[len(busy) // 2], busy[-1]))
    if count == 1:
        return Text(f"its one worker is busy {middle} of the time", f"唯一的 worker 忙碌时间占比为 {middle}")
    return Text(
        f"{count} workers are busy {low} to {high} of the time, {middle} in the middle",
        f"{count} 个 worker 的忙碌时间占比为 {low} 到 {high}，中位 {middle}",
    )


def _doing_text(doing: Mapping[WorkerActivity, float], workers: Sequence[WorkerLook]) -> Text:
    parts = [(DOING[one], share) for one, share in sorted(doing.items(), key=lambda one: -one[1]) if share >= 0.01]
    en = ", ".join(f"{name.en} {format_share(share)}" for name, share in parts)
    zh = "，".join(f"{name.zh} {format_share(share)}" for name, share in parts)
    at = next((worker.at for worker in workers if worker.at and worker.activity is not WorkerActivity.IDLE), None)
    place_en, place_zh = (f"; last seen at {at}", f"；最近一次位于 {at}") if at is not None else ("", "")
    return Text(f"what they do: {en or '?'}{place_en}", f"worker 的时间：{zh or '？'}{place_zh}")


def _facts(history: History, trainers: Sequence[TrainerLook]) -> Iterable[Text]:
    for trainer in trainers:
        rank = "" if trainer.rank is None else f" rank {trainer.rank}"
        parts = [(ACTIVITIES[activity], format_share(share.value)) for activity, share in trainer.shares.items()]
        en, zh = ", ".join(f"{one.en} {share}" for one, share in parts), "，".join(f"{a.zh} {b}" for a, b in parts)
        yield Text(f"trainer {trainer.pid}{rank}: {en}", f"训练进程 {trainer.pid}{rank}：{zh}")
    most = format_share(history.most_memory_share)
    yield Text(f"memory in use: at most {most} of the limit", f"内存占用：最高达上限的 {most}")


def _limits(trainer: TrainerLook) -> Iterable[Text]:
    count, problem = trainer.num_samples, trainer.problem or "?"
    if count < _FEW_SAMPLES:
        yield Text(
            f"only {count} samples: less than a few steps may have passed",
            f"只有 {count} 次采样：可能还不到几步的时间",
        )
    if trainer.source == "kernel":
        yield Text(
            f"without Python stacks ({problem}) waits are known by the pipe of the workers alone, and phases not at "
            "all",
            f"没有 Python 栈（{problem}），只能凭 worker 的管道判断是否在等数据，无法区分各阶段",
        )
