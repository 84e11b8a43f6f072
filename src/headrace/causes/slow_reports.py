"""What reports of slow batches alone say: their distance, what was supplied and what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.model import Cause, Confidence, Finding, Text, format_seconds, format_share

from .logs import LogStreams, Recent, StepStore
from .remedies import make_finding
from .steps import StepPeriod, find_period, find_rhythm, of_weight, supply_and_demand

_LONGEST = 1_000_000  # steps over which a rhythm is looked for


@dataclass(frozen=True, kw_only=True)
class SlowReports:
    """A loader seen only through its slow batches."""

    steps: tuple[int, ...]
    waits_s: tuple[float, ...]
    period: StepPeriod | None
    wall_s: float | None  # from the first to the last report; None without time stamps
    lost_s: float | None  # of it, waiting in the batches reported
    num_steps: int  # in that time
    supply_per_s: float | None
    demand_per_s: float | None
    demand_is_told: bool  # the log tells the step time; else it is what remains without the waits
    window: Recent | None  # a watcher's window in which one batch holds nearly all the waiting
    one_holds_all: int  # so many windows are like that
    num_windows: int


def read_slow_reports(store: StepStore, recent: Sequence[Recent], fast_step_s: float | None) -> SlowReports | None:
    """Return what the reports of slow batches amount to; None where there are fewer than two."""
    steps, waits, at_s = (np.asarray(store.column(name)) for name in ("step", "wait_s", "at_s"))
    stamped = ~np.isnan(at_s)
    if stamped.mean() > 0.5:  # the others are quotations of one
        steps, waits, at_s = steps[stamped], waits[stamped], at_s[stamped]
    if len(steps) < 2:
        return None
    # Excerpts may stand in any order. In the order of time a step that goes back is a new epoch.
    order = np.argsort(at_s if stamped.mean() > 0.5 else steps, kind="stable")
    steps, waits, at_s = steps[order], waits[order], at_s[order]
    parts = np.split(steps, np.flatnonzero(np.diff(steps) < 0) + 1)
    wall_s = lost_s = supply = None
    num_steps = int(steps[-1] - steps[0])
    if not np.isnan(at_s).any() and at_s.max() > at_s.min() and num_steps > 0 and len(parts) == 1:
        wall_s = float(at_s.max() - at_s.min())
        lost_s = min(wall_s, float(waits[1:].sum()))  # the first one's wait lies before the first report
        supply = num_steps / wall_s
    demand = 1 / fast_step_s if fast_step_s else None
    if demand is None and wall_s is not None and lost_s is not None and wall_s > lost_s:
        demand = num_steps / (wall_s - lost_s)
    telling = [one for one in recent if one.worst_s > 0.9 * one.count * one.mean_s]
    return SlowReports(
        steps=tuple(int(step) for step in steps),
        waits_s=tuple(float(wait) for wait in waits),
        period=_period(parts, np.split(waits, np.flatnonzero(np.diff(steps) < 0) + 1)),
        wall_s=wall_s,
        lost_s=lost_s,
        num_steps=num_steps,
        supply_per_s=supply,
        demand_per_s=demand,
        demand_is_told=fast_step_s is not None,
        window=telling[0] if telling else None,
        one_holds_all=len(telling),
        num_windows=len(recent),
    )


def _period(steps: Sequence[NDArray[np.float64]], waits: Sequence[NDArray[np.float64]]) -> StepPeriod | None:
    """Return the distance of the reports: of all, of those that carry the loss, or the rhythm of the waits."""
    whole = find_period([part.tolist() for part in steps])
    if whole is not None:
        return whole
    kept = of_weight(np.concatenate(waits))
    ends = np.cumsum([len(part) for part in steps])
    heavy = [part[flags].tolist() for part, flags in zip(steps, np.split(kept, ends[:-1]), strict=True)]
    period = find_period(heavy)
    longest = max(range(len(steps)), key=lambda index: len(steps[index]))
    length = int(steps[longest][-1] - steps[longest][0]) + 1
    if period is None and length <= _LONGEST:
        line = np.zeros(length)
        line[(steps[longest] - steps[longest][0]).astype(int)] = waits[longest]
        period = find_rhythm(line)
    return period


def slow_report_finding(reports: SlowReports, streams: LogStreams) -> Finding:
    """Return the reports as one finding: lock-step where they come at one distance, else single late batches."""
    workers = streams.settings.get("num_workers")
    period = reports.period
    share = reports.lost_s / reports.wall_s if reports.lost_s is not None and reports.wall_s else 0.0
    is_lockstep = period is not None and 2 <= period.steps <= 256
    cause = (
        Cause.BATCH_LOCKSTEP if is_lockstep else Cause.STRAGGLER_SAMPLE if len(reports.steps) >= 3 else Cause.UNKNOWN
    )
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
    confidence = Confidence.LIKELY if likely else Confidence.POSSIBLE
    evidence = _evidence(reports, workers)
    return make_finding(cause, share, evidence, figures=figures, confidence=confidence, is_from_log=True)


def _evidence(reports: SlowReports, workers: int | None) -> Iterator[Text]:
    period, count = reports.period, len(reports.steps)
    if period is None:
        yield Text(
            "{count} slow batches are reported, at distances that have no common measure",
            "报告了 {count} 个慢 batch，间隔没有规律",
        ).filled(count=count)
    elif period.kept == 1:
        yield Text(
            "all {count} slow batches reported are {period} apart (or a multiple of it): one phenomenon, whatever they "
            "are called",
            "报告的 {count} 个慢 batch 彼此都相隔 {period}（或其整数倍）：不管各自叫什么名字，都是同一个现象",
        ).filled(count=count, period=period.steps)
    else:
        yield Text(
            "{kept} of the {count} slow batches reported are {period} apart",
            "报告的 {count} 个慢 batch 中，{kept} 相隔 {period}",
        ).filled(kept=format_share(period.kept), count=count, period=period.steps)
    if period is not None and workers == period.steps:
        yield Text(
            "that is num_workers={workers}: each worker makes a whole batch and they are delivered in order, so the "
            "loop gets {fast} at once and waits for the next round",
            "这正是 num_workers={workers}：每个 worker 各做一个完整的 batch 并按序交付，于是一下子来 {fast} 个，然后等"
            "下一轮",
        ).filled(workers=workers, fast=workers - 1)
    waits = sorted(reports.waits_s)
    yield Text("they wait {median} typically, {worst} at worst", "它们通常等待 {median}，最长 {worst}").filled(
        median=format_seconds(waits[len(waits) // 2]), worst=format_seconds(waits[-1])
    )
    if reports.supply_per_s and reports.demand_per_s:
        yield supply_and_demand(reports.supply_per_s, reports.demand_per_s)
    if (one := reports.window) is not None:
        yield Text(
            "all waiting sits in single batches: {count} x {mean} = {total} in a window, of which one batch is {worst} "
            "({like} of {windows} windows are like that); the short ones are finished batches being picked up, not a "
            "worker's time",
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


def slow_report_facts(reports: SlowReports, streams: LogStreams) -> Iterator[Text]:
    """Yield what the run is like, as far as such reports tell."""
    if reports.wall_s is not None and reports.supply_per_s is not None:
        yield Text(
            "{steps} batches in {wall}, from the first report to the last",
            "从第一条报告到最后一条：{steps} 个 batch，共 {wall}",
        ).filled(steps=reports.num_steps, wall=format_seconds(reports.wall_s))
        if streams.per_epoch and reports.lost_s is not None:
            yield epoch_fact(streams.per_epoch, reports.supply_per_s, reports.lost_s / reports.wall_s)
    if reports.demand_per_s is not None:
        said = (
            Text("demand: a step without a wait takes {step}, as the log tells", "需求：日志显示，不等待时一步 {step}")
            if reports.demand_is_told
            else Text(
                "demand: estimated as the time that is left without the waits, {step} a step",
                "需求：按扣除等待后的时间估计，一步 {step}",
            )
        )
        yield said.filled(step=format_seconds(1 / reports.demand_per_s))


def epoch_fact(per_epoch: int, steps_per_s: float, share: float) -> Text:
    """Return how long an epoch takes, and how much of it is lost."""
    return Text(
        "an epoch of {steps} steps takes {epoch} at this rate, of which {lost} is lost (estimate: steps / rate, "
        "times the shares found)",
        "按此速度，一个 {steps} 步的 epoch 需要 {epoch}，其中损失 {lost}（估计：步数 / 速率 × 各项占比之和）",
    ).filled(
        steps=per_epoch,
        epoch=format_seconds(per_epoch / steps_per_s),
        lost=format_seconds(share * per_epoch / steps_per_s),
    )
