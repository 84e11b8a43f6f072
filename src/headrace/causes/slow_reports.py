"""What reports of slow batches alone say: their distance, what was supplied and what was asked for."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.model import Cause, Confidence, Finding, Text, format_seconds, format_share

from .logs import LogStreams
from .remedies import make_finding
from .steps import StepPeriod, find_period, find_rhythm, of_weight, supply_and_demand

_LONGEST = 1_000_000  # steps over which a rhythm is looked for
_DEMAND_TOLD = Text(
    "demand: a step without a wait takes {step}, as the log tells", "需求：日志显示，不等待时一步 {step}"
)
_DEMAND_LEFT = Text(
    "demand: estimated as the time that is left without the waits, {step} a step",
    "需求：按扣除等待后的时间估计，一步 {step}",
)


def explain_slow_reports(streams: LogStreams) -> tuple[Finding, list[Text]] | None:
    """Return what reports of slow batches amount to, and the facts of the run; None for fewer than two reports.

    It is lock-step where they come at one distance, else single late batches.
    """
    if "slow" not in streams.watched:
        return None
    steps, waits, at_s = (np.asarray(streams.watched["slow"].column(name)) for name in ("step", "wait_s", "at_s"))
    stamped = ~np.isnan(at_s)
    if stamped.mean() > 0.5:  # the others are quotations of one
        steps, waits, at_s = steps[stamped], waits[stamped], at_s[stamped]
    if len(steps) < 2:
        return None
    # Excerpts may stand in any order. In the order of time a step that goes back is a new epoch.
    order = np.argsort(at_s if stamped.mean() > 0.5 else steps, kind="stable")
    steps, waits, at_s = steps[order], waits[order], at_s[order]
    cuts = np.flatnonzero(np.diff(steps) < 0) + 1
    period = _period(np.split(steps, cuts), np.split(waits, cuts))
    num_steps = int(steps[-1] - steps[0])
    figures = {"slow_steps": float(len(steps))}
    if period is not None:
        figures["period_steps"] = float(period.steps)
    facts: list[Text] = []
    share, supply, demand = 0.0, None, 1 / streams.fast_step_s if streams.fast_step_s else None
    if not np.isnan(at_s).any() and at_s.max() > at_s.min() and num_steps > 0 and not len(cuts):
        wall_s = float(at_s.max() - at_s.min())
        lost_s = min(wall_s, float(waits[1:].sum()))  # the first one's wait lies before the first report
        share, supply = lost_s / wall_s, num_steps / wall_s
        if demand is None and wall_s > lost_s:
            demand = num_steps / (wall_s - lost_s)
        figures["supply_per_s"] = supply
        facts.append(
            Text(
                "{steps:batch(es)} in {wall}, from the first report to the last",
                "从第一条报告到最后一条：{steps} 个 batch，共 {wall}",
            ).filled(steps=num_steps, wall=format_seconds(wall_s))
        )
        if streams.per_epoch:
            facts.append(epoch_fact(streams.per_epoch, supply, share))
    if demand is not None:
        figures["demand_per_s"] = demand
        facts.append((_DEMAND_TOLD if streams.fast_step_s else _DEMAND_LEFT).filled(step=format_seconds(1 / demand)))
    if supply is not None:
        figures["lost_s"] = lost_s
    workers = streams.settings.get("num_workers")
    confidence, cause = Confidence.POSSIBLE, Cause.STRAGGLER_SAMPLE if len(steps) >= 3 else Cause.UNKNOWN
    if period is not None and 2 <= period.steps <= 256 and workers in (None, period.steps):
        cause = Cause.BATCH_LOCKSTEP
        confidence = Confidence.LIKELY if workers == period.steps else Confidence.POSSIBLE
    evidence = [*_distances(period, len(steps), workers)]
    ordered = np.sort(waits)
    evidence.append(
        Text("they wait {median} typically, {worst} at worst", "它们通常等待 {median}，最长 {worst}").filled(
            median=format_seconds(float(ordered[len(ordered) // 2])), worst=format_seconds(float(ordered[-1]))
        )
    )
    if supply and demand:
        evidence.append(supply_and_demand(supply, demand))
    evidence += _windows(streams)
    return make_finding(cause, share, evidence, figures=figures, confidence=confidence, is_open=True), facts


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


def _distances(period: StepPeriod | None, count: int, workers: int | None) -> Iterator[Text]:
    if period is None:
        yield Text(
            "{count} slow batches are reported, at distances that have no common measure",
            "报告了 {count} 个慢 batch，间隔没有规律",
        ).filled(count=count)
        return
    if period.kept == 1:
        said = Text(
            "all {count} slow batches reported are {period} apart (or a multiple of it): one phenomenon, whatever they "
            "are called",
            "报告的 {count} 个慢 batch 彼此都相隔 {period}（或其整数倍）：不管各自叫什么名字，都是同一个现象",
        )
    else:
        said = Text(
            "{kept} of the {count} slow batches reported are {period} apart",
            "报告的 {count} 个慢 batch 中，{kept} 相隔 {period}",
        )
    yield said.filled(kept=format_share(period.kept), count=count, period=period.steps)
    if workers == period.steps:
        yield Text(
            "that is num_workers={workers}: each worker makes a whole batch and they are delivered in order, so the "
            "loop gets {fast} at once and waits for the next round",
            "这正是 num_workers={workers}：每个 worker 各做一个完整的 batch 并按序交付，于是一下子来 {fast} 个，然后等"
            "下一轮",
        ).filled(workers=workers, fast=workers - 1)


def _windows(streams: LogStreams) -> Iterator[Text]:
    """Yield what a watcher's windows say, where one batch holds nearly all the waiting."""
    if "recent" not in streams.watched:
        return
    counts, means, worst = (streams.watched["recent"].column(name) for name in ("step", "wait_mean_s", "wait_s"))
    windows = list(zip(counts, means, worst, strict=True))
    telling = [one for one in windows if one[2] > 0.9 * one[0] * one[1]]
    if telling:
        count, mean_s, worst_s = telling[0]
        yield Text(
            "all waiting sits in single batches: {count} x {mean} = {total} in a window, of which one batch is {worst} "
            "({like} of {windows:window(s)} like that); the short ones are finished batches being picked up, not a "
            "worker's time",
            "等待全部集中在个别 batch 上：某个窗口 {count} × {mean} = {total}，其中一个 batch 就占 {worst}（"
            "{windows} 个窗口中有 {like} 个如此）；其余很短的时间只是取走已做好的 batch，并不是 worker 的耗时",
        ).filled(
            count=int(count),
            mean=format_seconds(mean_s),
            total=format_seconds(count * mean_s),
            worst=format_seconds(worst_s),
            like=len(telling),
            windows=len(windows),
        )


def epoch_fact(per_epoch: int, steps_per_s: float, share: float) -> Text:
    """Return how long an epoch takes, and how much of it is lost."""
    return Text(
        "an epoch of {steps:step(s)} takes {epoch} at this rate, of which {lost} is lost (estimate: steps / rate, "
        "times the shares found)",
        "按此速度，一个 {steps} 步的 epoch 需要 {epoch}，其中损失 {lost}（估计：步数 / 速率 × 各项占比之和）",
    ).filled(
        steps=per_epoch,
        epoch=format_seconds(per_epoch / steps_per_s),
        lost=format_seconds(share * per_epoch / steps_per_s),
    )
