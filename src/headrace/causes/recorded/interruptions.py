"""What a loop did besides training: checkpoints, evaluation, logging, collections, copies, starts of epochs. Pure.

These are timed as such, so there is nothing to guess; what is to be decided is whether they cost enough to be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.model import (
    Activity,
    Cause,
    Confidence,
    EventKind,
    Finding,
    Text,
    copied_ns,
    format_bytes,
    format_seconds,
    format_share,
    is_copy_timed,
)

from ..remedies import make_finding
from ..steps import (
    REPORT_FROM,
    REPORT_FROM_ELSE,
    REPORT_ONCE_FROM,
    Cost,
    Span,
    StepPeriod,
    cost_of,
    find_period,
    of_weight,
)
from .estimates import estimate_async_checkpoint, estimate_figures, estimate_text
from .processes import ends_of, starts_of
from .trainer import CAUSE_OF, Label, LoaderWaits, Trainer, coverage, outermost

_KIND_OF = {
    Activity.CHECKPOINT: EventKind.CHECKPOINT,
    Activity.EVALUATION: EventKind.EVALUATION,  # a framework's
    Activity.LOGGING: EventKind.LOGGING,
}
_UNKNOWN_FROM = 0.10  # of the time: what slow steps without a cause must cost to be told
_FEWEST_COLLECTIONS = 4  # long ones: every program has one or two of them after its imports
_SOME = 0.1  # of the time: less than that does not change what is said
_WARM_UP = 3  # steps: compilation, autotuning, caches
_LEAST_S = 0.05
_ONE = re.compile(r"^(1 (?:garbage )?(?:save|evaluation|write|collection))s")
_GUESSED_FROM = 0.5  # of a loss: what is known by its place only, from here on


@dataclass(frozen=True, kw_only=True)
class Interruption(Cost):
    """Time that one thing beside training took."""

    cause: Cause
    num_heavy: int  # of them, those that carry the loss
    period: StepPeriod | None  # in steps
    calls: tuple[str, ...] = ()  # which calls, the longest in sum first; of several, how long each took
    typical_bytes: int = 0  # that one wrote; 0: not known
    copies: CopyTimes | None = None  # to the device
    untimed_s: float = 0.0  # right before and after the calls of a checkpoint


def interruption_findings(trainer: Trainer) -> Iterator[Finding]:
    """Yield what held the loop up beside data, as far as it is worth telling."""
    train_s = trainer.train_s
    for loader in trainer.loaders:
        starts = _find_epoch_starts(trainer, loader)
        if starts is not None and is_worth_telling(Cause.EPOCH_START, starts.count, starts.lost_s / train_s):
            yield _counted(Cause.EPOCH_START, starts, _epoch_start_evidence(starts), train_s)
    for interruption in _find_interruptions(trainer):
        share = interruption.lost_s / train_s
        if is_worth_telling(interruption.cause, interruption.num_heavy, share):
            yield _interruption_finding(interruption, share, train_s)
    if trainer.loaders:
        slow = _find_slow_steps(max(trainer.loaders, key=lambda one: len(one.batch)))
        if slow is not None and slow.count >= 2 and slow.lost_s >= _UNKNOWN_FROM * train_s:
            yield _counted(Cause.UNKNOWN, slow, _slow_step_evidence(slow), train_s)


def _counted(cause: Cause, cost: Cost, evidence: Iterable[Text], train_s: float) -> Finding:
    return make_finding(cause, cost.lost_s / train_s, evidence, figures={"count": float(cost.count)})


def _find_interruptions(trainer: Trainer) -> Iterator[Interruption]:
    """Yield what took time beside training, however little."""
    for activity, cause in CAUSE_OF.items():
        lost_s = trainer.seconds(activity)
        spans = [span for span in outermost(activity, trainer.spans) if span.start >= trainer.train_start_ns]
        if lost_s <= 0 or not spans:
            continue
        lengths = _lengths_s(activity, spans, trainer)
        yield Interruption(
            cause=cause,
            lost_s=lost_s,
            count=len(spans),
            num_heavy=int(of_weight(lengths).sum()),
            typical_s=float(np.median(lengths)),
            worst_s=float(lengths.max()),
            period=_period(trainer, [span.start for span, length in zip(spans, lengths, strict=True) if length > 1e-3]),
            calls=_calls(trainer, activity),
            typical_bytes=_typical_bytes(trainer) if activity is Activity.CHECKPOINT else 0,
            copies=_read_copies(trainer) if activity is Activity.H2D else None,
            untimed_s=min(lost_s, trainer.saves.untimed_s) if activity is Activity.CHECKPOINT else 0.0,
        )


def _lengths_s(activity: Activity, spans: Sequence[Span[Label]], trainer: Trainer) -> NDArray[np.float64]:
    """Return how long each took, without what shows through it."""
    starts, ends = (np.array([getattr(span, end) for span in spans], np.int64) for end in ("start", "end"))
    others = [span for span in trainer.spans if span.shows_through and span.label[0] is not activity]
    return np.asarray((ends - starts - coverage(others).between(starts, ends)) / 1e9)


def is_worth_telling(cause: Cause, count: int, share: float) -> bool:
    """Whether a share of the time is a finding: every healthy training saves and evaluates now and then.

    >>> is_worth_telling(Cause.CHECKPOINT, 5, 0.06), is_worth_telling(Cause.CHECKPOINT, 1, 0.06)
    (True, False)
    """
    if cause is Cause.GC and count < _FEWEST_COLLECTIONS:
        return False
    least = REPORT_FROM.get(cause, REPORT_FROM_ELSE)
    return share >= (max(least, REPORT_ONCE_FROM) if count == 1 else least)


def _period(trainer: Trainer, starts_ns: list[int]) -> StepPeriod | None:
    """Return at which distance in steps it comes, within the epochs of the loader that trains."""
    if not trainer.loaders or len(starts_ns) < 3:
        return None
    loader = max(trainer.loaders, key=lambda one: len(one.batch))
    places = np.searchsorted(loader.start_ns, np.array(starts_ns)) - 1
    places = np.unique(places[places >= 0])
    epochs = loader.epoch[places]
    return find_period([loader.batch[places[epochs == one]].astype(float).tolist() for one in np.unique(epochs)])


def _typical_bytes(trainer: Trainer) -> int:
    sizes = trainer.process.of(EventKind.CHECKPOINT)["value"]
    known = sizes[sizes > 0]
    return int(np.median(known)) if len(known) else 0


def _calls(trainer: Trainer, activity: Activity) -> tuple[str, ...]:
    kind = _KIND_OF.get(activity)
    if kind is None:
        return ()
    sums: dict[str, int] = {}
    events = trainer.process.of(kind, thread=trainer.thread)
    events = events[starts_of(events) >= trainer.train_start_ns]
    for arg, duration in zip(events["arg"].tolist(), events["duration_ns"].tolist(), strict=True):
        name = trainer.process.names.get(arg, "")
        sums[name] = sums.get(name, 0) + duration
    names = [name for name in sorted(sums, key=lambda one: -sums[one]) if name]
    if len(names) < 2:
        return tuple(names)
    return tuple(f"{name} {format_seconds(sums[name] / 1e9)}" for name in names)


@dataclass(frozen=True, kw_only=True)
class CopyTimes:
    """What the copies of a training took, in sum."""

    host_s: float  # in the calls
    copied_s: float  # of that, as far as is known
    untimed_s: float  # of what was copied: by the host's clock alone

    @property
    def waited_s(self) -> float:
        """Return how long the calls waited for the device before they copied."""
        return self.host_s - self.copied_s

    @property
    def is_bound(self) -> bool:
        """Whether what is said of the copies is an upper bound."""
        return self.untimed_s > _SOME * self.copied_s


def _read_copies(trainer: Trainer) -> CopyTimes:
    """Return what the copies of the thread that trains took."""
    events = trainer.process.of(EventKind.H2D, thread=trainer.thread)
    hidden = coverage([span for span in trainer.spans if span.is_opaque])
    is_outside = hidden.between(starts_of(events), ends_of(events)) == 0  # an evaluation's are evaluation
    events = events[is_outside & (starts_of(events) >= trainer.train_start_ns)]
    host_ns = copy_ns = untimed_ns = 0
    for duration, arg in zip(events["duration_ns"].tolist(), events["arg"].tolist(), strict=True):
        host_ns += duration
        copy_ns += copied_ns(duration, arg)
        untimed_ns += 0 if is_copy_timed(duration, arg) else duration
    return CopyTimes(host_s=host_ns / 1e9, copied_s=copy_ns / 1e9, untimed_s=untimed_ns / 1e9)


def _copy_evidence(copies: CopyTimes) -> Iterator[Text]:
    """Yield what is to be said of the host's time in copies beside the copies themselves."""
    if copies.waited_s > _SOME * copies.copied_s:
        yield Text(
            "the calls held the host up for {host} in all; in {waited} of that they waited for what the device had "
            "yet to compute, which is no copy and not counted here",
            "这些调用共让主机停了 {host}，其中 {waited} 是在等设备算完手头的任务：那不是拷贝，不计在内",
        ).filled(host=format_seconds(copies.host_s), waited=format_seconds(copies.waited_s))
    if copies.is_bound:
        yield Text(
            "an upper bound: for {share} of that time no CUDA events tell the copy from the wait before it, and a "
            "copy that blocks first waits for what the device has yet to compute",
            "这是上限：其中 {share} 的时间没有 CUDA 事件可把拷贝与之前的等待分开，而阻塞的拷贝会先等设备算完手头的任务",
        ).filled(share=format_share(copies.untimed_s / copies.copied_s))


