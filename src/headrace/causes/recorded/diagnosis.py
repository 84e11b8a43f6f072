"""From a recording to findings: where the time of each training process went, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.model import Activity, Cause, Finding, Findings, Text, Verdict

from .ceiling import Ceiling, measure_ceiling, why_not_replayed
from .ceiling_wording import ceiling_limits, no_replay_text
from .data_waits import DataVerdict, judge_data, with_ceiling
from .ending import find_ending
from .epoch_starts import find_epoch_starts
from .estimates import Room, estimate_data
from .findings import SUPPLY_CAUSES, data_findings, interruption_finding, make_finding, shortage_finding, stuck_finding
from .interruptions import find_interruptions, is_worth_telling
from .launchers import root_cause
from .part_rows import part_rows
from .processes import ProcessEvents, processes_of
from .ranks import end_facts, rank_facts
from .shortages import find_shortages, without
from .slow_steps import find_slow_steps
from .summary import FED_BY_ANOTHER, NO_TRAINER, SEE_MORE, TOO_FEW, facts_of, figures_of, rows_of
from .surroundings import read_surroundings
from .trainer import Trainer, is_trainer, read_trainer
from .wording import epoch_start_evidence, slow_step_evidence
from .workers import workers_of

if TYPE_CHECKING:
    from headrace.signals.recording import Recording
    from headrace.signals.system import SystemSample

_WAITS = {*SUPPLY_CAUSES, Cause.STRAGGLER_SAMPLE, Cause.SHARD_BOUNDARY}
_UNKNOWN_FROM = 0.10  # of the time: what slow steps without a cause must cost to be told
_MOSTLY_WAITS = 0.5  # a straggler that takes this much of the time is what the run is bound by


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
            evidence = epoch_start_evidence(starts)
            found.append(make_finding(Cause.EPOCH_START, starts.lost_s / train_s, evidence, starts.count))
    for interruption in find_interruptions(trainer):
        share = interruption.lost_s / train_s
        if is_worth_telling(interruption.cause, interruption.num_heavy, share):
            found.append(interruption_finding(interruption, share, train_s))
    if trainer.loaders:
        loader = max(trainer.loaders, key=lambda one: len(one.batch))
        slow = find_slow_steps(loader)
        if slow is not None and slow.count >= 2 and slow.lost_s >= _UNKNOWN_FROM * train_s:
            found.append(make_finding(Cause.UNKNOWN, slow.lost_s / train_s, slow_step_evidence(slow), slow.count))
    return found, data


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
