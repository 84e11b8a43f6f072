"""From a recording to findings: where the time of each training process went, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.model import (
    Activity,
    Bottleneck,
    Cause,
    Confidence,
    Finding,
    Findings,
    PartKind,
    Text,
    TimeRow,
    Verdict,
    format_seconds,
    format_share,
    three_digits,
)

from ..remedies import CHEAPER_COLLATION, MORE_SUPPLY, advice_on, bottleneck_fix, make_finding
from ..steps import Cost
from .ceiling import Ceiling, ceiling_facts, ceiling_limits, measure_ceiling, no_replay_text, why_not_replayed
from .data_waits import DataVerdict, data_evidence, judge_data, with_ceiling
from .ending import end_facts, find_ending, root_cause
from .estimates import (
    Estimate,
    Remedy,
    Room,
    cheaper_part_text,
    estimate_cheaper_part,
    estimate_data,
    estimate_figures,
    estimate_text,
)
from .interruptions import (
    epoch_start_evidence,
    find_epoch_starts,
    find_interruptions,
    find_slow_steps,
    interruption_finding,
    is_worth_telling,
    slow_step_evidence,
)
from .parts import SampleParts, part_rows, untimed_advice
from .processes import ProcessEvents, processes_of
from .ranks import rank_facts
from .shard_starts import shard_start_evidence
from .surroundings import find_shortages, read_surroundings, shortage_finding, without
from .trainer import LoaderWaits, Trainer, is_trainer, read_trainer
from .workers import find_replaced_workers, replaced_workers_evidence, stuck_finding, workers_of

if TYPE_CHECKING:
    from headrace.signals.recording import Recording
    from headrace.signals.system import SystemSample

_UNKNOWN_FROM = 0.10  # of the time: what slow steps without a cause must cost to be told
_MOSTLY_WAITS = 0.5  # a straggler that takes this much of the time is what the run is bound by
# the loader is too slow on the whole, not late now and then
SUPPLY_CAUSES = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
_REST_FROM = 0.10  # of the time: what other waits must cost beside starts of shards, or hangs, to be told too
_WAITS = {*SUPPLY_CAUSES, Cause.STRAGGLER_SAMPLE, Cause.SHARD_BOUNDARY}


def explain_recording(recording: Recording) -> Findings:
    """Return why a recorded training waits. A healthy or compute-bound run has no findings."""
    return explain_processes(
        processes_of(recording),
        start_ns=recording.facts.start_monotonic_ns,
        end_ns=recording.end_ns,
        cores=recording.facts.core_quota or float(recording.facts.cores or 1),
        limits=tuple(Text(problem, problem) for problem in recording.problems),
        system=recording.system,
        exit_code=recording.facts.shell_code,
        replay_steps=recording.facts.replay_steps,
    )


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
    trainers = [read_trainer(one, start_ns, end_ns) for one in processes if is_trainer(one)]
    ended = find_ending(processes, read_surroundings(system, start_ns, end_ns, cores=cores), exit_code)
    if not trainers:
        return Findings(
            verdict=Verdict.UNKNOWN,
            findings=Findings.in_order(ended),
            limits=(NO_TRAINER, *limits),
            measure=(SEE_MORE,),
        )
    ceilings = [measure_ceiling(trainer, processes) for trainer in trainers]
    judged = [_judge(*one, processes, _room(one[0], system, cores)) for one in zip(trainers, ceilings, strict=True)]
    found, data, trainer, ceiling = max(
        ((*one, trainer, ceiling) for one, trainer, ceiling in zip(judged, trainers, ceilings, strict=True)),
        key=lambda one: sum(finding.share for finding in one[0]),
    )
    stuck = stuck_finding(trainer, processes, exit_code, end_ns)
    if stuck is not None:  # the last wait is told as what it was, not as a late batch
        found = [one for one in found if one.cause not in _WAITS or one.share > 2 * stuck.share]
        ended = [stuck, *(one for one in ended if one.cause is not Cause.WORKER_HANG)]
    around = read_surroundings(
        system,
        trainer.train_start_ns,
        trainer.train_end_ns,
        cores=cores,
        trainer_pid=trainer.process.pid,
        worker_pids={one.pid for loader in trainer.loaders for one in workers_of(loader, trainer.process, processes)},
    )
    if around is not None:
        shortages = find_shortages(around, found, wait_share=trainer.share(Activity.WAIT))
        found = [*without(found, shortages), *(shortage_finding(one) for one in shortages)]
    findings = Findings.in_order([*ended, *found])
    if not trainer.is_fed:
        limits = (FED_BY_ANOTHER, *limits)
    elif data is None and not findings:
        limits = (TOO_FEW, *limits)
    if ceiling is not None:
        limits = (*ceiling_limits(ceiling), *limits)
    elif replay_steps:
        limits = (no_replay_text(next(filter(None, map(why_not_replayed, processes)), "")), *limits)
    return Findings(
        verdict=_verdict(findings, trainer) if data is not None or findings else Verdict.UNKNOWN,
        findings=findings,
        facts=(
            *facts_of(trainer, data, ceiling),
            *rank_facts(trainer, trainers),
            *end_facts(trainers, root_cause(processes), exit_code),
        ),
        limits=limits,
        measure=findings[0].measure if findings else (),
        figures=figures_of(trainer, data, ceiling),
        times=rows_of(trainer, data),
        parts=part_rows(data.parts, data.fetchers) if data is not None else (),
    )


def _room(trainer: Trainer, system: Sequence[SystemSample], cores: float) -> Room:
    """Return what the machine had left while a process trained."""
    around = read_surroundings(system, trainer.train_start_ns, trainer.train_end_ns, cores=cores)
    if around is None:
        return Room(cores=cores)
    return Room(cores=cores, idle_cores=around.idle_cores, disk_busy=around.disk_busy)


def _judge(
    trainer: Trainer, ceiling: Ceiling | None, processes: Sequence[ProcessEvents], room: Room
) -> tuple[list[Finding], DataVerdict | None]:
    train_s = trainer.train_s
    found: list[Finding] = []
    data = None
    for loader in trainer.loaders:
        verdict = judge_data(loader, trainer.process, processes, train_s)
        if verdict is None:
            continue
        verdict = with_ceiling(verdict, ceiling)
        data = data or verdict
        if verdict.cause is not None:
            workers = workers_of(loader, trainer.process, processes)
            found += data_findings(verdict, trainer, loader, estimate_data(verdict, train_s, room, workers))
    for loader in trainer.loaders:
        starts = find_epoch_starts(trainer, loader)
        if starts is not None and is_worth_telling(Cause.EPOCH_START, starts.count, starts.lost_s / train_s):
            found.append(_counted(Cause.EPOCH_START, starts, epoch_start_evidence(starts), train_s))
    for interruption in find_interruptions(trainer):
        share = interruption.lost_s / train_s
        if is_worth_telling(interruption.cause, interruption.num_heavy, share):
            found.append(interruption_finding(interruption, share, train_s))
    if trainer.loaders:
        loader = max(trainer.loaders, key=lambda one: len(one.batch))
        slow = find_slow_steps(loader)
        if slow is not None and slow.count >= 2 and slow.lost_s >= _UNKNOWN_FROM * train_s:
            found.append(_counted(Cause.UNKNOWN, slow, slow_step_evidence(slow), train_s))
    return found, data


def _counted(cause: Cause, cost: Cost, evidence: Iterable[Text], train_s: float) -> Finding:
    return make_finding(cause, cost.lost_s / train_s, evidence, figures={"count": float(cost.count)})


def _verdict(findings: Sequence[Finding], trainer: Trainer) -> Verdict:
    for finding in findings:
        if finding.cause in SUPPLY_CAUSES and finding.share >= 0.1:
            return Verdict.DATA_BOUND
        if finding.cause is Cause.MEMORY_PRESSURE and min(finding.share, trainer.share(Activity.WAIT)) >= 0.1:
            return Verdict.DATA_BOUND  # it waits for reads that it would not need
        if finding.cause is Cause.STRAGGLER_SAMPLE and finding.share >= _MOSTLY_WAITS:
            return Verdict.DATA_BOUND
    if findings:
        return Verdict.STUTTERING
    return Verdict.COMPUTE_BOUND if trainer.share(Activity.WAIT) < 0.05 else Verdict.BALANCED


def data_findings(
    verdict: DataVerdict, trainer: Trainer, loader: LoaderWaits, estimates: Sequence[Estimate]
) -> list[Finding]:
    """Return what the waits for a loader are; a second of them is told once."""
    train_s, rest_s = trainer.train_s, verdict.lost_s
    found = []
    starts, replaced = verdict.shard_starts, find_replaced_workers(trainer, loader)
    if starts is not None:
        figures = {"lost_s": starts.lost_s, "count": float(starts.count)}
        share = starts.lost_s / train_s
        found.append(make_finding(Cause.SHARD_BOUNDARY, share, shard_start_evidence(starts), figures=figures))
        rest_s -= starts.lost_s
    if replaced is not None and is_worth_telling(Cause.WORKER_HANG, replaced.count, replaced.lost_s / train_s):
        found.append(_counted(Cause.WORKER_HANG, replaced, replaced_workers_evidence(replaced), train_s))
        rest_s -= replaced.lost_s
    if not found or rest_s >= _REST_FROM * train_s:
        found.append(_data_finding(verdict, rest_s / train_s, estimates, train_s))
    return found


def _data_finding(verdict: DataVerdict, share: float, estimates: Sequence[Estimate], train_s: float) -> Finding:
    assert verdict.cause is not None
    share, has_ours = min(1.0, share), verdict.loader.settings.is_ours
    advice = advice_on(verdict.cause, has_ours=has_ours)
    estimates = estimates if verdict.cause in SUPPLY_CAUSES else ()
    cheaper = estimate_cheaper_part(verdict, train_s)
    if cheaper is not None:  # what takes most of a sample is known by its name
        estimates = [one for one in estimates if one.remedy is not Remedy.FASTER_DECODE]
    known = [*map(estimate_text, estimates), *bottleneck_fix(verdict.bottleneck, has_ours=has_ours)]
    if verdict.is_collating:
        known.append(CHEAPER_COLLATION)
    if cheaper is not None:
        known.insert(len(estimates), cheaper_part_text(cheaper))
    is_decided = bool(known) and verdict.confidence is Confidence.CERTAIN
    fix = [*known, *(text for text in advice.fix if not is_decided or text is not MORE_SUPPLY)]
    if verdict.parts is not None and verdict.bottleneck in {Bottleneck.CPU_DECODE, Bottleneck.GIL}:
        fix += untimed_advice(verdict.parts)
    figures = {
        "lost_s": verdict.lost_s,
        "supply_per_s": verdict.supply_per_s,
        "demand_per_s": verdict.demand_per_s,
        "wait_median_s": float(np.median(verdict.wait_s)),
        "wait_worst_s": float(verdict.wait_s.max()),
        "slow_steps": float(verdict.is_slow.sum()),
        "num_workers": float(verdict.loader.num_workers),
        **estimate_figures(estimates),
    }
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
    if verdict.parts is not None:
        figures |= _part_figures(verdict.parts)
    measure = () if is_decided or verdict.cause not in SUPPLY_CAUSES else advice.measure
    finding = make_finding(
        verdict.cause, share, data_evidence(verdict, share), figures=figures, confidence=verdict.confidence
    )
    gain = verdict.ceiling.gain if verdict.ceiling is not None else finding.gain  # measured, where it was
    return replace(finding, fix=tuple(fix), gain=gain, bottleneck=verdict.bottleneck, measure=measure)


def _part_figures(parts: SampleParts) -> dict[str, float]:
    """Return the shares of a sample's time; with the user's own stages they add up to 1."""
    total_s = parts.total_s or 1.0
    shares = {
        f"sample_{kind.value}_share": parts.seconds(kind) / total_s
        for kind in (PartKind.READ, PartKind.DECODE, PartKind.TRANSFORM, PartKind.STAGE)
    }
    rest = {"sample_still_share": parts.still_s / total_s, "sample_other_share": parts.other_s / total_s}
    return {"sample_mean_s": parts.mean_s, **shares, **rest}


NO_TRAINER = Text(
    "no process asked a DataLoader for a batch while it was recorded, so nothing is known of its waits",
    "录制期间没有进程向 DataLoader 取过 batch，因此无从得知等待情况",
)
SEE_MORE = Text(
    "for a loop over anything else than torch's or our DataLoader: `for batch in headrace.monitor(iterable):`",
    "若遍历的不是 torch 或 Headrace 的 DataLoader：`for batch in headrace.monitor(iterable):`",
)
FED_BY_ANOTHER = Text(
    "batches are asked for by another thread than the one that trains (a prefetching iterator): how long the training "
    "itself waits for that thread is not seen, and counts as `other`",
    "取 batch 的线程不是训练线程（用了预取迭代器）：训练线程等它多久无从得知，计入“其他”",
)
TOO_FEW = Text(
    "fewer than nine batches in an epoch: too few to tell a pattern", "一个 epoch 不到九个 batch：太少，看不出规律"
)


def rows_of(trainer: Trainer, data: DataVerdict | None) -> tuple[TimeRow, ...]:
    """Return the table, with what the workers did during the waits where that is known."""
    parts = data.pool.during_waits if data is not None and data.pool is not None else None
    if not parts:
        return trainer.rows
    return tuple(replace(row, parts=parts) if row.activity is Activity.WAIT else row for row in trainer.rows)


def facts_of(trainer: Trainer, data: DataVerdict | None, ceiling: Ceiling | None) -> Iterator[Text]:
    """Yield what a run is like, in sentences: its steps, what shares are of, what it waited."""
    if ceiling is not None:
        yield from ceiling_facts(ceiling)
    if data is not None:
        steps = len(data.wait_s)
        yield Text(
            "{steps} steps at {rate} a second; a step without its wait takes {step} typically",
            "{steps} 步，每秒 {rate} 步；不算等待，一步通常 {step}",
        ).filled(steps=steps, rate=three_digits(data.supply_per_s), step=format_seconds(data.step_s))
    yield Text(
        "shares are of the {train} of the training itself; before its first epoch, {startup} went into starting",
        "占比以训练本身的 {train} 为准；第一个 epoch 之前，启动用了 {startup}",
    ).filled(
        train=format_seconds(trainer.train_s),
        startup=format_seconds((trainer.train_start_ns - trainer.start_ns) / 1e9),
    )
    if trainer.train_s > 0:
        yield Text("waiting for data: {share} of the time", "等待数据：占时间的 {share}").filled(
            share=format_share(trainer.share(Activity.WAIT))
        )


def figures_of(trainer: Trainer, data: DataVerdict | None, ceiling: Ceiling | None) -> dict[str, float]:
    """Return the same as numbers, for JSON."""
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
            "estimated_step_s": ceiling.estimated_step_s,
            "real_step_s": ceiling.real.value,
            "accelerator_utilisation": ceiling.au,
            "perfect_loader_gain": ceiling.gain,
            "perfect_loader_gain_error": ceiling.gain_error,
        }
    return figures
