"""From a recording to findings and facts: where the time of each training process went, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from headrace.model import (
    Activity,
    Adjustment,
    Bottleneck,
    Cause,
    Confidence,
    EventKind,
    Finding,
    Findings,
    PartKind,
    Text,
    Verdict,
    format_seconds,
    format_share,
    gain_of,
    three_digits,
)

from ..remedies import (
    LOOP_MAKES_DATA,
    MORE_SUPPLY,
    advice_on,
    bottleneck_fix,
    make_finding,
)
from ..steps import PLENTY, SUPPLY_CAUSES, verdict_of
from .ceiling import Ceiling, ceiling_facts, ceiling_limits, measure_ceiling, no_replay_text
from .data_waits import DataVerdict, data_evidence, find_shard_starts, judge_data, undecided_turns
from .ending import end_facts, find_ending
from .estimates import Estimate, WorkerForecast, estimate_data, forecast_workers
from .feeding import feed_headline, feed_notes, feed_rows
from .host import find_host_bound, read_host_time
from .interruptions import between_steps_findings, interruption_findings, own_code_notes, stall_notes
from .parts import part_rows, untimed_advice
from .processes import ProcessEvents, processes_of
from .surroundings import Surroundings, find_shortages, read_surroundings
from .trainer import OWN_WORK, Trainer, has_loader, read_trainer, trainers_of
from .workers import replaced_workers_finding, stuck_finding, workers_of

if TYPE_CHECKING:
    from headrace.signals.recording import Recording
    from headrace.signals.system import SystemSample

_MOMENT_S = 1.0
_REST_FROM = 0.10  # of the time: what other waits must cost beside starts of shards, or hangs, to be told too
_UNTIMED = (Activity.BETWEEN_STEPS, Activity.OTHER)  # where a loop without a loader makes its data
_SOME = 0.05  # of the time
_MOST_FED = 2  # sentences about loaders that are fed, in the first lines
_WAITS = {*SUPPLY_CAUSES, Cause.STRAGGLER_SAMPLE, Cause.SHARD_BOUNDARY}

_NO_TRAINER = Text(
    "no process asked a DataLoader for a batch while it was recorded, so nothing is known of its waits",
    "录制期间没有进程向 DataLoader 取过 batch，因此无从得知等待情况",
)
_FED_BY_ANOTHER = Text(
    "batches are asked for by another thread than the one that trains (a prefetching iterator): how long the training "
    "itself waits for that thread is not timed, and lies between its steps",
    "取 batch 的线程不是训练线程（用了预取迭代器）：训练线程等它多久没有计时，落在步与步之间",
)
_NO_LOADER = Text(
    "no DataLoader was asked for a batch to train on: what the loop does for its data is not timed by itself",
    "训练所用的 batch 没有经过 DataLoader：循环为数据花的时间没有单独计时",
)
_NO_DRIVER = Text(
    "how busy the GPU was is not known (`pip install nvidia-ml-py`): it or the host may be the limit of a step",
    "不知道 GPU 有多忙（可 `pip install nvidia-ml-py`）：训练步的瓶颈可能是它，也可能是主机端",
)
_TOO_FEW = Text(
    "fewer than nine batches in an epoch: too few to tell a pattern", "一个 epoch 不到九个 batch：太少，看不出规律"
)


_TAKING = Text("batches were ready, and taking them takes long", "batch 已经就绪，取用耗时长")
_UNEVEN = Text("the work is unevenly dealt out", "工作分配不均")
_TITLES: dict[Bottleneck | None, Text] = {  # what is to be changed, where the cause alone does not say it
    Bottleneck.SAMPLER: Text("`next` itself takes long", "`next` 本身耗时长"),
    Bottleneck.COLLATE: Text("`collate_fn` takes long", "`collate_fn` 耗时长"),
    Bottleneck.THREADS: Text("too many threads in each worker", "每个 worker 的线程太多"),
    Bottleneck.SERIAL: Text("the workers take turns at something they share", "worker 在轮流等待共用的东西"),
}
_CHANGE = Text(
    "`num_workers={now}` to `num_workers={workers}`, {place}",
    "{place}：把 `num_workers={now}` 改为 `num_workers={workers}`",
)


def explain_recording(recording: Recording, *, exit_code: int | None = None) -> Findings:
    """Return what ended a recorded training, and why it waits. A healthy or compute-bound run has no findings.

    `exit_code`, as a shell shows it, is for a recording that does not know it.
    """
    return explain_processes(
        processes_of(recording),
        start_ns=recording.facts.start_monotonic_ns,
        end_ns=recording.end_ns,
        cores=recording.facts.core_quota or float(recording.facts.cores or 1),
        limits=tuple(Text(problem, problem) for problem in recording.problems),
        system=recording.system,
        exit_code=recording.facts.shell_code if exit_code is None else exit_code,
        replay_steps=recording.facts.replay_steps,
    )


def forecast_recording(recording: Recording, *, step_s: float | None = None) -> WorkerForecast | None:
    """Return what a recorded training would do with other numbers of workers; None where nothing is known of them.

    `step_s`: how long the training takes for a batch, where that is not what the recording shows.
    """
    processes, cores = processes_of(recording), recording.facts.core_quota or float(recording.facts.cores or 1)
    trainers = [
        read_trainer(one, recording.facts.start_monotonic_ns, recording.end_ns) for one in trainers_of(processes)
    ]
    for trainer in trainers:
        _, data, _, around = _judge(trainer, processes, recording.system, cores)
        if data is not None:
            return forecast_workers(data, trainer.train_s, cores, around, ranks=len(trainers), step_s=step_s)
    return None


def explain_processes(
    processes: Sequence[ProcessEvents],
    *,
    start_ns: int,
    end_ns: int,
    cores: float,
    limits: tuple[Text, ...] = (),
    system: Sequence[SystemSample] = (),
    exit_code: int | None = None,
    replay_steps: int = 0,
) -> Findings:
    """Return the findings of the training process that lost most; the others are told of as facts."""
    trainers = [read_trainer(one, start_ns, end_ns) for one in trainers_of(processes)]
    whole = read_surroundings(system, start_ns, end_ns, cores=cores)
    kills = whole.kills if whole is not None else None
    ended = find_ending(processes, kills, exit_code, (end_ns - start_ns) / 1e9)
    if not trainers:
        return Findings(
            verdict=Verdict.UNKNOWN,
            findings=Findings.in_order(ended),
            limits=(_NO_TRAINER, *limits),
            measure=() if ended else (LOOP_MAKES_DATA,),
        )
    judged = [(*_judge(trainer, processes, system, cores), trainer) for trainer in trainers]
    found, data, ceiling, around, trainer = max(judged, key=lambda one: sum(finding.share for finding in one[0]))
    stuck = stuck_finding(trainer, processes, exit_code, end_ns)
    if stuck is not None:  # the last wait is told as what it was, not as a late batch
        found = [one for one in found if one.cause not in _WAITS]
        ended = [stuck, *(one for one in ended if one.cause is not Cause.WORKER_HANG)]
    if around is not None:
        shortages, rest = find_shortages(around, found, wait_share=trainer.share(Activity.WAIT))
        found = [*rest, *shortages]
    host = read_host_time(trainer, system)
    if host is not None:
        found += find_host_bound(host, num_workers=sum(one.num_workers for one in trainer.loaders))
    if ended:  # of a run that was cut short, a moment is no rule
        moment, possible = _MOMENT_S / max(trainer.train_s, 1e-9), Confidence.POSSIBLE
        found = [replace(one, confidence=possible) if one.share < moment else one for one in found]
    is_explained = any(one.cause is Cause.HOST_BOUND for one in found)
    findings = Findings.in_order([*ended, *found, *(() if is_explained else between_steps_findings(trainer))])
    parts = data.pool.during_waits if data is not None and data.pool is not None else None  # of the waits
    if not trainer.is_fed:
        limits = (_FED_BY_ANOTHER if has_loader(trainer.process) and not trainer.loader_rows else _NO_LOADER, *limits)
    elif data is None and not findings:
        limits = (_TOO_FEW, *limits)
    if ceiling is not None:
        limits = (*ceiling_limits(ceiling), *limits)
    elif replay_steps:
        limits = (no_replay_text(processes), *limits)
    if host is None and trainer.seconds(Activity.H2D) and not any(one.gpus for one in system):
        limits = (*limits, _NO_DRIVER)
    is_busy = not trainer.is_fed and trainer.share(*_UNTIMED) < _SOME
    wait_share = trainer.share(Activity.WAIT) if data is not None or is_busy else None
    num_steps = trainer.num_batches if data is None else len(data.wait_s)
    has_plenty = data is not None and data.pool is not None and data.pool.batch_s <= PLENTY * data.step_s
    feeds = feed_rows(trainer.process)
    fed = [*feed_notes(feeds)]
    return Findings(
        verdict=verdict_of(found, wait_share, num_steps=num_steps, has_plenty=has_plenty),
        findings=findings,
        notes=(
            *fed[:_MOST_FED],
            *(ceiling_facts(ceiling) if ceiling is not None else ()),
            *own_code_notes(trainer),
            *stall_notes(trainer, found),
        ),
        facts=(
            *end_facts(trainers, processes, exit_code),
            *_rank_facts(trainer, trainers),
            *_facts_of(trainer, data),
            *fed[_MOST_FED:],
            *_tuned_facts(trainer),
        ),
        limits=limits,
        measure=findings[0].measure if findings else () if trainer.is_fed or is_busy else (LOOP_MAKES_DATA,),
        figures=_figures_of(trainer, data, ceiling),
        times=tuple(
            replace(row, parts=parts or None) if row.activity is Activity.WAIT else row for row in trainer.rows
        ),
        parts=part_rows(data.parts, data.fetchers) if data is not None else (),
        loaders=trainer.loader_rows,
        feeds=feeds,
        headline=feed_headline(feeds),
    )


def _judge(
    trainer: Trainer, processes: Sequence[ProcessEvents], system: Sequence[SystemSample], cores: float
) -> tuple[list[Finding], DataVerdict | None, Ceiling | None, Surroundings | None]:
    """Return what held one process up, what its most important loader's waits say, its replay, and its surroundings."""
    ceiling = measure_ceiling(trainer, processes)
    around = read_surroundings(
        system,
        trainer.train_start_ns,
        trainer.train_end_ns,
        cores=cores,
        trainer_pid=trainer.process.pid,
        worker_pids={one.pid for loader in trainer.loaders for one in workers_of(loader, trainer.process, processes)},
    )
    found: list[Finding] = []
    data, account, ranks = None, around.account if around is not None else None, len(trainers_of(processes))
    for loader in trainer.loaders:
        verdict = judge_data(loader, trainer.process, processes, trainer.train_s, ceiling, account)
        data = data or verdict
        if verdict is not None and verdict.cause is not None:
            host = read_host_time(trainer, system)
            device = (host["gpu_busy_share"], host["device_wait_share"]) if host is not None else None
            known = estimate_data(verdict, trainer.train_s, cores, around, ranks=ranks, device=device)
            each = max(1, int(cores / ranks / max(1, loader.num_workers)))
            found += _data_findings(verdict, trainer, known, cores_each=each)
    return [*found, *interruption_findings(trainer)], data, ceiling, around


