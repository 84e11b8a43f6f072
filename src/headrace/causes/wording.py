"""The evidence of a loss, in sentences with its figures."""

from __future__ import annotations

from headrace.model import Cause, Text, format_seconds, format_share, three_digits

from .steps import Analysis, Loss


def evidence_of(loss: Loss, analysis: Analysis) -> tuple[Text, ...]:
    """Return the sentences that carry a loss, the strongest first."""
    if loss.drift is not None:
        return (_drift(loss),)
    said: list[Text] = []
    workers = analysis.settings.get("num_workers")
    if loss.cause is Cause.BATCH_LOCKSTEP:
        said += lockstep_rounds(loss, workers)
    elif loss.cause is Cause.LOADER_THROUGHPUT:
        said.append(
            Text(
                "the loop waits for data for {share} of the time, in most steps: {median} typically, {worst} at worst",
                "训练循环有 {share} 的时间在等数据，多数步都在等：通常 {median}，最长 {worst}",
            ).filled(
                share=format_share(analysis.share(loss)),
                median=format_seconds(loss.waits.median_s) if loss.waits else "?",
                worst=format_seconds(loss.worst_s),
            )
        )
    else:
        said += _slow_steps(loss)
    if loss.waits is not None:
        said.append(supply_and_demand(loss.waits.supply_per_s, loss.waits.demand_per_s))
    if analysis.humps is not None and loss.cause in {Cause.BATCH_LOCKSTEP, Cause.STRAGGLER_SAMPLE, Cause.UNKNOWN}:
        said.append(
            Text(
                "two kinds of steps and little between: {low}, and {high} for {share} of them",
                "步耗时分成两类，中间几乎没有：{low}，以及占 {share} 的 {high}",
            ).filled(
                low=format_seconds(analysis.humps.low_s),
                high=format_seconds(analysis.humps.high_s),
                share=format_share(analysis.humps.high_share),
            )
        )
    return tuple(said)


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


def lockstep_limit() -> Text:
    """Return what no log can decide about slow batches at equal distances."""
    return Text(
        "the log cannot decide whether the whole pool is too slow or one worker holds up the others: both look the "
        "same from the training loop",
        "仅凭日志无法判断是整个 worker 池太慢，还是某一个 worker 拖住了其余的：从训练循环看，两者一模一样",
    )


def lockstep_rounds(loss: Loss, workers: int | None) -> list[Text]:
    """Return what slow steps at equal distances have to do with the number of workers."""
    said = []
    if loss.period is not None:
        said.append(
            Text(
                "a long wait every {period} steps, {fast} fast steps between: {count} of them, {typical} each ("
                "{worst} at worst)",
                "每 {period} 步出现一次长等待，中间 {fast} 步很快：共 {count} 次，每次约 {typical}（最长 {worst}）",
            ).filled(
                period=loss.period.steps,
                fast=loss.period.steps - 1,
                count=loss.count,
                typical=format_seconds(loss.typical_s),
                worst=format_seconds(loss.worst_s),
            )
        )
        if workers == loss.period.steps:
            said.append(
                Text(
                    "that distance is num_workers={workers}: each worker makes a whole batch, and they are delivered "
                    "in order, one round after the other",
                    "这个间隔正是 num_workers={workers}：每个 worker 各做一个完整的 batch，按顺序一轮一轮地交付",
                ).filled(workers=workers)
            )
        elif workers is not None:
            said.append(
                Text(
                    "the log tells num_workers={workers}, not {period}: check what loader this is",
                    "日志里写的是 num_workers={workers}，不是 {period}：请确认是哪个加载器",
                ).filled(workers=workers, period=loss.period.steps)
            )
        else:
            said.append(
                Text(
                    "the log does not tell num_workers; it is this cause if that is {period}. Gradient accumulation "
                    "or work every {period} steps would look alike",
                    "日志没有给出 num_workers；若它等于 {period}，就是这个原因。梯度累积或每 {period} 步做一次的其他"
                    "工作看起来也一样",
                ).filled(period=loss.period.steps)
            )
    return said


