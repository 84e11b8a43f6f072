"""From a recording to findings: where the time of each training process went, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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
    Severity,
    Text,
    TimeRow,
    Verdict,
    format_seconds,
    format_share,
    gain_of,
    three_digits,
)

from ..remedies import MORE_SUPPLY, advice_on, bottleneck_fix
from .ceiling import Ceiling, measure_ceiling, why_not_replayed
from .ceiling_wording import ceiling_facts, ceiling_limits, no_replay_text
from .data_waits import DataVerdict, judge_data, with_ceiling
from .ending import find_ending
from .epoch_starts import find_epoch_starts
from .estimate_wording import estimate_text
from .estimates import Estimate, Remedy, Room, estimate_async_checkpoint, estimate_data
from .interruptions import Interruption, find_interruptions, is_worth_telling
from .launchers import root_cause
from .part_gains import estimate_cheaper_part
from .part_rows import part_rows
from .part_wording import cheaper_part_text, untimed_advice
from .processes import ProcessEvents
from .ranks import end_facts, rank_facts
from .sample_parts import SampleParts
from .shortages import Shortage, find_shortages, without
from .slow_steps import find_slow_steps
from .stuck_workers import StuckWorker, find_replaced_workers, find_stuck_worker
from .surroundings import read_surroundings
from .trainer import LoaderWaits, Trainer, is_trainer, read_trainer
from .wording import (
    data_evidence,
    epoch_start_evidence,
    interruption_evidence,
    slow_step_evidence,
)
from .wording_hangs import replaced_workers_evidence, shard_start_evidence, stuck_worker_evidence
from .workers import workers_of

if TYPE_CHECKING:
    from headrace.signals import Recording, SystemSample

_DATA = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
_WAITS = {*_DATA, Cause.STRAGGLER_SAMPLE, Cause.SHARD_BOUNDARY}
_UNKNOWN_FROM = 0.10
_REST_FROM = 0.10  # of the time: what other waits must cost beside starts of shards, or hangs, to be told too
_MOSTLY_WAITS = 0.5  # a straggler that takes this much of the time is what the run is bound by


def explain_recording(recording: Recording) -> Findings:
    """Return why a recorded training waits. A healthy or compute-bound run has no findings."""
    return explain_processes(
        _processes(recording),
        start_ns=recording.facts.start_monotonic_ns,
        end_ns=recording.end_ns,
        cores=recording.facts.core_quota or float(recording.facts.cores or 1),
        limits=tuple(Text(problem, problem) for problem in recording.problems),
        system=recording.system,
        exit_code=_exit_code(recording),
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
            limits=(_NO_TRAINER, *limits),
            measure=(_SEE_MORE,),
        )
    ceilings = [measure_ceiling(trainer, processes) for trainer in trainers]
    judged = [_judge(*one, processes, _room(one[0], system, cores)) for one in zip(trainers, ceilings, strict=True)]
    found, data, trainer, ceiling = max(
        ((*one, trainer, ceiling) for one, trainer, ceiling in zip(judged, trainers, ceilings, strict=True)),
        key=lambda one: sum(finding.share for finding in one[0]),
    )
    stuck = _stuck_finding(trainer, processes, exit_code, end_ns)
    if stuck is not None:  # the last wait is told as what it was, not as a late batch
        found = [one for one in found if one.cause not in _WAITS or one.share > 2 * stuck.share]
        ended = [stuck, *(one for one in ended if one.cause is not Cause.WORKER_HANG)]
    around = read_surroundings(system, trainer.train_start_ns, trainer.train_end_ns, cores=cores)
    if around is not None:
        waited = trainer.seconds(Activity.WAIT) / trainer.train_s if trainer.train_s > 0 else 0.0
        shortages = find_shortages(around, found, wait_share=waited)
        found = [*without(found, shortages), *(_shortage_finding(one) for one in shortages)]
    findings = Findings.in_order([*ended, *found])
    if not trainer.is_fed:
        limits = (_FED_BY_ANOTHER, *limits)
    elif data is None and not findings:
        limits = (_TOO_FEW, *limits)
    if ceiling is not None:
        limits = (*ceiling_limits(ceiling), *limits)
    elif replay_steps:
        limits = (no_replay_text(next(filter(None, map(why_not_replayed, processes)), "")), *limits)
    return Findings(
        verdict=_verdict(findings, trainer) if data is not None or findings else Verdict.UNKNOWN,
        findings=findings,
        facts=(
            *_facts(trainer, data, ceiling),
            *rank_facts(trainer, trainers),
            *end_facts(trainers, root_cause(processes), exit_code),
        ),
        limits=limits,
        measure=findings[0].measure if findings else (),
        figures=_figures(trainer, data, ceiling),
        times=_rows(trainer, data),
        parts=part_rows(data.parts, data.fetchers) if data is not None else (),
    )


def _exit_code(recording: Recording) -> int | None:
    """How the run ended, as a shell tells it: a signal is 128 and its number."""
    facts = recording.facts
    return 128 + facts.exit_signal if facts.exit_signal else facts.exit_code


def _processes(recording: Recording) -> list[ProcessEvents]:
    names: dict[int, dict[int, str]] = {}
    for (pid, number), text in recording.names.items():
        names.setdefault(pid, {})[number] = text
    order = np.argsort(recording.events["pid"], kind="stable")
    events = recording.events[order]
    found = []
    for process in recording.processes:
        start, end = np.searchsorted(events["pid"], [process.pid, process.pid + 1])
        if end > start:
            found.append(
                ProcessEvents(process.pid, process.parent, process.role, events[start:end], names.get(process.pid, {}))
            )
    return found


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
            found += _data_findings(verdict, trainer, loader, estimate_data(verdict, train_s, room, workers))
    for loader in trainer.loaders:
        starts = find_epoch_starts(trainer, loader)
        if starts is not None and is_worth_telling(Cause.EPOCH_START, starts.count, starts.lost_s / train_s):
            found.append(
                _finding(Cause.EPOCH_START, starts.lost_s / train_s, epoch_start_evidence(starts), starts.count)
            )
    for interruption in find_interruptions(trainer):
        share = interruption.lost_s / train_s
        if is_worth_telling(interruption.cause, interruption.num_heavy, share):
            found.append(_interruption_finding(interruption, share, train_s))
    if trainer.loaders:
        loader = max(trainer.loaders, key=lambda one: len(one.batch))
        slow = find_slow_steps(loader)
        if slow is not None and slow.count >= 2 and slow.lost_s >= _UNKNOWN_FROM * train_s:
            found.append(_finding(Cause.UNKNOWN, slow.lost_s / train_s, slow_step_evidence(slow), slow.count))
    return found, data


def _finding(
    cause: Cause, share: float, evidence: tuple[Text, ...], count: int, confidence: Confidence = Confidence.CERTAIN
) -> Finding:
    share = min(1.0, share)
    advice = advice_on(cause)
    return Finding(
        cause=cause,
        share=share,
        severity=Severity.of_share(share),
        confidence=confidence,
        evidence=evidence,
        fix=advice.fix,
        futile=advice.futile,
        measure=advice.measure if cause is Cause.UNKNOWN else (),
        gain=gain_of(share),
        figures={"count": float(count)},
    )


def _shortage_finding(found: Shortage) -> Finding:
    return replace(_finding(found.cause, found.share, found.evidence, 1), figures=found.figures)


def _interruption_finding(found: Interruption, share: float, train_s: float) -> Finding:
    finding = _finding(found.cause, share, interruption_evidence(found), found.count)
    figures = {
        "lost_s": found.lost_s,
        "count": float(found.count),
        "typical_s": found.typical_s,
        "worst_s": found.worst_s,
    }
    if found.typical_bytes:
        figures["typical_bytes"] = float(found.typical_bytes)
    if found.copies is not None:
        figures |= {"host_s": found.copies.host_s, "untimed_s": found.copies.untimed_s}
    if found.period is not None:
        figures["period_steps"] = float(found.period.steps)
    if found.cause is Cause.CHECKPOINT and (estimate := estimate_async_checkpoint(found, train_s)) is not None:
        figures |= _estimate_figures([estimate])
        finding = replace(finding, fix=(estimate_text(estimate), *finding.fix))
    return replace(finding, figures=figures)


def _estimate_figures(estimates: Sequence[Estimate]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for one in estimates:
        name = one.remedy.value
        figures |= {f"{name}_gain": one.gain, f"{name}_gain_error": one.error}
        if one.remedy is Remedy.MORE_WORKERS:
            figures[name] = float(one.workers)
    return figures


def _data_findings(
    verdict: DataVerdict, trainer: Trainer, loader: LoaderWaits, estimates: Sequence[Estimate]
) -> list[Finding]:
    """Return what the waits for a loader are; a second of them is told once."""
    train_s, rest_s = trainer.train_s, verdict.lost_s
    found = []
    starts, replaced = verdict.shard_starts, find_replaced_workers(trainer, loader)
    if starts is not None:
        one = _finding(Cause.SHARD_BOUNDARY, starts.lost_s / train_s, shard_start_evidence(starts), starts.num_late)
        found.append(replace(one, figures={"lost_s": starts.lost_s, "count": float(starts.num_late)}))
        rest_s -= starts.lost_s
    if replaced is not None and is_worth_telling(Cause.WORKER_HANG, replaced.count, replaced.lost_s / train_s):
        evidence = replaced_workers_evidence(replaced)
        found.append(_finding(Cause.WORKER_HANG, replaced.lost_s / train_s, evidence, replaced.count))
        rest_s -= replaced.lost_s
    if not found or rest_s >= _REST_FROM * train_s:
        found.append(_data_finding(verdict, rest_s / train_s, estimates, train_s))
    return found


def _stuck_finding(
    trainer: Trainer, processes: Sequence[ProcessEvents], exit_code: int | None, end_ns: int
) -> Finding | None:
    workers = {one.pid: one for loader in trainer.loaders for one in workers_of(loader, trainer.process, processes)}
    stuck: StuckWorker | None = find_stuck_worker(trainer, [*workers.values()], exit_code, end_ns)
    if stuck is None:
        return None
    finding = _finding(Cause.WORKER_HANG, 1.0, stuck_worker_evidence(stuck), 1)
    return replace(finding, severity=Severity.FATAL, figures={"stuck_s": stuck.stuck_s, "pid": float(stuck.pid)})


def _data_finding(verdict: DataVerdict, share: float, estimates: Sequence[Estimate], train_s: float) -> Finding:
    assert verdict.cause is not None
    share = min(1.0, share)
    finding = _finding(
        verdict.cause, share, data_evidence(verdict, share), int(verdict.is_slow.sum()), verdict.confidence
    )
    estimates = estimates if verdict.cause in _DATA else ()
    cheaper = estimate_cheaper_part(verdict, train_s)
    if cheaper is not None:  # what takes most of a sample is known by its name
        estimates = [one for one in estimates if one.remedy is not Remedy.FASTER_DECODE]
    known = [*map(estimate_text, estimates), *bottleneck_fix(verdict.bottleneck)]
    if cheaper is not None:
        known.insert(len(estimates), cheaper_part_text(cheaper))
    is_decided = bool(known) and verdict.confidence is Confidence.CERTAIN
    fix = [*known, *(text for text in finding.fix if not is_decided or text is not MORE_SUPPLY)]
    if verdict.parts is not None and verdict.bottleneck in {Bottleneck.CPU_DECODE, Bottleneck.GIL}:
        fix += untimed_advice(verdict.parts)
    figures = {
        "lost_s": verdict.lost_s,
        "supply_per_s": verdict.supply_per_s,
        "demand_per_s": verdict.demand_per_s,
        "wait_median_s": float(np.median(verdict.wait_s)),
        "wait_worst_s": float(verdict.wait_s.max()),
        "slow_steps": float(verdict.is_slow.sum()),
        "num_workers": float(verdict.loader.settings.get("num_workers", 0)),
        **_estimate_figures(estimates),
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
    measure = () if is_decided or verdict.cause not in _DATA else advice_on(verdict.cause).measure
    gain = verdict.ceiling.gain if verdict.ceiling is not None else finding.gain  # measured, where it was
    return replace(finding, fix=tuple(fix), gain=gain, bottleneck=verdict.bottleneck, figures=figures, measure=measure)


def _part_figures(parts: SampleParts) -> dict[str, float]:
    """Return the shares of a sample's time; with the user's own stages they add up to 1."""
    total_s = parts.total_s or 1.0
    shares = {
        f"sample_{kind.value}_share": parts.seconds(kind) / total_s
        for kind in (PartKind.READ, PartKind.DECODE, PartKind.TRANSFORM, PartKind.STAGE)
    }
    rest = {"sample_still_share": parts.still_s / total_s, "sample_other_share": parts.other_s / total_s}
    return {"sample_mean_s": parts.mean_s, **shares, **rest}


def _verdict(findings: Sequence[Finding], trainer: Trainer) -> Verdict:
    for finding in findings:
        if finding.cause in _DATA and finding.share >= 0.1:
            return Verdict.DATA_BOUND
        if finding.cause is Cause.STRAGGLER_SAMPLE and finding.share >= _MOSTLY_WAITS:
            return Verdict.DATA_BOUND
    if findings:
        return Verdict.STUTTERING
    waited = trainer.seconds(Activity.WAIT) / trainer.train_s if trainer.train_s > 0 else 0.0
    return Verdict.COMPUTE_BOUND if waited < 0.05 else Verdict.BALANCED


def _rows(trainer: Trainer, data: DataVerdict | None) -> tuple[TimeRow, ...]:
    """Return the table, with what the workers did during the waits where that is known."""
    parts = data.pool.during_waits if data is not None and data.pool is not None else None
    if not parts:
        return trainer.rows
    return tuple(replace(row, parts=parts) if row.activity is Activity.WAIT else row for row in trainer.rows)


def _facts(trainer: Trainer, data: DataVerdict | None, ceiling: Ceiling | None) -> list[Text]:
    facts = [] if ceiling is None else ceiling_facts(ceiling)
    if data is not None:
        steps = len(data.wait_s)
        facts.append(
            Text(
                "{steps} steps at {rate} a second; a step without its wait takes {step} typically",
                "{steps} 步，每秒 {rate} 步；不算等待，一步通常 {step}",
            ).filled(steps=steps, rate=three_digits(data.supply_per_s), step=format_seconds(data.step_s))
        )
    facts.append(
        Text(
            "shares are of the {train} of the training itself; before its first epoch, {startup} went into starting",
            "占比以训练本身的 {train} 为准；第一个 epoch 之前，启动用了 {startup}",
        ).filled(
            train=format_seconds(trainer.train_s),
            startup=format_seconds((trainer.train_start_ns - trainer.start_ns) / 1e9),
        )
    )
    if trainer.train_s > 0:
        facts.append(
            Text("waiting for data: {share} of the time", "等待数据：占时间的 {share}").filled(
                share=format_share(trainer.seconds(Activity.WAIT) / trainer.train_s)
            )
        )
    return facts


def _figures(trainer: Trainer, data: DataVerdict | None, ceiling: Ceiling | None) -> dict[str, float]:
    figures = {
        "wall_s": (trainer.end_ns - trainer.start_ns) / 1e9,
        "train_s": trainer.train_s,
        "wait_share": trainer.seconds(Activity.WAIT) / trainer.train_s if trainer.train_s > 0 else 0.0,
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


_NO_TRAINER = Text(
    "no process asked a DataLoader for a batch while it was recorded, so nothing is known of its waits",
    "录制期间没有进程向 DataLoader 取过 batch，因此无从得知等待情况",
)
_SEE_MORE = Text(
    "for a loop over anything else than torch's or our DataLoader: `for batch in headrace.monitor(iterable):`",
    "若遍历的不是 torch 或 Headrace 的 DataLoader：`for batch in headrace.monitor(iterable):`",
)
_FED_BY_ANOTHER = Text(
    "batches are asked for by another thread than the one that trains (a prefetching iterator): how long the training "
    "itself waits for that thread is not seen, and counts as `other`",
    "取 batch 的线程不是训练线程（用了预取迭代器）：训练线程等它多久无从得知，计入“其他”",
)
_TOO_FEW = Text(
    "fewer than nine batches in an epoch: too few to tell a pattern", "一个 epoch 不到九个 batch：太少，看不出规律"
)