def _data_findings(
    verdict: DataVerdict, trainer: Trainer, estimates: Sequence[Estimate], *, cores_each: int
) -> list[Finding]:
    """Return what the waits for a loader are; a second of them is told once."""
    train_s, loader = trainer.train_s, verdict.loader
    starts = find_shard_starts(loader, verdict.fetchers, verdict.is_slow, train_s)
    found = [one for one in (starts, replaced_workers_finding(trainer, loader)) if one is not None]
    lost_s = min(verdict.lost_s, trainer.seconds(Activity.WAIT))  # a collection inside `next` is told as one
    rest_s = lost_s - train_s * sum(one.share for one in found)
    if not found or rest_s >= _REST_FROM * train_s:
        found.append(_data_finding(verdict, rest_s / train_s, estimates, cores_each))
    return found


def _data_finding(verdict: DataVerdict, share: float, estimates: Sequence[Estimate], cores_each: int) -> Finding:
    assert verdict.cause is not None
    share, has_ours = min(1.0, share), verdict.loader.settings.is_ours
    bottleneck, parts = verdict.bottleneck, verdict.parts
    advice = advice_on(
        verdict.cause,
        has_ours=has_ours,
        is_iterable=verdict.is_iterable,
        has_workers=verdict.loader.settings.num_workers != 0,
        is_loader=bool(verdict.loader.settings.by or verdict.loader.num_workers),
        bottleneck=bottleneck,
        uneven_workers=verdict.loader.num_workers if verdict.is_uneven else 0,
        tunes_itself=verdict.loader.settings.tunes_itself,
    )
    estimates = estimates if verdict.cause in SUPPLY_CAUSES else ()
    decodes = parts is not None and any(one.kind is PartKind.DECODE for one in parts.parts)
    cures = bottleneck_fix(bottleneck, has_ours=has_ours, decodes=decodes)
    known = [*(one.text for one in estimates), *(text.filled(threads=cores_each) for text in cures)]
    known += undecided_turns(verdict)
    is_decided = bool(known) and (verdict.is_taking or verdict.confidence is Confidence.CERTAIN)
    fix = [*known, *(text for text in advice.fix if not is_decided or text is not MORE_SUPPLY)]
    if parts is not None and bottleneck in {Bottleneck.CPU_DECODE, Bottleneck.GIL}:
        fix += untimed_advice(parts)
    figures = {
        "lost_s": verdict.lost_s,
        "supply_per_s": verdict.supply_per_s,
        "demand_per_s": verdict.demand_per_s,
        "wait_median_s": float(np.median(verdict.wait_s)),
        "wait_worst_s": float(verdict.wait_s.max()),
        "slow_steps": float(verdict.is_slow.sum()),
        "num_workers": float(verdict.loader.num_workers),
    }
    for one in estimates:
        figures |= one.figures
    if verdict.period is not None:
        figures["period_steps"] = float(verdict.period.steps)
    if verdict.pool is not None:
        figures["busy_share"] = verdict.pool.busy
    if verdict.resources is not None:
        figures |= {
            "task_cpu_share": verdict.resources.cpu,
            "task_no_core_share": verdict.resources.no_core,
            "task_blocked_share": verdict.resources.blocked,
            "read_bytes_per_s": verdict.resources.bytes_per_s,
        }
    if parts is not None:
        total_s, kinds = parts.total_s or 1.0, (PartKind.READ, PartKind.DECODE, PartKind.TRANSFORM, PartKind.STAGE)
        figures |= {
            "sample_mean_s": parts.mean_s,
            **{f"sample_{kind.value}_share": parts.seconds(kind) / total_s for kind in kinds},
            "sample_still_share": parts.still_s / total_s,
            "sample_other_share": parts.other_s / total_s,
        }
    measure = () if is_decided or verdict.cause not in SUPPLY_CAUSES else advice.measure
    gain = verdict.ceiling.gain if verdict.ceiling is not None else gain_of(share)  # measured, where it was
    workers = [one.workers for one in estimates if one.workers]
    return make_finding(
        verdict.cause,
        share,
        data_evidence(verdict, share),
        figures=figures,
        confidence=verdict.confidence,
        fix=tuple(fix),
        futile=advice.futile,
        gain=gain,
        bottleneck=bottleneck,
        measure=measure,
        title=_UNEVEN if verdict.is_uneven else _TITLES.get(bottleneck, _TAKING if verdict.is_taking else None),
        change=_CHANGE.filled(place=verdict.loader.place, now=verdict.loader.num_workers, workers=workers[0])
        if workers and fix[0] == estimates[0].text
        else None,
    )


