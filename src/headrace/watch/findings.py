"""From all that was watched to a verdict and findings, in sentences. Pure: looks in, findings out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from headrace.causes import LOOP_MAKES_DATA, CauseAdvice, advice_on, bottleneck_fix, make_finding
from headrace.model import Bottleneck, Cause, Confidence, Finding, Findings, Severity, Text, Verdict, format_share

from .look import Alarm, Look, TrainerLook, WorkerLook
from .reading import Detail, TrainerActivity, WorkerActivity
from .shares import Share

_FEW_SAMPLES = 30  # under two seconds of stacks: a step may be longer
_MOST = 0.5  # of the time
_PLENTY = 0.5  # of their time: workers that are busy for no more have as much again to give
_LEAST_WAIT = 0.05  # from here on waiting for data is worth a finding, as in the reading of logs

# What is neither waiting nor computing: its cause, and from which share on it is worth a finding (evaluation is meant
# to take some).
_PHASES = {
    TrainerActivity.CHECKPOINT: (Cause.CHECKPOINT, 0.05),
    TrainerActivity.LOGGING: (Cause.LOGGING, 0.05),
    TrainerActivity.GC: (Cause.GC, 0.05),
    TrainerActivity.H2D_COPY: (Cause.H2D_COPY, 0.10),
    TrainerActivity.EVALUATION: (Cause.EVALUATION, 0.10),
}
_OF_ALARMS = {
    "memory": (Cause.MEMORY_PRESSURE, Severity.LOW),
    "swap_in": (Cause.SWAP, Severity.MEDIUM),
    "worker_gone": (Cause.WORKER_LOST, Severity.HIGH),
    "trainer_gone": (Cause.UNKNOWN, Severity.FATAL),
}


@dataclass
class History:
    """What is kept of many looks: the last of each process, means, and everything that was alarming."""

    watched_s: float = 0.0
    trainers: dict[tuple[int, int], TrainerLook] = field(default_factory=dict)
    workers: dict[tuple[int, int], WorkerLook] = field(default_factory=dict)
    cpu_shares: list[float] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)

    def add(self, look: Look) -> None:
        self.watched_s = look.watched_s
        for trainer in look.trainers:
            self.trainers[trainer.pid, trainer.started] = trainer
        for worker in look.workers:
            self.workers[worker.pid, worker.started] = worker
        if look.machine.cpu_share is not None:
            self.cpu_shares.append(look.machine.cpu_share)
        self.alarms += look.alarms


def mean_shares(workers: Collection[WorkerLook]) -> dict[WorkerActivity, float]:
    """What workers did, in the mean of them."""
    found: dict[WorkerActivity, float] = {}
    for worker in workers:
        for activity, share in worker.shares.items():
            found[activity] = found.get(activity, 0.0) + share / len(workers)
    return found


def judge(history: History) -> Findings:
    """Say what the watched time was lost to. The trainer that waited most speaks for all."""
    trainers = sorted(history.trainers.values(), key=lambda one: -one.wait.value)
    trainer = next((one for one in trainers if one.num_samples), None)
    told = {(alarm.kind, alarm.pid): alarm for alarm in history.alarms}  # what stays wrong is told again
    alarming = [_of_alarm(alarm) for alarm in told.values() if alarm.kind in _OF_ALARMS]
    if trainer is None:
        return Findings(verdict=Verdict.UNKNOWN, findings=Findings.in_order(alarming))
    elsewhere = _elsewhere(trainer)
    crew = [one.busy for one in history.workers.values() if one.trainer_pid == trainer.pid and one.busy.num_samples]
    has_plenty = bool(crew) and fmean(one.value for one in crew) <= _PLENTY
    verdict = Verdict.UNKNOWN if elsewhere else _verdict(trainer, has_plenty=has_plenty)
    why = trainer.problem
    without_stacks = Text(
        f"without Python stacks ({why}) waits are known by the pipe of the workers alone, and phases not at all",
        f"没有 Python 栈（{why}），只能凭 worker 的管道判断是否在等数据，无法区分各阶段",
    )
    has_loader = trainer.wait.value > 0 or trainer.pid in {one.trainer_pid for one in history.workers.values()}
    longer = Text(
        "watch for longer: `headrace watch PID --duration 60`", "延长观察时间：`headrace watch PID --duration 60`"
    )
    return Findings(
        verdict=verdict,
        findings=Findings.in_order([*_waits(history, trainer), *_phases(trainer), *elsewhere, *alarming]),
        facts=tuple(map(_fact, trainers)),
        limits=(without_stacks,) if why else () if has_loader or elsewhere else (LOOP_MAKES_DATA,),
        measure=(LOOP_MAKES_DATA,) if elsewhere else (longer,) if verdict is Verdict.UNKNOWN else (),
        figures={"wait_share": trainer.wait.value, "watched_s": history.watched_s},
        source={"watched_s": round(history.watched_s, 3), "trainers": len(trainers), "samples": trainer.num_samples},
    )


def _verdict(trainer: TrainerLook, *, has_plenty: bool) -> Verdict:
    """A word for the whole: from the share of waiting, as far as its interval allows one, and whether workers rest."""
    wait, unknown = trainer.wait, trainer.shares.get(TrainerActivity.UNKNOWN)
    if trainer.num_samples < _FEW_SAMPLES or (unknown is not None and unknown.value > 0.5):
        return Verdict.UNKNOWN
    if wait.value >= 0.25 and wait.low >= 0.1:
        return Verdict.DATA_BOUND
    if wait.value < (0.1 if has_plenty else 0.05) and wait.high < 0.2:
        return Verdict.COMPUTE_BOUND
    return Verdict.BALANCED if wait.value < 0.25 else Verdict.UNKNOWN


def _elsewhere(trainer: TrainerLook) -> list[Finding]:
    """Return the finding of a time most of which went into code that neither computes nor waits for a loader."""
    share, at = trainer.shares.get(TrainerActivity.OTHER), trainer.other_at or "?"
    if share is None or share.value <= _MOST or trainer.num_samples < _FEW_SAMPLES:
        return []
    title = Text(
        f"code that neither computes nor waits for a loader, most of it at {at}",
        f"既不在计算也不在等加载器的代码，多在 {at}",
    )
    evidence, advice = [_share_text(share, TrainerActivity.OTHER)], CauseAdvice((), measure=(LOOP_MAKES_DATA,))
    return [_finding(Cause.UNKNOWN, share, evidence, advice, Confidence.POSSIBLE, title=title, gain=None)]


def _waits(history: History, trainer: TrainerLook) -> Iterable[Finding]:
    """The loop's waits, and what the workers did meanwhile. A stuck worker explains them all."""
    workers = {worker.pid: worker for worker in history.workers.values() if worker.trainer_pid == trainer.pid}
    stuck = {alarm.pid: alarm for alarm in history.alarms if alarm.kind == "stuck" and alarm.pid in workers}
    wait = trainer.wait
    if stuck:
        yield from (_stuck(alarm, workers[pid], wait) for pid, alarm in stuck.items())
    elif wait.value >= _LEAST_WAIT and wait.low > 0.0 and trainer.num_samples >= _FEW_SAMPLES:
        cpu_share = fmean(history.cpu_shares) if history.cpu_shares else 0.0
        yield _explained(trainer, [*workers.values()], cpu_share)


