"""From what logs tell to findings: what was lost to which cause, and what cannot be concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.model import (
    Cause,
    Confidence,
    Finding,
    Findings,
    Severity,
    Text,
    Verdict,
    format_seconds,
    format_share,
    gain_of,
    three_digits,
)

from .logs import Streams
from .remedies import advice_on
from .slow_reports import SlowReports, read_slow_reports
from .steps import Analysis, Loss, analyse
from .wording import evidence_of, lockstep_limit, supply_and_demand

_DATA = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
_NO_WAIT = Text(
    "the log does not tell how long a step waits for data; whether steady steps wait for it cannot be seen from it",
    "日志没有给出每一步等待数据的时间；步耗时平稳时，看不出其中有没有在等数据",
)


def explain_streams(
    streams: Streams,
    *,
    crashes: Sequence[Finding] = (),
    remarks: Sequence[Text] = (),
    source: Mapping[str, object] | None = None,
) -> Findings | None:
    """Return the findings of a run from its logs alone; None where nothing in them tells of steps or known messages."""
    analysis = _best(streams)
    reports = None
    if streams.slow_only is not None:
        reports = read_slow_reports(streams.slow_only, streams.recent, streams.fast_step_s)
    if analysis is None and reports is None and not crashes and not remarks:
        return None
    findings = list(crashes)
    facts: list[Text] = []
    limits: list[Text] = []
    figures: dict[str, float] = {}
    verdict = Verdict.UNKNOWN
    if analysis is not None and (reports is None or analysis.losses):
        findings += [_finding(loss, analysis) for loss in analysis.losses]
        facts += _facts(analysis, streams)
        figures |= _figures(analysis, streams)
        verdict = _verdict(analysis)
        if analysis.wait_share is None:
            limits.append(_NO_WAIT)
    if reports is not None and not any(finding.cause in _DATA for finding in findings):
        slow = _slow_report_finding(reports, streams)
        findings.append(slow)
        facts += _slow_report_facts(reports, streams)
        figures |= dict(slow.figures)
        verdict = Verdict.DATA_BOUND if slow.cause in _DATA and slow.share >= 0.1 else Verdict.STUTTERING
    if any(finding.cause is Cause.BATCH_LOCKSTEP for finding in findings):
        limits.append(lockstep_limit())
    facts += remarks
    ordered = Findings.in_order(findings)
    return Findings(
        verdict=verdict,
        findings=ordered,
        facts=tuple(facts),
        limits=tuple(limits),
        measure=_measure(ordered, analysis),
        figures=figures,
        source=dict(source or {}),
    )


def _best(streams: Streams) -> Analysis | None:
    """Return the analysis of the most telling stream; of another one, where only that one has losses."""
    analyses = [analyse(series, streams.markers, streams.settings) for series in streams.series]
    usable = [one for one in analyses if one.wall_s > 0]
    if not usable:
        return None
    longest = max(one.wall_s for one in usable)
    # A bar over a few files, or a handful of lines, does not speak for the run.
    usable = [one for one in usable if one.wall_s >= 0.2 * longest]
    return next((one for one in usable if one.losses), usable[0])


def _finding(loss: Loss, analysis: Analysis) -> Finding:
    share = analysis.share(loss)
    advice = advice_on(loss.cause)
    figures = {"lost_s": loss.lost_s, "slow_steps": float(loss.count)}
    if loss.count:
        figures |= {"slow_typical_s": loss.typical_s, "slow_worst_s": loss.worst_s}
    if loss.period is not None:
        figures["period_steps"] = float(loss.period.steps)
    if loss.waits is not None:
        figures |= {"supply_per_s": loss.waits.supply_per_s, "demand_per_s": loss.waits.demand_per_s}
    return Finding(
        cause=loss.cause,
        share=share,
        severity=Severity.of_share(share),
        confidence=loss.confidence,
        evidence=evidence_of(loss, analysis),
        fix=advice.fix,
        gain=gain_of(share),
        futile=advice.futile,
        measure=advice.measure,
        figures=figures,
    )


def _slow_report_finding(reports: SlowReports, streams: Streams) -> Finding:
    workers = streams.settings.get("num_workers")
    period = reports.period
    share = reports.lost_s / reports.wall_s if reports.lost_s is not None and reports.wall_s else 0.0
    is_lockstep = period is not None and 2 <= period.steps <= 256
    cause = (
        Cause.BATCH_LOCKSTEP if is_lockstep else Cause.STRAGGLER_SAMPLE if len(reports.steps) >= 3 else Cause.UNKNOWN
    )
    evidence = []
    if period is not None:
        evidence.append(
            Text(
                "all {count} slow batches reported are {period} apart (or a multiple of it): one phenomenon, "
                "whatever they are called",
                "报告的 {count} 个慢 batch 彼此都相隔 {period}（或其整数倍）：不管各自叫什么名字，都是同一个现象",
            ).filled(count=len(reports.steps), period=period.steps)
            if period.kept == 1
            else Text(
                "{kept} of the {count} slow batches reported are {period} apart",
                "报告的 {count} 个慢 batch 中，{kept} 相隔 {period}",
            ).filled(kept=format_share(period.kept), count=len(reports.steps), period=period.steps)
        )
        if workers == period.steps:
            evidence.append(
                Text(
                    "that is num_workers={workers}: each worker makes a whole batch and they are delivered in order, "
                    "so the loop gets {fast} at once and waits for the next round",
                    "这正是 num_workers={workers}：每个 worker 各做一个完整的 batch 并按序交付，于是一下子来 {fast} "
                    "个，然后等下一轮",
                ).filled(workers=workers, fast=workers - 1)
            )
    else:
        evidence.append(
            Text(
                "{count} slow batches are reported, at distances that have no common measure",
                "报告了 {count} 个慢 batch，间隔没有规律",
            ).filled(count=len(reports.steps))
        )
    waits = sorted(reports.waits_s)
    evidence.append(
        Text("they wait {median} typically, {worst} at worst", "它们通常等待 {median}，最长 {worst}").filled(
            median=format_seconds(waits[len(waits) // 2]), worst=format_seconds(waits[-1])
        )
    )
    if reports.supply_per_s and reports.demand_per_s:
        evidence.append(supply_and_demand(reports.supply_per_s, reports.demand_per_s))
    if reports.window is not None:
        one = reports.window
        evidence.append(
            Text(
                "all waiting sits in single batches: {count} x {mean} = {total} in a window, of which one batch is "
                "{worst} ({like} of {windows} windows are like that); the short ones are finished batches being "
                "picked up, not a worker's time",
                "等待全部集中在个别 batch 上：某个窗口 {count} × {mean} = {total}，其中一个 batch 就占 {worst}（"
                "{windows} 个窗口中有 {like} 个如此）；其余很短的时间只是取走已做好的 batch，并不是 worker 的耗时",
            ).filled(
                count=one.count,
                mean=format_seconds(one.mean_s),
                total=format_seconds(one.count * one.mean_s),
                worst=format_seconds(one.worst_s),
                like=reports.one_holds_all,
                windows=reports.num_windows,
            )
        )
    advice = advice_on(cause)
    figures = {"slow_steps": float(len(reports.steps))}
    for name, value in (
        ("period_steps", period.steps if period else None),
        ("supply_per_s", reports.supply_per_s),
        ("demand_per_s", reports.demand_per_s),
        ("lost_s", reports.lost_s),
    ):
        if value is not None:
            figures[name] = float(value)
    likely = is_lockstep and period is not None and workers == period.steps
    return Finding(
        cause=cause,
        share=share,
        severity=Severity.of_share(share),
        confidence=Confidence.LIKELY if likely else Confidence.POSSIBLE,
        evidence=tuple(evidence),
        fix=advice.fix,
        gain=gain_of(share),
        futile=advice.futile,
        measure=advice.measure,
        figures=figures,
    )


def _facts(analysis: Analysis, streams: Streams) -> list[Text]:
    series, stalls = analysis.series, analysis.stalls
    facts = [
        Text(
            "{steps} steps in {wall}: {rate} steps/s; a typical step takes {base}",
            "{steps} 步，共 {wall}：{rate} 步/秒；通常一步 {base}",
        ).filled(
            steps=int(analysis.num_steps),
            wall=format_seconds(analysis.wall_s),
            rate=three_digits(analysis.num_steps / analysis.wall_s),
            base=format_seconds(stalls.base_s),
        )
    ]
    if analysis.wait_share is not None:
        facts.append(
            Text("waiting for data: {share} of the time", "等待数据：占时间的 {share}").filled(
                share=format_share(analysis.wait_share)
            )
        )
    per_epoch = series.per_epoch or streams.per_epoch
    if analysis.losses and per_epoch:
        facts.append(_epoch_fact(per_epoch, analysis.num_steps / analysis.wall_s, analysis.lost_share))
    facts += [
        Text("{what}: {share} of the time, too little to report", "{what}：占时间的 {share}，不足以列为问题").filled(
            what=loss.cause.value, share=format_share(analysis.share(loss))
        )
        for loss in analysis.minor
        if loss.cause is not Cause.UNKNOWN and analysis.share(loss) >= 0.001
    ]
    if streams.num_ranks > 1:
        facts.append(
            Text(
                "{ranks} ranks; each step is taken as its slowest rank had it",
                "{ranks} 个 rank；每一步按最慢的 rank 计",
            ).filled(ranks=streams.num_ranks)
        )
    return facts


def _slow_report_facts(reports: SlowReports, streams: Streams) -> list[Text]:
    facts = []
    if reports.wall_s is not None and reports.supply_per_s is not None:
        facts.append(
            Text(
                "{steps} batches in {wall}, from the first report to the last",
                "从第一条报告到最后一条：{steps} 个 batch，共 {wall}",
            ).filled(steps=reports.num_steps, wall=format_seconds(reports.wall_s))
        )
        if streams.per_epoch and reports.lost_s is not None:
            facts.append(_epoch_fact(streams.per_epoch, reports.supply_per_s, reports.lost_s / reports.wall_s))
    if reports.demand_per_s is not None:
        facts.append(
            Text("demand: a step without a wait takes {step}, as the log tells", "需求：日志显示，不等待时一步 {step}")
            if reports.demand_is_told
            else Text(
                "demand: estimated as the time that is left without the waits, {step} a step",
                "需求：按扣除等待后的时间估计，一步 {step}",
            )
        )
        facts[-1] = facts[-1].filled(step=format_seconds(1 / reports.demand_per_s))
    return facts


def _epoch_fact(per_epoch: int, steps_per_s: float, share: float) -> Text:
    return Text(
        "an epoch of {steps} steps takes {epoch} at this rate, of which {lost} is lost (estimate: steps / rate, "
        "times the shares found)",
        "按此速度，一个 {steps} 步的 epoch 需要 {epoch}，其中损失 {lost}（估计：步数 / 速率 × 各项占比之和）",
    ).filled(
        steps=per_epoch,
        epoch=format_seconds(per_epoch / steps_per_s),
        lost=format_seconds(share * per_epoch / steps_per_s),
    )


def _figures(analysis: Analysis, streams: Streams) -> dict[str, float]:
    figures = {
        "steps": analysis.num_steps,
        "wall_s": analysis.wall_s,
        "step_typical_s": analysis.stalls.base_s,
        "lost_share": analysis.lost_share,
        "ranks": float(streams.num_ranks),
    }
    if analysis.wait_share is not None:
        figures["wait_share"] = analysis.wait_share
    if analysis.humps is not None:
        figures |= {"low_hump_s": analysis.humps.low_s, "high_hump_s": analysis.humps.high_s}
    return figures


def _verdict(analysis: Analysis) -> Verdict:
    causes = {loss.cause: analysis.share(loss) for loss in reversed(analysis.losses)}
    if any(causes.get(cause, 0) >= 0.1 for cause in _DATA):
        return Verdict.DATA_BOUND
    if all(loss.drift is not None for loss in analysis.losses) and analysis.losses:
        return Verdict.UNKNOWN
    if analysis.losses:
        return Verdict.STUTTERING
    if analysis.wait_share is None:
        return Verdict.UNKNOWN
    return Verdict.COMPUTE_BOUND if analysis.wait_share < 0.05 else Verdict.BALANCED


def _measure(findings: Sequence[Finding], analysis: Analysis | None) -> tuple[Text, ...]:
    """Return what to measure next for the whole run: the first finding's measurements, else how to get the wait."""
    if findings:
        return findings[0].measure
    if analysis is not None and analysis.wait_share is None:
        return advice_on(Cause.UNKNOWN).measure[:1]
    return ()
