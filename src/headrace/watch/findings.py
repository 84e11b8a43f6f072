"""From all that was watched to a verdict and findings. Pure: looks in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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

from . import advice
from .alarms import AlarmSettings, is_stuck, place_of
from .end import End
from .look import Alarm, Look, TrainerLook, WorkerLook
from .shares import Share
from .stack_reading import Activity, Detail
from .worker_reading import WorkerActivity

_FEW_SAMPLES = 30  # under two seconds of stacks: a step may be longer
# From here on a share of time is worth a finding: as in the reading of logs, evaluation is meant to take some.
_LEAST = {
    Activity.DATA_WAIT: 0.05,
    Activity.CHECKPOINT: 0.05,
    Activity.LOGGING: 0.05,
    Activity.GC: 0.05,
    Activity.H2D_COPY: 0.10,
    Activity.EVALUATION: 0.10,
}
_CAUSES = {
    Activity.CHECKPOINT: Cause.CHECKPOINT,
    Activity.LOGGING: Cause.LOGGING,
    Activity.GC: Cause.GC,
    Activity.H2D_COPY: Cause.H2D_COPY,
    Activity.EVALUATION: Cause.EVALUATION,
}


@dataclass
class History:
    """What is kept of many looks: the last of each process, means, and everything that was alarming."""

    num_looks: int = 0
    watched_s: float = 0.0
    trainers: dict[tuple[int, int], TrainerLook] = field(default_factory=dict)
    workers: dict[tuple[int, int], WorkerLook] = field(default_factory=dict)
    worker_shares: dict[tuple[int, int], dict[WorkerActivity, float]] = field(default_factory=dict)
    worker_looks: dict[tuple[int, int], int] = field(default_factory=dict)
    pressure: dict[str, float] = field(default_factory=dict)
    most_shm_share: float = 0.0
    swap_in_bytes: float = 0.0
    most_memory_share: float = 0.0
    cpu_shares: list[float] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

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
        for name, share in machine.pressure.items():
            self.pressure[name] = self.pressure.get(name, 0.0) + share
        if machine.shm_total_bytes and machine.shm_used_bytes is not None:
            self.most_shm_share = max(self.most_shm_share, machine.shm_used_bytes / machine.shm_total_bytes)
        self.swap_in_bytes += (machine.swap_in_bytes_per_s or 0.0) * seconds
        self.most_memory_share = max(self.most_memory_share, machine.memory_share or 0.0)
        if machine.cpu_share is not None:
            self.cpu_shares.append(machine.cpu_share)
        self.alarms += look.alarms
        self.ends += look.ended

    def mean_shares(self, key: tuple[int, int]) -> dict[WorkerActivity, float]:
        """What a worker did over all looks at it."""
        count = self.worker_looks.get(key, 0)
        return {activity: total / count for activity, total in self.worker_shares.get(key, {}).items()} if count else {}

    def mean_pressure(self, name: str) -> float:
        return self.pressure.get(name, 0.0) / self.num_looks if self.num_looks else 0.0


def judge(history: History, settings: AlarmSettings | None = None) -> Findings:
    """Say what the watched time was lost to. The trainer that waited most speaks for all."""
    settings = settings or AlarmSettings()
    trainers = sorted(history.trainers.values(), key=lambda one: -one.wait.value)
    if not trainers or not any(trainer.num_samples for trainer in trainers):
        return Findings(
            verdict=Verdict.UNKNOWN, findings=Findings.in_order([*_system(history), *_ends(history, settings)])
        )
    trainer = next(one for one in trainers if one.num_samples)
    found = [*_waits(history, trainer, settings), *_phases(trainer), *_system(history), *_ends(history, settings)]
    verdict = _verdict(trainer)
    return Findings(
        verdict=verdict,
        findings=Findings.in_order(found),
        facts=tuple(_facts(history, trainers)),
        limits=tuple(_limits(trainer)),
        measure=() if verdict is not Verdict.UNKNOWN else (advice.WATCH_LONGER,),
        figures=_figures(history, trainer),
        source={"watched_s": round(history.watched_s, 3), "trainers": len(trainers), "samples": trainer.num_samples},
    )


def _verdict(trainer: TrainerLook) -> Verdict:
    """A word for the whole: from the share of waiting, as far as its interval allows one."""
    wait, unknown = trainer.wait, trainer.shares.get(Activity.UNKNOWN)
    if trainer.num_samples < _FEW_SAMPLES or (unknown is not None and unknown.value > 0.5):
        return Verdict.UNKNOWN
    if wait.value >= 0.25 and wait.low >= 0.1:
        return Verdict.DATA_BOUND
    if wait.value < 0.05 and wait.high < 0.2:
        return Verdict.COMPUTE_BOUND
    if wait.value < 0.25:
        return Verdict.BALANCED
    return Verdict.UNKNOWN


def _waits(history: History, trainer: TrainerLook, settings: AlarmSettings) -> Iterable[Finding]:
    """The loop's waits, and what the workers did meanwhile. A stuck worker explains them all."""
    keys = [key for key, worker in history.workers.items() if worker.trainer_pid == trainer.pid]
    workers = [history.workers[key] for key in keys]
    stuck = [one for one in workers if is_stuck(one.same_for_s, one.rates.cpu_share, settings.stuck_s)]
    wait = trainer.wait
    for worker in stuck:
        yield _stuck_finding(worker, wait)
    if stuck or wait.value < _LEAST[Activity.DATA_WAIT] or wait.low <= 0.0:
        return
    if trainer.num_samples < _FEW_SAMPLES:
        return
    evidence = [_share_text(wait, Activity.DATA_WAIT)]
    if trainer.details.get(Detail.IN_PROCESS, 0.0) >= 0.5 * wait.value and not workers:
        evidence.append(advice.IN_PROCESS)
        yield _finding(Cause.LOADER_THROUGHPUT, wait, evidence, advice.WORKERS_AT_ALL, Confidence.CERTAIN)
        return
    if trainer.details.get(Detail.STARTING_WORKERS, 0.0) >= 0.5 * wait.value:
        evidence.append(advice.STARTING)
        yield _finding(Cause.EPOCH_START, wait, evidence, advice.KEEP_WORKERS, Confidence.CERTAIN)
        return
    has_ours = _has_ours(workers)
    busy = [worker.busy.value for worker in workers if worker.busy.num_samples]
    if not busy:
        yield _finding(Cause.LOADER_THROUGHPUT, wait, evidence, advice.SUPPLY, Confidence.POSSIBLE)
        return
    evidence.append(_busy_text(workers))
    mean = _mean_of([history.mean_shares(key) for key in keys])
    evidence.append(_doing_text(mean, workers))
    if len(busy) > 1 and max(busy) >= 0.7 and sorted(busy)[len(busy) // 2] < 0.5:
        late = max(workers, key=lambda one: one.busy.value)
        evidence.append(advice.ONE_BUSY.filled(name=late.name, pid=late.pid, place=place_of(late)))
        fix = advice.advice_for(advice.STRAGGLER, has_ours=has_ours)
        yield _finding(Cause.STRAGGLER_SAMPLE, wait, evidence, fix, Confidence.LIKELY)
    elif min(busy) >= 0.6:
        cpu_share = sum(history.cpu_shares) / len(history.cpu_shares) if history.cpu_shares else 0.0
        evidence.append(advice.PROCESSORS.filled(share=format_share(cpu_share)))
        bottleneck, fix = _bottleneck(mean, cpu_is_full=cpu_share >= 0.9)
        fix = advice.advice_for(fix, has_ours=has_ours)
        futile = advice.PREFETCH_FUTILE if min(busy) >= 0.9 else ()
        yield _finding(Cause.LOADER_THROUGHPUT, wait, evidence, fix, Confidence.LIKELY, bottleneck, futile)
    else:
        evidence.append(advice.BOTH_WAIT)
        fix = advice.advice_for(advice.BATCHES_AHEAD, has_ours=has_ours)
        yield _finding(Cause.UNKNOWN, wait, evidence, fix, Confidence.POSSIBLE)


def _has_ours(workers: Iterable[WorkerLook]) -> bool:
    return any(worker.is_ours for worker in workers)


def _bottleneck(mean: dict[WorkerActivity, float], *, cpu_is_full: bool) -> tuple[Bottleneck | None, tuple[Text, ...]]:
    reading = mean.get(WorkerActivity.READING, 0.0)
    decoding = mean.get(WorkerActivity.DECODING, 0.0)
    sending, collating = mean.get(WorkerActivity.SENDING, 0.0), mean.get(WorkerActivity.COLLATING, 0.0)
    blocked = mean.get(WorkerActivity.BLOCKED, 0.0)
    most = max(reading, decoding, sending + collating, blocked)
    if most == reading:
        # whether more readers at once would help (latency) or not (bandwidth), a look from outside cannot tell
        return None, advice.READING
    if most == sending + collating:
        return (None, advice.COLLATING) if collating > sending else (Bottleneck.IPC_COPY, advice.HANDING_OVER)
    if most == blocked:
        return None, advice.BLOCKED
    return Bottleneck.CPU_DECODE, advice.DECODING_ON_A_FULL_CPU if cpu_is_full else advice.DECODING


def _stuck_finding(worker: WorkerLook, wait: Share) -> Finding:
    said = advice.STUCK.filled(
        name=worker.name, pid=worker.pid, time=format_seconds(worker.same_for_s), place=place_of(worker)
    )
    is_stopped = worker.activity is WorkerActivity.STOPPED
    fix = advice.STOPPED_FIX if is_stopped else advice.advice_for(advice.STUCK_FIX, has_ours=worker.is_ours)
    return Finding(
        cause=Cause.WORKER_HANG,
        share=wait.value,
        evidence=(said, _share_text(wait, Activity.DATA_WAIT)),
        fix=tuple(text.filled(pid=worker.pid) for text in fix),
        severity=Severity.HIGH,
        confidence=Confidence.CERTAIN,
    )


def _phases(trainer: TrainerLook) -> Iterable[Finding]:
    """What is neither waiting nor computing."""
    if trainer.num_samples < _FEW_SAMPLES:
        return
    for activity, cause in _CAUSES.items():
        share = trainer.shares.get(activity)
        if share is None or share.value < _LEAST[activity] or share.low <= 0.0:
            continue
        evidence = [_share_text(share, activity)]
        waiting = trainer.details.get(Detail.WAITING_FOR_DATA, 0.0)
        if activity is Activity.EVALUATION and waiting > 0.0:
            evidence.append(advice.EVALUATION_WAITS.filled(share=format_share(min(1.0, waiting / share.value))))
        yield _finding(cause, share, evidence, advice.PHASES[activity], Confidence.CERTAIN)


def _system(history: History) -> Iterable[Finding]:
    if history.swap_in_bytes >= 1 << 20:
        said = advice.SWAPPED.filled(size=format_bytes(history.swap_in_bytes), time=format_seconds(history.watched_s))
        yield _plain(Cause.SWAP, history.mean_pressure("memory"), [said], advice.LESS_MEMORY)
    elif history.mean_pressure("memory") >= 0.1:
        said = advice.PRESSED.filled(share=format_share(history.mean_pressure("memory")))
        yield _plain(Cause.MEMORY_PRESSURE, history.mean_pressure("memory"), [said], advice.LESS_MEMORY)
    line = next((alarm for alarm in history.alarms if alarm.kind == "memory"), None)
    if line is not None:
        yield _plain(Cause.MEMORY_PRESSURE, 0.0, [line.what], advice.LESS_MEMORY)
    if history.most_shm_share >= 0.95:
        said = advice.SHM.filled(share=format_share(history.most_shm_share))
        fix = advice.advice_for(advice.SHM_FIX, has_ours=_has_ours(history.workers.values()))
        yield _plain(Cause.SHM_FULL, 0.0, [said], fix)


def _ends(history: History, settings: AlarmSettings) -> Iterable[Finding]:
    """Workers and trainers that were lost."""
    del settings
    for alarm in history.alarms:
        if alarm.kind in ("worker_gone", "trainer_gone"):
            is_worker = alarm.kind == "worker_gone"
            lost = [worker for worker in history.workers.values() if worker.pid == alarm.pid]
            fix = advice.WORKER_LOST if is_worker else advice.TRAINER_LOST
            is_certain = alarm.evidence.get("signal") is not None or alarm.evidence.get("exit_code") is not None
            yield Finding(
                cause=Cause.WORKER_LOST if is_worker else Cause.UNKNOWN,
                share=0.0 if is_worker else 1.0,
                evidence=(alarm.what,),
                fix=advice.advice_for(fix, has_ours=_has_ours(lost)),
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


def _plain(cause: Cause, share: float, evidence: Sequence[Text], fix: tuple[Text, ...]) -> Finding:
    return Finding(
        cause=cause,
        share=min(1.0, share),
        evidence=tuple(evidence),
        fix=fix,
        severity=Severity.of_share(share),
        confidence=Confidence.LIKELY,
    )


def _share_text(share: Share, activity: Activity) -> Text:
    return advice.SHARE_OF[activity].filled(
        share=format_share(share.value),
        low=format_share(share.low),
        high=format_share(share.high),
        samples=share.num_samples,
    )


def _busy_text(workers: Sequence[WorkerLook]) -> Text:
    known = sorted(worker.busy.value for worker in workers if worker.busy.num_samples)
    middle = known[len(known) // 2]
    count = sum(worker.num_workers for worker in workers if worker.busy.num_samples)
    said = advice.BUSY_ONE if count == 1 else advice.BUSY
    return said.filled(
        count=count, low=format_share(known[0]), middle=format_share(middle), high=format_share(known[-1])
    )


def _doing_text(mean: dict[WorkerActivity, float], workers: Sequence[WorkerLook]) -> Text:
    parts = [(activity, share) for activity, share in sorted(mean.items(), key=lambda one: -one[1]) if share >= 0.01]
    en = ", ".join(f"{advice.DOING[activity].en} {format_share(share)}" for activity, share in parts)
    zh = "，".join(f"{advice.DOING[activity].zh} {format_share(share)}" for activity, share in parts)
    at = next((worker.at for worker in workers if worker.at is not None and worker.activity.value != "idle"), None)
    place_en, place_zh = (f"; last seen at {at}", f"；最近一次位于 {at}") if at is not None else ("", "")
    return Text(f"what they do: {en or '?'}{place_en}", f"worker 的时间：{zh or '？'}{place_zh}")


def _mean_of(shares: Sequence[dict[WorkerActivity, float]]) -> dict[WorkerActivity, float]:
    kinds = {kind for one in shares for kind in one}
    return {kind: sum(one.get(kind, 0.0) for one in shares) / len(shares) for kind in kinds}


def _facts(history: History, trainers: Sequence[TrainerLook]) -> Iterable[Text]:
    for trainer in trainers:
        rank = "" if trainer.rank is None else f" rank {trainer.rank}"
        en = ", ".join(f"{advice.ACTIVITIES[a].en} {format_share(s.value)}" for a, s in trainer.shares.items())
        zh = "，".join(f"{advice.ACTIVITIES[a].zh} {format_share(s.value)}" for a, s in trainer.shares.items())
        yield Text(f"trainer {trainer.pid}{rank}: {en}", f"训练进程 {trainer.pid}{rank}：{zh}")
    yield advice.MEMORY_SEEN.filled(share=format_share(history.most_memory_share))


def _limits(trainer: TrainerLook) -> Iterable[Text]:
    if trainer.num_samples < _FEW_SAMPLES:
        yield advice.FEW.filled(samples=trainer.num_samples)
    if trainer.source == "kernel":
        yield advice.NO_STACKS.filled(problem=trainer.problem or "?")


def _figures(history: History, trainer: TrainerLook) -> dict[str, float]:
    figures = {"watched_s": history.watched_s, "samples": float(trainer.num_samples)}
    for activity, share in trainer.shares.items():
        figures[f"{activity.value}_share"] = share.value
    return figures