@dataclass(frozen=True, kw_only=True)
class EpochStarts(Cost):
    """The starts of a loader's epochs but the first: that one belongs to the start of the run."""

    iter_s: float  # of it, in `iter(loader)` itself and in ending the epoch before: starting and stopping workers
    is_persistent: bool


def _find_epoch_starts(trainer: Trainer, loader: LoaderWaits) -> EpochStarts | None:
    """Return what the starts cost; None where there is one epoch."""
    epochs = trainer.process.of(EventKind.EPOCH)
    epochs = epochs[[trainer.process.names.get(int(arg), "loader") == loader.name for arg in epochs["arg"]]]
    first = np.flatnonzero(loader.batch == 0)[1:]
    if not len(first):
        return None
    usual_s = float(np.median(loader.wait_s[loader.batch > 0])) if (loader.batch > 0).any() else 0.0
    wait_s = np.maximum(0.0, loader.wait_s[first] - usual_s)
    places = np.searchsorted(epochs["start_ns"], loader.start_ns[first], side="right") - 1
    iter_s = np.where(places >= 0, epochs["duration_ns"][places.clip(0)] / 1e9, 0.0) if len(epochs) else 0 * wait_s
    if len(loader.end_s) >= len(iter_s):
        iter_s = iter_s + loader.end_s[: len(iter_s)]
    return EpochStarts(
        **cost_of(wait_s + iter_s),
        iter_s=float(iter_s.sum()),
        is_persistent=loader.settings.persistent_workers,
    )