def _facts_of(trainer: Trainer, data: DataVerdict | None) -> Iterator[Text]:
    """Yield what a run is like, in sentences: its steps, what shares are of, what it waited."""
    if data is not None:
        yield Text(
            "{steps:step(s)} at {rate} a second; a step without its wait takes {step} typically",
            "{steps} 步，每秒 {rate} 步；不算等待，一步通常 {step}",
        ).filled(steps=len(data.wait_s), rate=three_digits(data.supply_per_s), step=format_seconds(data.step_s))
    if not trainer.is_fed:
        steps = len(trainer.process.of(EventKind.OPTIMIZER, thread=trainer.thread))
        between, other = (
            f"{format_seconds(trainer.seconds(one))} ({format_share(trainer.share(one))})" for one in _UNTIMED
        )
        yield Text(
            "{steps:optimizer step(s)}; {between} between them, from the optimizer to the next forward, where nothing "
            "else is timed, and {other} in other code of the loop: data made by the loop itself, or other Python",
            "{steps} 次优化器更新；其间从优化器结束到下一次前向、没有其他计时的时间共 {between}，"
            "循环的其他代码 {other}：可能是循环自己在准备数据，也可能是其他 Python 代码",
        ).filled(steps=steps, between=between, other=other)
    yield Text(
        "shares are of the {train} of the training itself; before its first epoch, {startup} went into starting",
        "占比以训练本身的 {train} 为准；第一个 epoch 之前，启动用了 {startup}",
    ).filled(
        train=format_seconds(trainer.train_s), startup=format_seconds((trainer.train_start_ns - trainer.start_ns) / 1e9)
    )
    if trainer.train_s > 0:
        yield Text("waiting for data: {share} of the time", "等待数据：占时间的 {share}").filled(
            share=format_share(trainer.share(Activity.WAIT))
        )