def _slow_steps(loss: Loss) -> list[Text]:
    if loss.because == "bars":
        return [
            Text(
                "{count} evaluations between the training bars took {lost} in all, {typical} each, by their own bars",
                "训练进度条之间有 {count} 次评估，按其自身的进度条共用 {lost}，每次约 {typical}",
            ).filled(count=loss.count, lost=format_seconds(loss.lost_s), typical=format_seconds(loss.typical_s))
        ]
    where = ", ".join(str(step) for step in loss.steps[:5]) + (" …" if loss.count > 5 else "")
    head = Text(
        "{count} slow steps ({where}) cost {lost} in all, {typical} each ({worst} at worst)",
        "{count} 个慢步（{where}）共损失 {lost}，每次约 {typical}（最长 {worst}）",
    ).filled(
        count=loss.count,
        where=where,
        lost=format_seconds(loss.lost_s),
        typical=format_seconds(loss.typical_s),
        worst=format_seconds(loss.worst_s),
    )
    said = [head]
    if loss.period is not None:
        said.append(Text("they come every {period} steps", "每 {period} 步一次").filled(period=loss.period.steps))
    said.append(_WHY.get((loss.cause, loss.because)) or _WHY_ANY.get(loss.because) or _WHY_ANY["no text"])
    return said


_WHY = {
    (Cause.CHECKPOINT, "text"): Text(
        "the log itself says at these steps that a checkpoint is saved", "日志在这些步上写明了正在保存检查点"
    ),
    (Cause.EVALUATION, "text"): Text(
        "the log itself says at these steps that the model is evaluated", "日志在这些步上写明了正在评估模型"
    ),
    (Cause.LOGGING, "text"): Text(
        "the log itself says at these steps that something is uploaded or written", "日志在这些步上写明了正在上传或写入"
    ),
    (Cause.EPOCH_START, "wait"): Text(
        "they are the first steps of epochs, and they wait for their batch",
        "它们是各 epoch 的第一步，时间花在等待 batch 上",
    ),
    (Cause.EPOCH_START, "place"): Text(
        "they are the first steps of epochs; whatever runs between two epochs without a line in the log is counted "
        "here, too",
        "它们是各 epoch 的第一步；两个 epoch 之间没有写进日志的工作也会算在这里",
    ),
    (Cause.STRAGGLER_SAMPLE, "wait"): Text(
        "they wait for their batch, at irregular distances, while the others find theirs ready: single late batches, "
        "not a slow pool",
        "这些步在等 batch，间隔没有规律，而其他步的 batch 早已就绪：是个别 batch 迟到，不是整池太慢",
    ),
}
_WHY_ANY = {
    "interval": Text(
        "the log's own settings name this interval, though no line speaks of it at these steps",
        "日志中的配置写有这个间隔，但这些步附近没有相应的文字",
    ),
    "several intervals": Text(
        "the log's settings name this interval for more than one thing, so it stays open which it is",
        "日志的配置里有不止一项用这个间隔，无法确定是哪一项",
    ),
    "data at a distance": Text(
        "these steps wait for their batch, at a distance that is not num_workers: the end of a shard, of an epoch or "
        "of a "
        "file list would look like this",
        "这些步在等 batch，而间隔不等于 num_workers：分片、epoch 或文件列表的末尾都会是这个样子",
    ),
    "few data": Text(
        "these steps wait for their batch; there are too few of them to see whether they come at equal distances",
        "这些步在等 batch；次数太少，看不出间隔是否有规律",
    ),
    "not data": Text(
        "the log tells the wait for data at these steps, and it is short: the loader is not the reason",
        "日志给出了这些步的数据等待时间，都很短：原因不在加载器",
    ),
    "not the workers": Text(
        "no line in the log says what happened there, and the distance is not num_workers",
        "日志没有说明当时发生了什么，这个间隔也不等于 num_workers",
    ),
    "no text": Text(
        "no line in the log says what happened there; a save or an evaluation is possible and would be a guess",
        "日志没有说明当时发生了什么；可能是保存或评估，但那只是猜测",
    ),
}


def _drift(loss: Loss) -> Text:
    assert loss.drift is not None
    return Text(
        "from step {step} on a step takes {after} where it took {before}, and the log does not say why",
        "从第 {step} 步起，单步耗时从 {before} 变为 {after}，日志没有说明原因",
    ).filled(step=loss.drift.step, after=format_seconds(loss.drift.after_s), before=format_seconds(loss.drift.before_s))