@dataclass(frozen=True, kw_only=True)
class SlowSteps(Cost):
    """Slow steps without a cause."""

    steps: tuple[int, ...]


def _find_slow_steps(loader: LoaderWaits) -> SlowSteps | None:
    """Return the steps that took more than three times the usual, their waits and interruptions left out."""
    known = np.isfinite(loader.step_s)
    known[:_WARM_UP] = False
    if known.sum() < 8:
        return None
    usual_s = float(np.median(loader.step_s[known]))
    excess = np.where(known, loader.step_s - usual_s, 0.0)
    chosen = np.flatnonzero(excess >= max(2 * usual_s, _LEAST_S))
    if not len(chosen):
        return None
    return SlowSteps(**cost_of(excess[chosen]), steps=tuple(int(step) for step in loader.batch[chosen[:5]]))


_WHAT = {
    Cause.CHECKPOINT: Text(
        "{count} saves ({calls}) took {lost} in all, {typical} each ({worst} at worst), and the loop stood still for "
        "them",
        "{count} 次保存（{calls}）共用 {lost}，每次约 {typical}（最长 {worst}），期间训练停住",
    ),
    Cause.EVALUATION: Text(
        "{count} evaluations ({calls}) took {lost} in all, {typical} each ({worst} at worst)",
        "{count} 次评估（{calls}）共用 {lost}，每次约 {typical}（最长 {worst}）",
    ),
    Cause.LOGGING: Text(
        "{count} writes ({calls}) took {lost} in all, {typical} each ({worst} at worst), in the training loop itself",
        "{count} 次写日志（{calls}）共用 {lost}，每次约 {typical}（最长 {worst}），都在训练循环里",
    ),
    Cause.GC: Text(
        "{count} garbage collections took {lost} in all, {typical} each ({worst} at worst)",
        "{count} 次垃圾回收共用 {lost}，每次约 {typical}（最长 {worst}）",
    ),
    Cause.H2D_COPY: Text(
        "{count} copies to the device took {lost} in all, {typical} each ({worst} at worst), and the loop stood still "
        "for them",
        "{count} 次拷贝到设备共用 {lost}，每次约 {typical}（最长 {worst}），期间训练停住",
    ),
}
_BY_MODE = Text("from `eval()` to `train()`", "从 `eval()` 到 `train()`")


