"""What the waits for data say: a pool that is too slow, workers in lock-step, or single late batches."""

from collections.abc import Mapping

import numpy as np

from headrace.model import Cause, Confidence, Text, format_seconds, format_share, three_digits

from ..logs import Series
from .periods import LostTime, StepPeriod, by_segment, by_step, find_period, find_rhythm, judge_data_period
from .stalls import Cost, Flags, Floats, Stalls, of_weight

# The loader is too slow on the whole, not late now and then.
SUPPLY_CAUSES = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP}
BOUND_FROM = 0.10  # of the time: from here on a run waits for data rather than now and then
WAITS_FROM = 0.05  # what waits must cost to be told, where few of them carry it


def long_wait_s(waits_s: Floats, step_s: float) -> float:
    """Return from where on a wait is a long one, among the waits of steps that take `step_s` themselves."""
    # From the lower quarter: with two workers in lock-step half of all steps wait long.
    usual_s = float(np.quantile(waits_s, 0.25)) if len(waits_s) else 0.0
    return max(5 * usual_s, 0.3 * step_s, 0.02)


def judge_waits(
    series: Series, stalls: Stalls, free: Flags, settings: Mapping[str, int]
) -> tuple[LostTime | None, float, Flags]:
    """Judge the waits of the records that nothing else explains (`free`).

    Returns what they cost, or None where that is too little; their share of the time; and the slow records whose excess
    is their wait.
    """
    waits = np.where(free, np.nan_to_num(series.wait_s), 0.0)
    wall_s, total_s = float(series.wall_s[free].sum()), float(waits.sum())
    share = total_s / wall_s if wall_s > 0 else 0.0
    own = waits[free] / series.span[free]
    work_s = np.maximum(series.wall_s[free] - waits[free], 0) / series.span[free]
    step_s = float(np.median(work_s)) if len(work_s) else 0.0
    is_slow = free & (waits / series.span >= long_wait_s(own, step_s))
    fraction = float(is_slow.sum() / max(1, free.sum()))
    explains = free & stalls.is_stall & (waits >= 0.5 * stalls.excess_s)
    cause, confidence, period = _cause(series, waits, is_slow, share, fraction, settings)
    if cause is None:
        return None, share, explains
    loss = LostTime(
        cause=cause,
        lost_s=total_s,
        confidence=confidence,
        count=int(is_slow.sum()),
        typical_s=float(np.median(waits[is_slow])) if is_slow.any() else 0.0,
        worst_s=float((waits / series.span).max()),
        period=period,
        steps=series.some_steps(np.flatnonzero(is_slow)),
        because="wait" if cause is not Cause.UNKNOWN else "data at a distance" if period else "few data",
        median_wait_s=float(np.median(own)),
        supply=(float(series.span[free].sum()) / wall_s if wall_s > 0 else 0.0, 1 / step_s if step_s > 0 else 0.0),
    )
    return loss, share, explains


def _cause(
    series: Series, waits: Floats, is_slow: Flags, share: float, fraction: float, settings: Mapping[str, int]
) -> tuple[Cause | None, Confidence, StepPeriod | None]:
    is_uneven = waits[is_slow].sum() >= 0.7 * waits.sum() > 0 and fraction <= 0.6
    if share < WAITS_FROM or (share < BOUND_FROM and not is_uneven):
        return None, Confidence.CERTAIN, None
    if is_uneven and series.median_span <= 1:
        period = find_period(by_segment(series, np.flatnonzero(is_slow & of_weight(np.where(is_slow, waits, 0.0)))))
        if period is None and fraction > 0.05:
            period = find_rhythm(by_step(series, waits))
        if period is not None:
            judged = judge_data_period(period, settings)
            return judged.cause, judged.confidence, period
    # A record of many steps is late if one of them is; between late ones the loader has kept up.
    if is_uneven and fraction <= (0.12 if series.median_span <= 1 else 0.5):
        enough = is_slow.sum() >= 3  # two late batches have no distance that could be regular or not
        if not enough and share < BOUND_FROM:
            return None, Confidence.CERTAIN, None
        return Cause.STRAGGLER_SAMPLE if enough else Cause.UNKNOWN, Confidence.POSSIBLE, None
    if share < BOUND_FROM:
        return None, Confidence.CERTAIN, None
    if series.median_span <= 1:  # with few workers most slots wait, but each in its own way
        period = find_rhythm(by_step(series, waits))
        if period is not None and period.steps == settings.get("num_workers"):
            return Cause.BATCH_LOCKSTEP, Confidence.LIKELY, period
    return Cause.LOADER_THROUGHPUT, Confidence.LIKELY, None


# What no log can decide about slow batches at equal distances.
LOCKSTEP_LIMIT = Text(
    "the log cannot decide whether the whole pool is too slow or one worker holds up the others: both look the same "
    "from the training loop",
    "仅凭日志无法判断是整个 worker 池太慢，还是某一个 worker 拖住了其余的：从训练循环看，两者一模一样",
)


def waits_evidence(share: float, median_s: float, worst_s: float) -> Text:
    """Return how much a loop waits for data, in one sentence."""
    return Text(
        "the loop waits for data for {share} of the time: {median} typically, {worst} at worst",
        "训练循环有 {share} 的时间在等数据：通常 {median}，最长 {worst}",
    ).filled(share=format_share(share), median=format_seconds(median_s), worst=format_seconds(worst_s))


def supply_and_demand(supply_per_s: float, demand_per_s: float) -> Text:
    """Return the deficit in one sentence."""
    return Text(
        "{supply} batches/s supplied against {demand} demanded: {factor} times too few",
        "供给 {supply} batch/s，需求 {demand} batch/s：相差 {factor} 倍",
    ).filled(
        supply=three_digits(supply_per_s),
        demand=three_digits(demand_per_s),
        factor=three_digits(demand_per_s / supply_per_s) if supply_per_s > 0 else "?",
    )


def lockstep_rounds(period: StepPeriod | None, cost: Cost, workers: int | None) -> list[Text]:
    """Return what slow steps at equal distances have to do with the number of workers."""
    if period is None:
        return []
    rounds = Text(
        "a long wait every {period} steps, {fast:fast step(s)} between: {count} of them, {each}",
        "每 {period} 步出现一次长等待，中间 {fast} 步很快：共 {count} 次，{each}",
    )
    if workers == period.steps:
        meaning = Text(
            "that distance is num_workers={workers}: each worker makes a whole batch, and they are delivered in order, "
            "one round after the other",
            "这个间隔正是 num_workers={workers}：每个 worker 各做一个完整的 batch，按顺序一轮一轮地交付",
        )
    else:
        meaning = Text(
            "the log does not tell num_workers; it is this cause if that is {period}. Gradient accumulation or work "
            "every {period} steps would look alike",
            "日志没有给出 num_workers；若它等于 {period}，就是这个原因。梯度累积或每 {period} 步做一次的其他"
            "工作看起来也一样",
        )
    steps = period.steps
    return [rounds.filled(period=steps, fast=steps - 1, **cost.blanks), meaning.filled(workers=workers, period=steps)]
