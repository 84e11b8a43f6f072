"""What was found in a recording, as findings: shares, evidence, fixes, figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.model import Bottleneck, Cause, Confidence, Finding, PartKind, Severity, Text, gain_of

from ..remedies import CHEAPER_COLLATION, MORE_SUPPLY, advice_on, bottleneck_fix
from .data_waits import DataVerdict
from .estimate_wording import estimate_text
from .estimates import Estimate, Remedy, estimate_async_checkpoint
from .interruptions import Interruption, is_worth_telling
from .part_gains import estimate_cheaper_part
from .part_wording import cheaper_part_text, untimed_advice
from .processes import ProcessEvents
from .sample_parts import SampleParts
from .shortages import Shortage
from .stuck_workers import find_replaced_workers, find_stuck_worker
from .trainer import LoaderWaits, Trainer
from .wording import data_evidence, interruption_evidence
from .wording_hangs import replaced_workers_evidence, shard_start_evidence, stuck_worker_evidence
from .workers import workers_of

# the loader is too slow on the whole, not late now and then
SUPPLY_CAUSES = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
_REST_FROM = 0.10  # of the time: what other waits must cost beside starts of shards, or hangs, to be told too

_GUESSED_FROM = 0.5  # of a loss: what is known by its place only, from here on


def make_finding(
    cause: Cause,
    share: float,
    evidence: tuple[Text, ...],
    count: int,
    confidence: Confidence = Confidence.CERTAIN,
    *,
    has_ours: bool = False,
) -> Finding:
    """Return a finding with what is advised on its cause; `has_ours`: to somebody who has our loader already."""
    share = min(1.0, share)
    advice = advice_on(cause, has_ours=has_ours)
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


def shortage_finding(found: Shortage) -> Finding:
    """Return what the system did not give the training."""
    return replace(make_finding(found.cause, found.share, found.evidence, 1), figures=found.figures)


def interruption_finding(found: Interruption, share: float, train_s: float) -> Finding:
    """Return what else the loop stood still for."""
    confidence = Confidence.LIKELY if found.untimed_s > _GUESSED_FROM * found.lost_s else Confidence.CERTAIN
    finding = make_finding(found.cause, share, interruption_evidence(found), found.count, confidence)
    figures = {
        "lost_s": found.lost_s,
        "count": float(found.count),
        "typical_s": found.typical_s,
        "worst_s": found.worst_s,
    }
    if found.typical_bytes:
        figures["typical_bytes"] = float(found.typical_bytes)
    if found.untimed_s:
        figures["untimed_s"] = found.untimed_s
    if found.copies is not None:
        figures |= {"host_s": found.copies.host_s, "untimed_s": found.copies.untimed_s}
    if found.period is not None:
        figures["period_steps"] = float(found.period.steps)
    if found.cause is Cause.CHECKPOINT and (estimate := estimate_async_checkpoint(found, train_s)) is not None:
        figures |= _estimate_figures([estimate])
        finding = replace(finding, fix=(estimate_text(estimate), *finding.fix))
    return replace(finding, figures=figures)


def stuck_finding(
    trainer: Trainer, processes: Sequence[ProcessEvents], exit_code: int | None, end_ns: int
) -> Finding | None:
    """Return the worker that the loop waited for when the run was ended; None where it was not so."""
    workers = {one.pid: one for loader in trainer.loaders for one in workers_of(loader, trainer.process, processes)}
    stuck = find_stuck_worker(trainer, [*workers.values()], exit_code, end_ns)
    if stuck is None:
        return None
    finding = make_finding(Cause.WORKER_HANG, 1.0, stuck_worker_evidence(stuck), 1)
    return replace(finding, severity=Severity.FATAL, figures={"stuck_s": stuck.stuck_s, "pid": float(stuck.pid)})


def data_findings(
    verdict: DataVerdict, trainer: Trainer, loader: LoaderWaits, estimates: Sequence[Estimate]
) -> list[Finding]:
    """Return what the waits for a loader are; a second of them is told once."""
    train_s, rest_s = trainer.train_s, verdict.lost_s
    found = []
    starts, replaced = verdict.shard_starts, find_replaced_workers(trainer, loader)
    if starts is not None:
        one = make_finding(Cause.SHARD_BOUNDARY, starts.lost_s / train_s, shard_start_evidence(starts), starts.num_late)
        found.append(replace(one, figures={"lost_s": starts.lost_s, "count": float(starts.num_late)}))
        rest_s -= starts.lost_s
    if replaced is not None and is_worth_telling(Cause.WORKER_HANG, replaced.count, replaced.lost_s / train_s):
        evidence = replaced_workers_evidence(replaced)
        found.append(make_finding(Cause.WORKER_HANG, replaced.lost_s / train_s, evidence, replaced.count))
        rest_s -= replaced.lost_s
    if not found or rest_s >= _REST_FROM * train_s:
        found.append(_data_finding(verdict, rest_s / train_s, estimates, train_s))
    return found


def _data_finding(verdict: DataVerdict, share: float, estimates: Sequence[Estimate], train_s: float) -> Finding:
    assert verdict.cause is not None
    share, has_ours = min(1.0, share), verdict.loader.settings.is_ours
    finding = make_finding(
        verdict.cause,
        share,
        data_evidence(verdict, share),
        int(verdict.is_slow.sum()),
        verdict.confidence,
        has_ours=has_ours,
    )
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
        "num_workers": float(verdict.loader.num_workers),
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
    measure = (
        () if is_decided or verdict.cause not in SUPPLY_CAUSES else advice_on(verdict.cause, has_ours=has_ours).measure
    )
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


def _estimate_figures(estimates: Sequence[Estimate]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for one in estimates:
        name = one.remedy.value
        figures |= {f"{name}_gain": one.gain, f"{name}_gain_error": one.error}
        if one.remedy is Remedy.MORE_WORKERS:
            figures[name] = float(one.workers)
    return figures