def _interruption_evidence(found: Interruption) -> Iterator[Text]:
    """Yield the sentences that carry something beside training."""
    what = _WHAT[found.cause]
    calls = ", ".join(found.calls[:3]) or "-"
    named = Text(calls, calls) if found.calls or found.cause is not Cause.EVALUATION else _BY_MODE
    said = Text(what.en.replace("{calls}", named.en), what.zh.replace("{calls}", named.zh)).filled(**found.blanks)
    if found.count == 1:
        said = Text(_ONE.sub(r"\1", said.en).replace("1 copies", "1 copy", 1), said.zh)
    yield said
    if found.typical_bytes and found.typical_s > 0:
        yield Text("each writes {size}, {rate}/s", "每次写入 {size}，速度 {rate}/s").filled(
            size=format_bytes(found.typical_bytes), rate=format_bytes(int(found.typical_bytes / found.typical_s))
        )
    if found.untimed_s >= 0.05 * found.lost_s:
        yield Text(
            "{untimed} of that lie right before and after these calls, and hardly in any other step: nothing is timed "
            "there, and it is taken for what goes with a save (gathering the state; opening, writing, closing, "
            "uploading the file)",
            "其中 {untimed} 紧挨在这些调用前后，其他步几乎没有这样的停顿：这段时间没有被计时，视为保存的一部分（"
            "收集状态，打开、写入、关闭、上传文件）",
        ).filled(untimed=format_seconds(found.untimed_s))
    if found.copies is not None:
        yield from _copy_evidence(found.copies)
    if found.period is not None:
        yield Text("they come every {period} steps", "每 {period} 步一次").filled(period=found.period.steps)


def _epoch_start_evidence(starts: EpochStarts) -> Iterator[Text]:
    """Yield the sentences that carry slow starts of epochs."""
    yield Text(
        "the starts of {count} epochs cost {lost}, {typical} each ({worst} at worst), of which {iter} in stopping "
        "and starting workers (`iter(loader)`), the rest in waiting for the first batch",
        "{count} 个 epoch 的开头共损失 {lost}，每次约 {typical}（最长 {worst}），其中 {iter} 用于停止和启动 "
        "worker（`iter(loader)`），其余在等第一个 batch",
    ).filled(iter=format_seconds(starts.iter_s), **starts.blanks)
    if not starts.is_persistent:
        yield Text(
            "persistent_workers is off: each epoch starts its workers anew",
            "persistent_workers 未开启：每个 epoch 都重新启动 worker",
        )


def _slow_step_evidence(slow: SlowSteps) -> Iterator[Text]:
    """Yield the sentences that carry slow steps without a cause."""
    yield Text(
        "{count} slow steps ({where}) cost {lost} in all, {typical} each ({worst} at worst)",
        "{count} 个慢步（{where}）共损失 {lost}，每次约 {typical}（最长 {worst}）",
    ).filled(where=", ".join(map(str, slow.steps)) + (" …" if slow.count > len(slow.steps) else ""), **slow.blanks)
    yield Text(
        "nothing that is timed happened there: no wait for data, no save, no evaluation, no log, no collection",
        "当时没有发生任何被计时的事：没有等数据、保存、评估、写日志或垃圾回收",
    )


def _interruption_finding(found: Interruption, share: float, train_s: float) -> Finding:
    """Return what else the loop stood still for."""
    confidence = Confidence.LIKELY if found.untimed_s > _GUESSED_FROM * found.lost_s else Confidence.CERTAIN
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
    known: list[Text] = []
    if found.cause is Cause.CHECKPOINT and (estimate := estimate_async_checkpoint(found.lost_s, train_s)) is not None:
        figures |= estimate_figures([estimate])
        known = [estimate_text(estimate)]
    finding = make_finding(found.cause, share, _interruption_evidence(found), figures=figures, confidence=confidence)
    return replace(finding, fix=(*known, *finding.fix))