_MOST_TUNED = 40


def _tuned_facts(trainer: Trainer) -> Iterator[Text]:
    """Yield what loaders with `tune="online"` changed of themselves, and why; the last ones where it was often."""
    events = trainer.process.of(EventKind.TUNED)
    for event in events[-_MOST_TUNED:]:
        told = Adjustment.from_event(int(event["value"]), trainer.process.names.get(int(event["arg"]), ""))
        if told is not None:
            at_s = (int(event["start_ns"]) - trainer.train_start_ns) / 1e9
            yield Text('tune="online", after {at}: {said}', 'tune="online"，{at} 后：{said}').filled(
                at=format_seconds(max(0.0, at_s)), said=told.said()
            )


def _figures_of(trainer: Trainer, data: DataVerdict | None, ceiling: Ceiling | None) -> dict[str, float]:
    figures = {
        "wall_s": (trainer.end_ns - trainer.start_ns) / 1e9,
        "train_s": trainer.train_s,
        "wait_share": trainer.share(Activity.WAIT),
    }
    if data is not None:
        figures |= {"steps": float(len(data.wait_s)), "step_typical_s": data.step_s}
    if ceiling is not None:
        figures |= {
            "replayed_steps": float(ceiling.num_served),
            "ceiling_step_s": ceiling.step.value,
            "ceiling_step_error_s": ceiling.step.error,
            "ceiling_steps_per_s": ceiling.steps_per_s,
            "real_step_s": ceiling.real.value,
            "accelerator_utilisation": ceiling.au,
            "perfect_loader_gain": ceiling.gain,
            "perfect_loader_gain_error": ceiling.gain_error,
        }
    return figures


