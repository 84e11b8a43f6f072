"""What is told of a run beside its findings: the table of times, its steps, its ranks, what could not be seen. Pure.

Ranks that train together take the same time for a step. The slow one spends it on its own work; the others spend the
difference where they wait for it: in backward, where gradients are summed up, in a barrier, or for the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from headrace.model import Activity, Text, TimeRow, format_seconds, format_share, three_digits

from .ceiling import Ceiling, ceiling_facts
from .data_waits import DataVerdict
from .trainer import Trainer

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
        yield Text(
            "{steps} steps at {rate} a second; a step without its wait takes {step} typically",
            "{steps} 步，每秒 {rate} 步；不算等待，一步通常 {step}",
        ).filled(steps=len(data.wait_s), rate=three_digits(data.supply_per_s), step=format_seconds(data.step_s))
    yield Text(
        "shares are of the {train} of the training itself; before its first epoch, {startup} went into starting",
        "占比以训练本身的 {train} 为准；第一个 epoch 之前，启动用了 {startup}",
    ).filled(
        train=format_seconds(trainer.train_s), startup=format_seconds((trainer.train_start_ns - trainer.start_ns) / 1e9)
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


_MEETING = (Activity.BACKWARD, Activity.SYNC, Activity.RANKS)  # where ranks wait for each other
_APART_FROM = 0.1  # of the training's time
_TOGETHER = 1.25  # times as long as the other at most: ranks that train together
_MOST_SHOWN = 8
_OWN = {
    Activity.EPOCH_START: Text("starting epochs", "epoch 开头"),
    Activity.WAIT: Text("waiting for data", "等数据"),
    Activity.H2D: Text("copies to the device", "拷贝到设备"),
    Activity.FORWARD: Text("forward", "前向"),
    Activity.OPTIMIZER: Text("the optimizer", "优化器"),
    Activity.CHECKPOINT: Text("checkpoints", "检查点"),
    Activity.EVALUATION: Text("evaluation", "评估"),
    Activity.LOGGING: Text("logging", "写日志"),
    Activity.GC: Text("garbage collection", "垃圾回收"),
    Activity.OTHER: Text("code of the loop that is not timed", "循环里未计时的代码"),
}


def rank_facts(chosen: Trainer, trainers: Sequence[Trainer]) -> Iterator[Text]:
    """Yield which process the findings are of, where the time of each went, and which of them holds up the others."""
    if len(trainers) < 2:
        return
    yield Text(
        "{count} training processes; the findings and the table are those of {which}, which lost most",
        "共 {count} 个训练进程；以上结论与时间表属于损失最多的 {which}",
    ).filled(count=len(trainers), which=chosen.title)
    ordered = sorted(trainers, key=lambda one: (one.rank if one.rank is not None else 0, one.process.pid))
    shown = alive = [one for one in ordered if one.train_s > 0]
    if len(ordered) > _MOST_SHOWN:
        by_wait = sorted(alive, key=lambda one: one.share(Activity.WAIT))
        shown = [by_wait[0], by_wait[-1]]
    for trainer in shown:
        yield Text(
            "{which}: waiting for data {wait}, forward {forward}, backward and waiting for other ranks or the device "
            "{meeting}",
            "{which}：等数据 {wait}，前向 {forward}，反向及等其他 rank 或设备 {meeting}",
        ).filled(
            which=trainer.title,
            wait=format_share(trainer.share(Activity.WAIT)),
            forward=format_share(trainer.share(Activity.FORWARD)),
            meeting=format_share(trainer.share(*_MEETING)),
        )
    if (slow := _held_up_by(alive)) is not None:
        yield slow


def _held_up_by(alive: Sequence[Trainer]) -> Text | None:
    """Say which rank the others wait for; nothing where all have about the same to do."""
    lengths = [one.train_s for one in alive]
    if len(alive) < 2 or max(lengths) > _TOGETHER * min(lengths):
        return None  # one of them fell, and the others waited for what did not come
    own = {one.process.pid: 1 - one.share(*_MEETING) for one in alive}
    slow = max(alive, key=lambda one: own[one.process.pid])
    others = [one for one in alive if one is not slow]
    usual = median(own[one.process.pid] for one in others)
    excess = {one: slow.share(one) - median(other.share(one) for other in others) for one in _OWN}
    most = max(excess, key=lambda one: excess[one])
    if min(own[slow.process.pid] - usual, excess[most]) < _APART_FROM:
        return None
    return Text(
        "{which} holds the others up: {what} takes {own} of its time, of the others' {usual}; they spend {waiting} "
        "of theirs in backward or waiting, it {meeting}",
        "{which} 拖慢了其他 rank：它有 {own} 的时间用于{what}，其他 rank 只有 {usual}；其他 rank 有 {waiting} "
        "的时间在反向或等待，它只有 {meeting}",
    ).filled(
        which=slow.title,
        what=_OWN[most],
        own=format_share(slow.share(most)),
        usual=format_share(median(one.share(most) for one in others)),
        waiting=format_share(1 - usual),
        meeting=format_share(1 - own[slow.process.pid]),
    )
