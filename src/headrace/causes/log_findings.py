"""`explain_logs`: logs of a run, streamed, what they tell as findings, and what cannot be concluded."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import UnusableInput
from headrace.knowledge import MessageFound, look_up
from headrace.model import Cause, Finding, Findings, Text, Verdict, format_seconds, format_share, three_digits

from .crashes import findings_of, remarks_of
from .logs import FEWEST, Known, LogReader, LogStreams, Series, join_logs, read_log
from .remedies import advice_on, make_finding
from .slow_reports import epoch_fact, explain_slow_reports
from .steps import LOCKSTEP_LIMIT, SUPPLY_CAUSES, Analysis, LostTime, analyse, evidence_of, verdict_of

_LEAST_STEP_S = 1e-6  # what comes oftener is no step: lines of several jobs, joined


def explain_logs(paths: Sequence[str]) -> Findings:
    """Return what the logs of one run tell: rotated parts, ranks, stdout and stderr, in any order.

    Raises `UnusableInput` where a log cannot be read, or where nothing in them tells of training steps.
    """
    logs = [read_log(path) for path in paths]
    names = ", ".join("standard input" if path == "-" else path for path in paths)
    if not any(log.cutter.num_bytes for log in logs):
        raise UnusableInput(f"{names}: empty", next_step="give the log that the training wrote")
    # kinds of lines that look like steps and were not read, the most frequent first: how many, and one
    unread = sorted((one for log in logs for one in log.unread.values()), key=lambda one: -one[0])
    findings = _explain(logs, unread)
    if findings is None:
        raise UnusableInput(
            f"{names}: no line tells of training steps, and no known message is in it",
            lines=sum(log.cutter.num_lines for log in logs),
            **({"unread": unread[0][1]} if unread else {}),
            next_step="give a log with step numbers and times, a progress bar, or an error message; "
            "`headrace explain --help` lists the formats",
        )
    return replace(findings, source=_source(paths, logs))


def explain_message(text: str) -> tuple[Findings, tuple[MessageFound, ...]]:
    """Return what an error message means: as findings, and as the entries of the knowledge base.

    Raises `UnusableInput` where no such message is known.
    """
    found = look_up(text)
    if not found:
        raise UnusableInput(
            "no such message is known",
            text=" ".join(text.split())[:120] or "(empty)",
            next_step="give the whole log: `headrace explain LOG`; the first error in it counts, not the last",
        )
    findings = Findings(verdict=Verdict.UNKNOWN, findings=Findings.in_order(findings_of(found)))
    return findings, found


_FORMATS = {"stamped": "stamped steps", "bar": "progress bar", "slow": "slow batches", "recent": "last batches"}


def _source(paths: Sequence[str], logs: Sequence[LogReader]) -> dict[str, object]:
    formats = Counter({"messages": sum(message.count for log in logs for message in log.messages)})
    for store in (store for log in logs for store in log.stores.values() if store.shape != "alone"):
        formats[_FORMATS.get(store.shape.partition("/")[0], "timed steps")] += store.num_seen
    return {
        "logs": list(paths),
        "bytes": sum(log.cutter.num_bytes for log in logs),
        "bytes_read_for_steps": sum(log.cutter.num_bytes_read for log in logs),
        "lines": sum(log.cutter.num_lines for log in logs),
        "formats": dict(+formats),
    }


def _explain(logs: Sequence[LogReader], unread: list[list[Any]]) -> Findings | None:
    """Return the findings of a run from its logs alone; None where nothing in them tells of steps or known messages."""
    # one finding a cause and fix: every rank, and both of stdout and stderr, may tell of the same death
    crashes: dict[tuple[object, ...], Finding] = {}
    told = [one for log in logs for one in findings_of(log.messages, end=log.end)]
    for one in sorted(told, key=lambda one: -one.share):
        crashes.setdefault((one.cause, one.fix), one)
    remarks = [one for log in logs for one in remarks_of(log.messages, end=log.end)]
    streams = join_logs(logs)
    analysis, reports = _best(streams), explain_slow_reports(streams)
    if analysis is None and reports is None and not crashes and not remarks:
        return None
    findings, verdict = [*crashes.values()], Verdict.UNKNOWN
    facts: list[Text] = []
    limits: list[Text] = []
    figures: dict[str, float] = {}
    if analysis is not None and (reports is None or analysis.losses):
        lost = [_finding(loss, analysis) for loss in analysis.losses]
        findings += lost
        facts += _facts(analysis, streams)
        limits += _limits(analysis)
        figures |= _figures(analysis, streams)
        drifts = lost and all(loss.drift is not None for loss in analysis.losses)
        verdict = Verdict.UNKNOWN if drifts else verdict_of(lost, analysis.wait_share)
    if reports is not None and not any(finding.cause in SUPPLY_CAUSES for finding in findings):
        slow, slow_facts = reports
        findings.append(slow)
        facts += slow_facts
        figures |= slow.figures
        verdict = verdict_of([slow], None) if slow.share else Verdict.STUTTERING  # which it is, by how much is not told
    if any(finding.cause is Cause.BATCH_LOCKSTEP for finding in findings):
        limits.append(LOCKSTEP_LIMIT)
    if unread and unread[0][0] > max(5, sum(len(series) for series in streams.series)):
        said = Text(
            "{n:line(s)} like this, which might be steps, not read: `{line}`; please report the format, with a few "
            "such lines",
            "有 {n} 行看起来像训练步但没有读懂，例如：`{line}`；请附上几行报告这种格式",
        )
        limits.append(said.filled(n=unread[0][0], line=unread[0][1][:160]))
    ordered = Findings.in_order(findings)
    measure = ordered[0].measure if ordered else advice_on(Cause.UNKNOWN).measure[:1] if _NO_WAIT in limits else ()
    return Findings(
        verdict=verdict,
        findings=ordered,
        facts=(*facts, *remarks),
        limits=tuple(limits),
        measure=measure,  # next, for the whole run; where nothing was found, how to get the wait
        figures=figures,
    )


_NO_WAIT = Text(
    "the log does not tell how long a step waits for data; whether steady steps wait for it cannot be seen from it",
    "日志没有给出每一步等待数据的时间；步耗时平稳时，看不出其中有没有在等数据",
)


def _limits(analysis: Analysis) -> Iterator[Text]:
    series = analysis.series
    if analysis.wait_share is None:
        yield _NO_WAIT
    if len(series) < FEWEST:
        yield Text(
            "lines of steps: {n}, too few for patterns: what comes every so many steps cannot be seen",
            "只有 {n} 行步信息，不足以看出规律：每隔若干步出现的情况无法判断",
        ).filled(n=len(series))
    if analysis.start_s >= 0.1 * (analysis.wall_s + analysis.start_s):
        yield Text(
            "{start} until the first line of steps are the start of the run, and in no share here",
            "到第一行步信息为止的 {start} 属于启动阶段，不计入任何占比",
        ).filled(start=format_seconds(analysis.start_s))


def _best(streams: LogStreams) -> Analysis | None:
    """Return the analysis of the most telling stream; of another one, where only that one has losses."""
    analyses = [analyse(series, streams.markers, streams.settings) for series in streams.series]
    usable = [one for one in analyses if one.wall_s > 0 and not 0 < one.stalls.base_s < _LEAST_STEP_S]
    if not usable:
        return None
    longest = max(one.wall_s for one in usable)
    # A bar over a few files, or a handful of lines, does not speak for the run.
    usable = [one for one in usable if one.wall_s >= 0.2 * longest]
    return next((one for one in usable if one.losses), usable[0])


def _finding(loss: LostTime, analysis: Analysis) -> Finding:
    figures = {"lost_s": loss.lost_s, "slow_steps": float(loss.count)}
    if loss.count:
        figures |= {"slow_typical_s": loss.typical_s, "slow_worst_s": loss.worst_s}
    if loss.period is not None:
        figures["period_steps"] = float(loss.period.steps)
    if loss.supply is not None:
        figures |= dict(zip(("supply_per_s", "demand_per_s"), loss.supply, strict=True))
    share, evidence = analysis.share(loss), evidence_of(loss, analysis)
    return make_finding(loss.cause, share, evidence, figures=figures, confidence=loss.confidence, is_open=True)


def _facts(analysis: Analysis, streams: LogStreams) -> Iterator[Text]:
    series, stalls = analysis.series, analysis.stalls
    yield (
        Text("lines of epochs: {steps}, {base} typically", "epoch 信息 {steps} 行，通常 {base}")
        if series.is_epochs
        else Text(
            "{steps:step(s)} in {wall}: {rate} steps/s; a typical step takes {base}",
            "{steps} 步，共 {wall}：{rate} 步/秒；通常一步 {base}",
        )
    ).filled(
        steps=int(analysis.num_steps),
        wall=format_seconds(analysis.wall_s),
        rate=three_digits(analysis.num_steps / analysis.wall_s),
        base=format_seconds(stalls.base_s),
    )
    if analysis.wait_share is not None:
        yield Text(
            "waiting for data: {share} of the time in training steps; {how}", "等待数据：占训练步时间的 {share}；{how}"
        ).filled(share=format_share(analysis.wait_share), how=_how_known(series))
    begins_anew = bool((np.diff(series.step) < 0).any())  # else the number may be that of the whole training
    if analysis.losses and series.per_epoch and begins_anew:
        yield epoch_fact(series.per_epoch, analysis.num_steps / analysis.wall_s, analysis.lost_share)
    yield from (
        Text("{what}: {share} of the time, too little to report", "{what}：占时间的 {share}，不足以列为问题").filled(
            what=loss.cause.value, share=format_share(analysis.share(loss))
        )
        for loss in analysis.minor
        if loss.cause is not Cause.UNKNOWN and analysis.share(loss) >= 0.001
    )
    if streams.num_ranks > 1:
        yield Text(
            "{ranks} ranks; each step is taken as its slowest rank had it", "{ranks} 个 rank；每一步按最慢的 rank 计"
        ).filled(ranks=streams.num_ranks)


def _how_known(series: Series) -> Text:
    said, steps = series.known.value, int(series.span.sum())
    if series.known is Known.SAMPLE and len(series) < FEWEST:
        said = Text("known from {lines:line(s)} alone", "仅由 {lines} 行得出")
    return said.filled(lines=len(series), steps=steps, error=format_share(2 * series.error))


def _figures(analysis: Analysis, streams: LogStreams) -> dict[str, float]:
    waited = {} if analysis.wait_share is None else {"wait_share": analysis.wait_share}
    return {
        "steps": analysis.num_steps,
        "step_mean_s": analysis.step_mean_s,
        "wall_s": analysis.wall_s,
        "step_typical_s": analysis.stalls.base_s,
        "lost_share": analysis.lost_share,
        "ranks": float(streams.num_ranks),
        **waited,
    }