# Ranks that train together take the same time for a step. The slow one spends it on its own work; the others spend the
# difference where they wait for it: in backward, where gradients are summed up, in a barrier, or for the device.
_MEETING = (Activity.BACKWARD, Activity.SYNC, Activity.RANKS)  # where ranks wait for each other
_APART_FROM = 0.1  # of the training's time
_TOGETHER = 1.25  # times as long as the other at most: ranks that train together
_MOST_SHOWN = 8


def _rank_facts(chosen: Trainer, trainers: Sequence[Trainer]) -> Iterator[Text]:
    """Yield which process the findings are of, where the time of each went, and which of them holds up the others."""
    if len(trainers) < 2:
        return
    yield Text(
        "{count} training processes; the findings and the table are those of {which}, which lost most",
        "共 {count} 个训练进程；以上结论与时间表属于损失最多的 {which}",
    ).filled(count=len(trainers), which=chosen.title)
    ordered = sorted(trainers, key=lambda one: (one.rank if one.rank is not None else 0, one.process.pid))
    shown = alive = [one for one in ordered if one.train_s > 0]
    if len(ordered) > _MOST_SHOWN:
        by_wait = sorted(alive, key=lambda one: one.share(Activity.WAIT))
        shown = [by_wait[0], by_wait[-1]]
    for trainer in shown:
        yield Text(
            "{which}: waiting for data {wait}, forward {forward}, backward and waiting for other ranks or the device "
            "{meeting}",
            "{which}：等数据 {wait}，前向 {forward}，反向及等其他 rank 或设备 {meeting}",
        ).filled(
            which=trainer.title,
            wait=format_share(trainer.share(Activity.WAIT)),
            forward=format_share(trainer.share(Activity.FORWARD)),
            meeting=format_share(trainer.share(*_MEETING)),
        )
    if (slow := _held_up_by(alive)) is not None:
        yield slow


def _held_up_by(alive: Sequence[Trainer]) -> Text | None:
    """Say which rank the others wait for; nothing where all have about the same to do."""
    lengths = [one.train_s for one in alive]
    if len(alive) < 2 or max(lengths) > _TOGETHER * min(lengths):
        return None  # one of them fell, and the others waited for what did not come
    own = {one.process.pid: 1 - one.share(*_MEETING) for one in alive}
    slow = max(alive, key=lambda one: own[one.process.pid])
    others = [one for one in alive if one is not slow]
    usual = median(own[one.process.pid] for one in others)
    excess = {one: slow.share(one) - median(other.share(one) for other in others) for one in OWN_WORK}
    most = max(excess, key=lambda one: excess[one])
    if min(own[slow.process.pid] - usual, excess[most]) < _APART_FROM:
        return None
    return Text(
        "{which} holds the others up: {what} takes {own} of its time, of the others' {usual}; they spend {waiting} "
        "of theirs in backward or waiting, it {meeting}",
        "{which} 拖慢了其他 rank：它有 {own} 的时间用于{what}，其他 rank 只有 {usual}；其他 rank 有 {waiting} "
        "的时间在反向或等待，它只有 {meeting}",
    ).filled(
        which=slow.title,
        what=OWN_WORK[most],
        own=format_share(slow.share(most)),
        usual=format_share(median(one.share(most) for one in others)),
        waiting=format_share(1 - usual),
        meeting=format_share(1 - own[slow.process.pid]),
    )
