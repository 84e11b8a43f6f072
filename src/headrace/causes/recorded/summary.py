"""What is told of a run beside its findings: the table of times, facts, figures, what could not be seen. Pure."""

from __future__ import annotations

from dataclasses import replace

from headrace.model import Activity, Text, TimeRow, format_seconds, format_share, three_digits

from .ceiling import Ceiling
from .ceiling_wording import ceiling_facts
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


def facts_of(trainer: Trainer, data: DataVerdict | None, ceiling: Ceiling | None) -> list[Text]:
    """Return what a run is like, in sentences: its steps, what shares are of, what it waited."""
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
                share=format_share(trainer.share(Activity.WAIT))
            )
        )
    return facts


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
