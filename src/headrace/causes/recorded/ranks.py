"""What sets the training processes of a run apart: which rank holds the others up, and which one ended first. Pure.

Ranks that train together take the same time for a step. The slow one spends it on its own work; the others spend the
difference where they wait for it: in backward, where gradients are summed up, in a barrier, or for the device.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from statistics import median

from headrace.model import Activity, EventKind, Text, format_seconds, format_share

from .launchers import RootCause
from .processes import ends_of, starts_of
from .trainer import Trainer

_MEETING = (Activity.BACKWARD, Activity.SYNC, Activity.RANKS)  # where ranks wait for each other
_APART_FROM = 0.1  # of the training's time
_TOGETHER = 1.25  # times as long as the other at most: ranks that train together
_MOST_SHOWN = 8
_MOST_LETTERS = 160
# What the others raise when one of them is gone: not the cause, but its echo.
_ECHO = re.compile(
    r"connection (closed|reset|refused)|broken pipe|remote process exited|socket timeout|DistNetworkError|NCCL",
    re.IGNORECASE,
)
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


def rank_facts(chosen: Trainer, trainers: Sequence[Trainer]) -> list[Text]:
    """Return which process the findings are of, where the time of each went, and which of them holds up the others."""
    if len(trainers) < 2:
        return []
    said = [
        Text(
            "{count} training processes; the findings and the table are those of {which}, which lost most",
            "共 {count} 个训练进程；以上结论与时间表属于损失最多的 {which}",
        ).filled(count=len(trainers), which=_name(chosen))
    ]
    ordered = sorted(trainers, key=lambda one: (one.rank if one.rank is not None else 0, one.process.pid))
    if len(ordered) <= _MOST_SHOWN:
        said += [_shares(trainer) for trainer in ordered if trainer.train_s > 0]
    else:
        by_wait = sorted((one for one in ordered if one.train_s > 0), key=lambda one: one.share(Activity.WAIT))
        said += [_shares(trainer) for trainer in (by_wait[0], by_wait[-1])]
    if (slow := _held_up_by(ordered)) is not None:
        said.append(slow)
    return said


def _name(trainer: Trainer) -> str:
    if trainer.rank is None:
        return f"pid {trainer.process.pid}"
    return f"rank {trainer.rank} (pid {trainer.process.pid})"


def _shares(trainer: Trainer) -> Text:
    return Text(
        "{which}: waiting for data {wait}, forward {forward}, backward and waiting for other ranks or the device "
        "{meeting}",
        "{which}：等数据 {wait}，前向 {forward}，反向及等其他 rank 或设备 {meeting}",
    ).filled(
        which=_name(trainer),
        wait=format_share(trainer.share(Activity.WAIT)),
        forward=format_share(trainer.share(Activity.FORWARD)),
        meeting=format_share(trainer.share(*_MEETING)),
    )


def _held_up_by(trainers: Sequence[Trainer]) -> Text | None:
    """Say which rank the others wait for; nothing where all have about the same to do."""
    alive = [one for one in trainers if one.train_s > 0]
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
    said = Text(
        "{which} holds the others up: {what} takes {own} of its time, of the others' {usual}; they spend {waiting} "
        "of theirs in backward or waiting, it {meeting}",
        "{which} 拖慢了其他 rank：它有 {own} 的时间用于{what}，其他 rank 只有 {usual}；其他 rank 有 {waiting} "
        "的时间在反向或等待，它只有 {meeting}",
    )
    what = _OWN[most]
    said = Text(said.en.replace("{what}", what.en), said.zh.replace("{what}", what.zh))
    return said.filled(
        which=_name(slow),
        own=format_share(slow.share(most)),
        usual=format_share(median(one.share(most) for one in others)),
        waiting=format_share(1 - usual),
        meeting=format_share(1 - own[slow.process.pid]),
    )


def end_facts(trainers: Sequence[Trainer], launcher: RootCause | None, exit_code: int | None) -> list[Text]:
    """Return which training process ended a run that failed, and by what; nothing where that is not known."""
    if not exit_code:
        return []
    if launcher is not None and launcher.exit_code < 0:
        return [_killed(launcher, next((one for one in trainers if one.process.pid == launcher.pid), None))]
    raised = {one.process.pid: _raised(one) for one in trainers}
    own = [one for one in trainers if (found := raised[one.process.pid]) and not _ECHO.search(found[1])]
    if own:
        first = min(own, key=lambda one: (raised[one.process.pid] or (0, ""))[0])
        at_ns, text = raised[first.process.pid] or (0, "")
        if len(trainers) == 1:
            said = Text(
                "it ended after {batches} batches and {after} with {text}",
                "训练在取过 {batches} 个 batch、运行 {after} 后结束：{text}",
            )
        else:
            said = Text(
                "{which} ended first, after {batches} batches and {after}: {text}",
                "{which} 最先结束（取过 {batches} 个 batch，运行 {after} 后）：{text}",
            )
        after = format_seconds((at_ns - first.start_ns) / 1e9)
        return [said.filled(which=_name(first), batches=_num_batches(first), after=after, text=text)]
    silent = [one for one in trainers if raised[one.process.pid] is None]
    if len(silent) == len(trainers):
        return []
    return [
        Text(
            "{which} was gone after {batches} batches without an exception, last seen {after} after the start: killed, "
            "or ended from outside Python; what the other ranks raised followed from that",
            "{which} 在取过 {batches} 个 batch 后消失，没有抛出异常，最后一次记录在启动 {after} 后：可能被杀死，或在 "
            "Python 之外退出；其他 rank 的异常由此引起",
        ).filled(
            which=_name(one),
            batches=_num_batches(one),
            after=format_seconds((int(ends_of(one.process.events).max()) - one.start_ns) / 1e9),
        )
        for one in silent
    ]


def _killed(launcher: RootCause, trainer: Trainer | None) -> Text:
    try:
        name = signal.Signals(-launcher.exit_code).name
    except ValueError:
        name = f"signal {-launcher.exit_code}"
    return Text(
        "rank {rank} (pid {pid}) ended first, by {name}, as its launcher says; {batches} batches came before",
        "rank {rank} (pid {pid}) 最先结束：启动器报告它因 {name} 退出，此前取过 {batches} 个 batch",
    ).filled(
        rank=launcher.rank,
        pid=launcher.pid,
        name=name,
        batches=_num_batches(trainer) if trainer is not None else 0,
    )


def _raised(trainer: Trainer) -> tuple[int, str] | None:
    """Return when a process raised what nobody caught, and the exception's own line."""
    events = trainer.process.of(EventKind.EXCEPTION)
    if not len(events):
        return None
    lines = trainer.process.names.get(int(events["arg"][0]), "").strip().splitlines()
    text = next((line for line in reversed(lines) if re.match(r"[\w.]+(: |$)", line)), lines[-1] if lines else "?")
    return int(starts_of(events)[0]), text[:_MOST_LETTERS]


def _num_batches(trainer: Trainer) -> int:
    waits = trainer.process.of(EventKind.WAIT)
    return int((waits["value"] >= 0).sum())