def _stuck(alarm: Alarm, worker: WorkerLook, wait: Share) -> Finding:
    advice = advice_on(Cause.WORKER_HANG)
    if worker.activity is WorkerActivity.STOPPED:
        command = f"`kill -CONT {worker.pid}`"
        advice = CauseAdvice(fix=(Text(f"{command} lets it go on", f"执行 {command} 可让它继续"),))
    evidence = (alarm.what, _share_text(wait, TrainerActivity.DATA_WAIT))
    return _finding(Cause.WORKER_HANG, wait, evidence, advice, severity=Severity.HIGH, gain=None)


def _explained(trainer: TrainerLook, workers: Sequence[WorkerLook], cpu_share: float) -> Finding:
    doing = mean_shares(workers)
    has_ours = any(worker.is_ours for worker in workers)
    wait, evidence = trainer.wait, [_share_text(trainer.wait, TrainerActivity.DATA_WAIT)]
    if trainer.details.get(Detail.IN_PROCESS, 0.0) >= 0.5 * wait.value and not workers:
        evidence.append(Text("the training process loads the data itself", "数据由训练进程自己加载"))
        more = Text(
            "`num_workers=` one for each free core: then loading overlaps with training",
            "设置 `num_workers=`，每个空闲核一个：加载即可与训练重叠",
        )
        return _finding(Cause.LOADER_THROUGHPUT, wait, evidence, CauseAdvice(fix=(more,)))
    if trainer.details.get(Detail.STARTING_WORKERS, 0.0) >= 0.5 * wait.value:
        evidence.append(
            Text("most of it is the start of the workers of an epoch", "大部分时间花在每个 epoch 启动 worker 上")
        )
        return _finding(Cause.EPOCH_START, wait, evidence, advice_on(Cause.EPOCH_START))
    busy = sorted(worker.busy.value for worker in workers if worker.busy.num_samples)
    supply = advice_on(Cause.LOADER_THROUGHPUT, has_ours=has_ours)
    if not busy:
        return _finding(Cause.LOADER_THROUGHPUT, wait, evidence, supply, Confidence.POSSIBLE)
    evidence += [_busy_text(workers, busy), _doing_text(doing, workers)]
    if len(busy) > 1 and busy[-1] >= 0.7 and busy[len(busy) // 2] < 0.5:
        late = max(workers, key=lambda one: one.busy.value)
        said = Text(
            f"{late.name} (pid {late.pid}) is busy while most of the others are idle: {late.place}",
            f"{late.name}（pid {late.pid}）一直在忙，其余多数空闲：{late.place}",
        )
        evidence.append(said)
        advice = advice_on(Cause.STRAGGLER_SAMPLE, has_ours=has_ours)
        return _finding(Cause.STRAGGLER_SAMPLE, wait, evidence, advice, Confidence.LIKELY)
    if busy[0] >= 0.6:
        share = format_share(cpu_share)
        evidence.append(Text(f"the machine's processors are {share} busy", f"整机 CPU 占用 {share}"))
        bottleneck, fix = _bottleneck(doing, has_ours=has_ours, cpu_is_full=cpu_share >= 0.9)
        advice = CauseAdvice(fix=fix or supply.fix, futile=supply.futile)
        return _finding(Cause.LOADER_THROUGHPUT, wait, evidence, advice, Confidence.LIKELY, bottleneck=bottleneck)
    nobody = Text(
        "the loop waits although no worker is busy most of the time: they wait for each other",
        "训练循环在等数据，而 worker 多数时间也不忙：双方互相等待",
    )
    advice = CauseAdvice(fix=supply.fix[1:], measure=advice_on(Cause.UNKNOWN).measure)
    return _finding(Cause.UNKNOWN, wait, [*evidence, nobody], advice, Confidence.POSSIBLE)


def _bottleneck(
    doing: Mapping[WorkerActivity, float], *, has_ours: bool, cpu_is_full: bool
) -> tuple[Bottleneck | None, tuple[Text, ...]]:
    """What busy workers do most, and what helps against it."""
    collating, sending = (doing.get(one, 0.0) for one in (WorkerActivity.COLLATING, WorkerActivity.SENDING))
    shares = {**doing, WorkerActivity.SENDING: sending + collating}
    kinds = (WorkerActivity.READING, WorkerActivity.SENDING, WorkerActivity.BLOCKED, WorkerActivity.DECODING)
    match max(kinds, key=lambda one: shares.get(one, 0.0)):  # the first where two are alike
        case WorkerActivity.READING:
            # whether more readers at once would help (latency) or not (bandwidth), a look from outside cannot tell
            reading = (Bottleneck.IO_LATENCY, Bottleneck.IO_BANDWIDTH)
            return None, tuple(text for kind in reading for text in bottleneck_fix(kind, has_ours=has_ours))
        case WorkerActivity.SENDING if collating > sending:
            return Bottleneck.COLLATE, bottleneck_fix(Bottleneck.COLLATE)
        case WorkerActivity.SENDING:
            return Bottleneck.IPC_COPY, bottleneck_fix(Bottleneck.IPC_COPY, has_ours=has_ours)
        case WorkerActivity.BLOCKED:
            dump = Text(
                "look where they wait: `headrace watch PID --dump` shows stacks, locks and open files",
                "看它们在等什么：`headrace watch PID --dump` 会给出调用栈、锁和打开的文件",
            )
            return None, (dump,)
    more = Text("more workers while cores are free", "有空闲核就增加 worker")
    cheaper = bottleneck_fix(Bottleneck.CPU_DECODE)
    return Bottleneck.CPU_DECODE, cheaper if cpu_is_full else (more, *cheaper)


def _phases(trainer: TrainerLook) -> Iterable[Finding]:
    if trainer.num_samples < _FEW_SAMPLES:
        return
    for activity, (cause, least) in _PHASES.items():
        share = trainer.shares.get(activity)
        if share is None or share.value < least or share.low <= 0.0:
            continue
        evidence = [_share_text(share, activity)]
        waiting = trainer.details.get(Detail.WAITING_FOR_DATA, 0.0)
        is_named = activity is TrainerActivity.EVALUATION
        if is_named and trainer.details.get(Detail.TRAINING):  # it is called so, and trains
            continue
        if is_named:
            evidence.append(Text("known by the name of a function alone", "仅凭函数名判断"))
        if is_named and waiting > 0.0:
            part = format_share(min(1.0, waiting / share.value))
            evidence.append(Text(f"{part} of the evaluation is a wait for data", f"评估时间中有 {part} 在等数据"))
        sure = Confidence.POSSIBLE if is_named else Confidence.CERTAIN
        yield _finding(cause, share, evidence, advice_on(cause), sure)


def _of_alarm(alarm: Alarm) -> Finding:
    cause, severity = _OF_ALARMS[alarm.kind]
    log = Text(
        "`headrace explain` on the training's log says why; `headrace.DataLoader` replaces a lost worker and goes on",
        "用 `headrace explain` 分析训练日志可找到原因；`headrace.DataLoader` 会补上丢失的 worker 并继续训练",
    )
    number = alarm.evidence.get("signal")
    if severity is Severity.FATAL and isinstance(number, int):
        from headrace.causes import signal_finding  # loads NumPy

        found = signal_finding(number)
        return replace(found, evidence=(alarm.what, *found.evidence))
    is_end = alarm.kind.endswith("_gone")
    is_certain = not is_end or set(alarm.evidence.values()) - {None}
    return Finding(
        cause=cause,
        share=1.0 if severity is Severity.FATAL else 0.0,
        evidence=(alarm.what,),
        fix=(log,) if is_end else advice_on(cause).fix,
        severity=severity,
        confidence=Confidence.CERTAIN if is_certain else Confidence.LIKELY,
        title=alarm.what if is_end else None,
    )


def _finding(
    cause: Cause,
    share: Share,
    evidence: Sequence[Text],
    advice: CauseAdvice,
    confidence: Confidence = Confidence.CERTAIN,
    **others: Any,
) -> Finding:
    others |= {"figures": {"share_low": share.low, "share_high": share.high}, "advice": advice}
    is_open = confidence is Confidence.POSSIBLE
    return make_finding(cause, share.value, evidence, confidence=confidence, is_open=is_open, **others)


def _share_text(share: Share, activity: TrainerActivity) -> Text:
    value, low, high = (format_share(one) for one in (share.value, share.low, share.high))
    return Text(
        "{name}: {value} of the time ({low} to {high} at 95 % confidence, {count:sample(s)} of its stack)",
        "{name}：占时间的 {value}（95% 置信区间 {low} 到 {high}，{count} 次栈采样）",
    ).filled(name=activity.value, value=value, low=low, high=high, count=share.num_samples)


def _busy_text(workers: Sequence[WorkerLook], busy: Sequence[float]) -> Text:
    count = sum(worker.num_workers for worker in workers if worker.busy.num_samples)
    low, middle, high = (format_share(share) for share in (busy[0], busy[len(busy) // 2], busy[-1]))
    return Text(
        "{count:worker(s) (is|are)} busy {low} to {high} of the time, {middle} in the middle",
        "{count} 个 worker 的忙碌时间占比为 {low} 到 {high}，中位 {middle}",
    ).filled(count=count, low=low, middle=middle, high=high)


def _doing_text(doing: Mapping[WorkerActivity, float], workers: Sequence[WorkerLook]) -> Text:
    parts = [(one.value, share) for one, share in sorted(doing.items(), key=lambda one: -one[1]) if share >= 0.01]
    en = ", ".join(f"{name.en} {format_share(share)}" for name, share in parts)
    zh = "，".join(f"{name.zh} {format_share(share)}" for name, share in parts)
    at = next((worker.at for worker in workers if worker.at and worker.activity is not WorkerActivity.IDLE), None)
    place_en, place_zh = (f"; last seen at {at}", f"；最近一次位于 {at}") if at is not None else ("", "")
    return Text(f"what they do: {en or '?'}{place_en}", f"worker 的时间：{zh or '？'}{place_zh}")


def _fact(trainer: TrainerLook) -> Text:
    rank = "" if trainer.rank is None else f" rank {trainer.rank}"
    parts = [(activity.value, format_share(share.value)) for activity, share in trainer.shares.items()]
    en, zh = ", ".join(f"{one.en} {share}" for one, share in parts), "，".join(f"{a.zh} {b}" for a, b in parts)
    return Text(f"trainer {trainer.pid}{rank}: {en}", f"训练进程 {trainer.pid}{rank}：{zh}")
