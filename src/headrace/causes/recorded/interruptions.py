"""What a loop did besides training, where it cost enough: checkpoints, evaluation, logging, copies, … Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.model import (
    Activity,
    Cause,
    Confidence,
    EventKind,
    Finding,
    LoaderRole,
    Text,
    copied_ns,
    format_bytes,
    format_seconds,
    format_share,
    is_copy_timed,
)

from ..remedies import LOOP_MAKES_DATA, HostLoss, advice_on, epoch_start_fixes, make_finding
from ..steps import SLOW_STEPS, SUPPLY_CAUSES, Cost, StepPeriod, cost_of, find_period, of_weight, report_from
from .estimates import Estimate, estimate_async_checkpoint
from .processes import Times, covering, ends_of, seen, starts_of
from .trainer import CAUSE_OF, OWN_WORK, LoaderWaits, Trainer, coverage

_CALLED = (Activity.CHECKPOINT, Activity.EVALUATION, Activity.LOGGING)  # by calls that have names
_UNKNOWN_FROM = 0.10  # of the time: what slow steps without a cause must cost to be told
_FEWEST_COLLECTIONS = 4  # long ones: every program has one or two of them after its imports
_SOME = 0.1  # of the time: less than that does not change what is said
_WARM_UP = 3  # steps: compilation, autotuning, caches
_LEAST_S = 0.05
_GUESSED_FROM = 0.5  # of a loss: what is known by its place only, from here on
OWN_CODE_FROM = 0.3  # of the time: code of the loop that is not timed and may be anything, worth a word from here on
_STALL = 10  # times as long: from here on a step is felt, whatever its share


def interruption_findings(trainer: Trainer) -> Iterator[Finding]:
    """Yield what held the loop up beside data, as far as it is worth telling."""
    for loader in trainer.loaders:
        yield from _epoch_starts(trainer, loader)
    for activity, cause in CAUSE_OF.items():
        yield from _interruptions(trainer, activity, cause)
    if trainer.loaders:
        yield from _slow_steps(max(trainer.loaders, key=lambda one: len(one.batch)), trainer)


def stall_notes(trainer: Trainer, found: Sequence[Finding]) -> Iterator[Text]:
    """Yield what holds single steps up for ten times as long as they take, and costs too little for a finding."""
    loader = max(trainer.loaders, key=lambda one: len(one.batch), default=None)
    told = {one.cause for one in found}
    told |= {Cause.STRAGGLER_SAMPLE} if told & {*SUPPLY_CAUSES, Cause.SHARD_BOUNDARY, Cause.WORKER_HANG} else set()
    if loader is None or not np.isfinite(loader.step_s).any():
        return
    usual_s = float(np.nanmedian(loader.step_s) + np.median(loader.wait_s))
    kinds = [(activity, cause, _spans_of(trainer, activity)[1]) for activity, cause in CAUSE_OF.items()]
    waits = loader.wait_s[loader.batch > 0]
    for activity, cause, lengths in (*kinds, (Activity.WAIT, Cause.STRAGGLER_SAMPLE, waits)):
        long = lengths[lengths >= max((_STALL - 1) * usual_s, _LEAST_S)]
        if cause in told or not len(long) or (cause is Cause.GC and len(long) < _FEWEST_COLLECTIONS):
            continue
        yield Text(
            "one step in {every} takes {times} times as long: {what}, {typical} instead of {usual}, {share} of "
            "the time",
            "每 {every} 步有一步耗时为平常的 {times} 倍：{what} {typical}，平常一步 {usual}，占时间的 {share}",
        ).filled(
            every=round(len(loader.batch) / len(long)),
            times=round(1 + float(np.median(long)) / usual_s),
            what=OWN_WORK[activity],
            typical=format_seconds(float(np.median(long))),
            usual=format_seconds(usual_s),
            share=format_share(trainer.share(activity)),
        )


def own_code_notes(trainer: Trainer) -> Iterator[Text]:
    """Yield what the loop's own code takes between a batch and the forward pass, where the rest of a step is timed."""
    # By its share alone it cannot be told from the work itself, so it is no finding.
    asked, called, *worked = (
        trainer.process.of(kind, thread=trainer.thread)
        for kind in (EventKind.WAIT, EventKind.FORWARD, EventKind.BACKWARD, EventKind.OPTIMIZER)
    )
    if not trainer.is_fed or not len(called) or not all(map(len, worked)):
        return
    came, next_ns = ends_of(asked), np.append(starts_of(asked)[1:], trainer.train_end_ns)
    forward_ns = np.append(starts_of(called), np.iinfo(np.int64).max)[np.searchsorted(starts_of(called), came)]
    came, forward_ns = came[forward_ns < next_ns], forward_ns[forward_ns < next_ns]
    own_s = (forward_ns - came - coverage(trainer.spans).between(came, forward_ns)) / 1e9
    if len(own_s) and own_s.sum() >= OWN_CODE_FROM * trainer.train_s:
        yield Text(
            "between a batch and the forward pass the loop's own code takes {share} of the time, typically {typical} a "
            'step, and nothing of it is timed: `with headrace.phase("name"):` around its parts says which',
            "从拿到 batch 到前向之间，循环自己的代码占时间的 {share}，每步通常 {typical}，都没有计时：用 `with "
            'headrace.phase("名称"):` 包住各段即可看出是哪一段',
        ).filled(share=format_share(own_s.sum() / trainer.train_s), typical=format_seconds(float(np.median(own_s))))


def between_steps_findings(trainer: Trainer) -> Iterator[Finding]:
    """Yield the time between the steps of a loop that no loader feeds, where it is much; only its place is known."""
    share = trainer.share(Activity.BETWEEN_STEPS)
    if trainer.is_fed or share < OWN_CODE_FROM:
        return
    steps = len(trainer.process.of(EventKind.OPTIMIZER, thread=trainer.thread))
    evidence = [
        Text(
            "{between} lie between {steps:optimizer step(s)} and the next forward, where nothing else is timed",
            "{steps} 次优化器更新与其后的前向之间共有 {between}，其间没有其他计时",
        ).filled(between=format_seconds(trainer.seconds(Activity.BETWEEN_STEPS)), steps=steps)
    ]
    asked = trainer.process.of(EventKind.WAIT)
    if len(asked := asked[asked["thread"] != trainer.thread]):  # it prefetches for this one
        gaps = np.array(trainer.covered_by(Activity.BETWEEN_STEPS).stretches, np.int64).reshape(-1, 2).T
        asking = float(covering(asked).between(*gaps).sum()) / float((gaps[1] - gaps[0]).sum())
        evidence.append(
            Text(
                "for {asking} of that time the thread that prefetches waited for the loader itself",
                "其中 {asking} 的时间，预取线程自己也在等加载器",
            ).filled(asking=format_share(asking))
        )
    title = Text("code between steps, or a wait for data", "步与步之间的代码，或等待产生数据的一方")
    yield make_finding(
        Cause.UNKNOWN,
        share,
        evidence,
        figures={"count": float(steps)},
        confidence=Confidence.POSSIBLE,
        title=title,
        measure=(LOOP_MAKES_DATA,),
    )


def _spans_of(trainer: Trainer, activity: Activity) -> tuple[Times, NDArray[np.float64]]:
    """Return when an activity began while training, and how long it took, without what shows through it."""
    own = coverage([span for span in seen(trainer.spans) if span.label[0] is activity])  # nested ones are one
    spans = (
        [span for span in own.stretches if span[0] >= trainer.train_start_ns] if trainer.seconds(activity) > 0 else []
    )
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    others = coverage([span for span in trainer.spans if span.shows_through and span.label[0] is not activity])
    return starts, np.asarray((ends - starts - others.between(starts, ends)) / 1e9)


def _interruptions(trainer: Trainer, activity: Activity, cause: Cause) -> Iterator[Finding]:
    lost_s, train_s = trainer.seconds(activity), trainer.train_s
    starts, lengths = _spans_of(trainer, activity)
    if not len(starts):
        return
    num_heavy = int(of_weight(lengths).sum())  # those that carry the loss
    if lost_s / train_s < report_from(cause, num_heavy) or (cause is Cause.GC and num_heavy < _FEWEST_COLLECTIONS):
        return
    cost = Cost(**cost_of(lengths) | {"lost_s": lost_s})
    evidence = [_said(trainer, cause, cost, _calls(trainer, activity))]
    figures = {"lost_s": lost_s, "count": float(cost.count), "typical_s": cost.typical_s, "worst_s": cost.worst_s}
    known, untimed_s = list[Estimate](), 0.0
    if cause is Cause.CHECKPOINT:
        untimed_s = min(lost_s, trainer.untimed_saves_s)
        evidence += _save_evidence(trainer, cost, untimed_s, figures)
        known = estimate_async_checkpoint(lost_s, train_s)
    elif cause is Cause.H2D_COPY:
        evidence += _copy_evidence(trainer, figures)
    period = _period(trainer, starts[lengths > 1e-3])
    if period is not None:
        evidence.append(Text("they come every {period} steps", "每 {period} 步一次").filled(period=period.steps))
        figures["period_steps"] = float(period.steps)
    for one in known:
        figures |= one.figures
    confidence = Confidence.LIKELY if untimed_s > _GUESSED_FROM * lost_s else Confidence.CERTAIN
    # of the estimate's remedy the general advice says nothing more
    fix = (*(one.text for one in known), *advice_on(cause).fix[len(known) :])
    yield make_finding(cause, lost_s / train_s, evidence, figures=figures, confidence=confidence, fix=fix)


def _period(trainer: Trainer, starts_ns: Times) -> StepPeriod | None:
    """Return at which distance in steps it comes, within the epochs of the loader that trains."""
    if not trainer.loaders or len(starts_ns) < 3:
        return None
    loader = max(trainer.loaders, key=lambda one: len(one.batch))
    places = np.searchsorted(loader.start_ns, starts_ns) - 1
    places = np.unique(places[places >= 0])
    epochs = loader.epoch[places]
    return find_period([loader.batch[places[epochs == one]].astype(float).tolist() for one in np.unique(epochs)])


def _calls(trainer: Trainer, activity: Activity) -> tuple[str, ...]:
    """Return which calls, the longest in sum first; of several, how long each took."""
    if activity not in _CALLED:
        return ()
    sums: Counter[str] = Counter()
    events = trainer.process.of(EventKind[activity.name], thread=trainer.thread)
    events = events[starts_of(events) >= trainer.train_start_ns]
    for arg, duration in zip(events["arg"].tolist(), events["duration_ns"].tolist(), strict=True):
        sums[trainer.process.names.get(arg, "")] += duration
    del sums[""]
    return tuple(f"{name} {format_seconds(ns / 1e9)}" if len(sums) > 1 else name for name, ns in sums.most_common())


_BETWEEN = Text(
    "own code between passes over loaders: {count} times, {lost} in all, {each}, nothing of "
    'it timed; `with headrace.phase("name"):` around its parts says which',
    "两次遍历加载器之间的自有代码：{count} 次，共 {lost}，{each}，都没有计时；用 `with "
    'headrace.phase("名称"):` 包住各段即可看出是哪一段',
)
_TOOK = Text(
    "{what} took {lost} in all, {each}{meaning}",
    "{what}共用 {lost}，{each}{meaning}",
)
_STOOD_STILL, _NOTHING = Text(", and the loop stood still for them", "，期间训练停住"), Text("", "")
_WHAT = {  # and what that means for the loop
    Cause.CHECKPOINT: (Text("{count:save(s)} ({calls})", "{count} 次保存（{calls}）"), _STOOD_STILL),
    Cause.EVALUATION: (Text("{count:evaluation(s)} ({calls})", "{count} 次评估（{calls}）"), _NOTHING),
    Cause.LOGGING: (
        Text("{count:write(s)} ({calls})", "{count} 次写日志（{calls}）"),
        Text(", in the training loop itself", "，都在训练循环里"),
    ),
    Cause.GC: (Text("{count:garbage collection(s)}", "{count} 次垃圾回收"), _NOTHING),
    Cause.H2D_COPY: (Text("{count:cop(y|ies)} to the device", "{count} 次拷贝到设备"), _STOOD_STILL),
}


def _said(trainer: Trainer, cause: Cause, cost: Cost, calls: Sequence[str]) -> Text:
    shown: str | Text = ", ".join(calls[:3]) or "-"
    if cause is Cause.EVALUATION and not calls:
        over = ", ".join(row.title for row in trainer.loader_rows if row.role is LoaderRole.EVALUATION)
        shown = Text(f"batches of {over} without a training step", f"{over} 的 batch，没有训练步")
        shown = shown if over else Text("from `eval()` to `train()`", "从 `eval()` 到 `train()`")
    what, meaning = _WHAT[cause]
    return _TOOK.filled(what=what.filled(count=cost.count, calls=shown), meaning=meaning, **cost.blanks)


def _save_evidence(trainer: Trainer, cost: Cost, untimed_s: float, figures: dict[str, float]) -> Iterator[Text]:
    """Yield how much saves write, and what lies around their calls."""
    sizes = trainer.process.of(EventKind.CHECKPOINT)["value"]
    nbytes = int(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0
    if nbytes:
        figures["typical_bytes"] = float(nbytes)
    if nbytes and cost.typical_s > 0:
        yield Text("each writes {size}, {rate}/s", "每次写入 {size}，速度 {rate}/s").filled(
            size=format_bytes(nbytes), rate=format_bytes(int(nbytes / cost.typical_s))
        )
    if untimed_s:
        figures["untimed_s"] = untimed_s
    if untimed_s >= 0.05 * cost.lost_s:
        yield Text(
            "{untimed} of that lie right before and after these calls, and hardly in any other step: not timed, and "
            "taken for what goes with a save (gathering the state; opening, writing, closing the file)",
            "其中 {untimed} 紧挨在这些调用前后，其他步几乎没有：没有计时，视为保存的一部分（收集状态，打开、写入、关闭"
            "文件）",
        ).filled(untimed=format_seconds(untimed_s))


def _copy_evidence(trainer: Trainer, figures: dict[str, float]) -> Iterator[Text]:
    """Yield what is to be said of the host's time in the copies of the thread that trains, beside the copies."""
    events = trainer.process.of(EventKind.H2D, thread=trainer.thread)
    hidden = coverage([span for span in trainer.spans if span.is_opaque])
    is_outside = hidden.between(starts_of(events), ends_of(events)) == 0  # an evaluation's are evaluation
    events = events[is_outside & (starts_of(events) >= trainer.train_start_ns)]
    calls = [*zip(events["duration_ns"].tolist(), events["arg"].tolist(), strict=True)]
    host_s = sum(duration for duration, _ in calls) / 1e9
    copied_s = sum(copied_ns(*call) for call in calls) / 1e9  # of that, as far as is known
    untimed_s = sum(call[0] for call in calls if not is_copy_timed(*call)) / 1e9  # by the host's clock alone
    figures |= {"host_s": host_s, "untimed_s": untimed_s}
    if host_s - copied_s > _SOME * copied_s:
        yield Text(
            "the calls held the host up for {host} in all; in {waited} of that they waited for what the device had "
            "yet to compute, which is no copy and not counted here",
            "这些调用共让主机停了 {host}，其中 {waited} 是在等设备算完手头的任务：那不是拷贝，不计在内",
        ).filled(host=format_seconds(host_s), waited=format_seconds(host_s - copied_s))
    if untimed_s > _SOME * copied_s:
        yield Text(
            "an upper bound: for {share} of that time no CUDA events tell the copy from the wait before it, and a "
            "copy that blocks first waits for what the device has yet to compute",
            "这是上限：其中 {share} 的时间没有 CUDA 事件可把拷贝与之前的等待分开，而阻塞的拷贝会先等设备算完手头的任务",
        ).filled(share=format_share(untimed_s / copied_s))


def _epoch_starts(trainer: Trainer, loader: LoaderWaits) -> Iterator[Finding]:
    """Yield what the starts of a loader's epochs cost but the first: that one belongs to the start of the run."""
    epochs = trainer.process.of(EventKind.EPOCH)
    epochs = epochs[[trainer.process.names.get(int(arg), "loader") == loader.name for arg in epochs["arg"]]]
    first = np.flatnonzero(loader.batch == 0)[1:]
    if not len(first):
        return
    usual_s = float(np.median(loader.wait_s[loader.batch > 0])) if (loader.batch > 0).any() else 0.0
    wait_s = np.maximum(0.0, loader.wait_s[first] - usual_s)
    places = np.searchsorted(epochs["start_ns"], loader.start_ns[first], side="right") - 1
    iter_s = np.where(places >= 0, epochs["duration_ns"][places.clip(0)] / 1e9, 0.0) if len(epochs) else 0 * wait_s
    if len(loader.end_s) >= len(iter_s):  # ending the epoch before stops its workers
        iter_s = iter_s + loader.end_s[: len(iter_s)]
    began = int(np.flatnonzero(loader.batch == 0)[0])
    first_s = float(loader.wait_s[began] + epochs["duration_ns"][:1].sum() / 1e9)
    cost = Cost(**cost_of(wait_s + iter_s))
    share = cost.lost_s / trainer.train_s
    if share < report_from(Cause.EPOCH_START, cost.count):
        return
    evidence = [
        Text(
            "the starts of {count:epoch(s)} cost {lost} in all, {each}, of which {iter} in "
            "stopping and starting workers (`iter(loader)`), the rest in waiting for the first batch; the first "
            "epoch's start, {first}, is not among them",
            "{count} 个 epoch 的开头共损失 {lost}，{each}，其中 {iter} 用于停止和启动 "
            "worker（`iter(loader)`），其余在等第一个 batch；第一个 epoch 的开头（{first}）不计在内",
        ).filled(iter=format_seconds(float(iter_s.sum())), first=format_seconds(first_s), **cost.blanks)
    ]
    if loader.num_made > 1:
        made = Text(
            "the script makes this loader anew, {count} times: made once, before its loop, it could keep its workers "
            "(`persistent_workers=True`)",
            "脚本反复新建这个加载器，共 {count} 次：在循环之前只建一次，就能保留 worker（`persistent_workers=True`）",
        )
        evidence.append(made.filled(count=loader.num_made))
    elif not loader.settings.persistent_workers:
        anew = "persistent_workers is off: each epoch starts its workers anew"
        evidence.append(Text(anew, "persistent_workers 未开启：每个 epoch 都重新启动 worker"))
    anew_at = loader.place if loader.num_made > 1 else ""
    fix = epoch_start_fixes(anew_at=anew_at, are_kept=bool(loader.settings.persistent_workers))
    if 2 * len(loader.end_s) < len(first):  # most were left before their end, as `next(iter(loader))` does
        kept = Text(
            "keep one iterator for many steps: passes end after {taken:batch(es)} on average, and each starts its "
            "workers (`batches = iter(loader)` before the loop, another when it has ended)",
            "让一个迭代器用于多步：平均只取 {taken} 个 batch 就结束，每次都要启动 worker（循环前 `batches = "
            "iter(loader)`，用完再建）",
        ).filled(taken=round(len(loader.batch) / (len(first) + 1)))
        fix = (kept, *fix)
    yield make_finding(Cause.EPOCH_START, share, evidence, figures={"count": float(cost.count)}, fix=fix)


def _between_passes(trainer: Trainer) -> NDArray[np.float64]:
    """Return how long nothing timed happened from the end of each pass over a loader until one is asked again."""
    epochs, waits = (trainer.process.of(kind, thread=trainer.thread) for kind in (EventKind.EPOCH, EventKind.WAIT))
    ends = ends_of(waits[waits["value"] < 0])
    begins = np.append(np.sort(starts_of(np.append(epochs, waits))), trainer.train_end_ns)
    until = np.maximum(ends, begins[np.searchsorted(begins[:-1], ends)])
    return np.asarray((until - ends - coverage(trainer.spans).between(ends, until)) / 1e9)


def _slow_steps(loader: LoaderWaits, trainer: Trainer) -> Iterator[Finding]:
    """Yield the steps that took more than three times the usual, and what lies between epochs, nothing of it timed."""
    train_s, between_s = trainer.train_s, _between_passes(trainer)
    between_s = between_s[between_s >= _LEAST_S]
    if len(between_s) >= 2 and between_s.sum() >= _UNKNOWN_FROM * train_s:
        cost = Cost(**cost_of(between_s))
        yield _unknown(cost, train_s, [_BETWEEN.filled(**cost.blanks)])
    known = np.isfinite(loader.step_s)
    known[:_WARM_UP] = False
    if known.sum() < 8:
        return
    usual_s = float(np.median(loader.step_s[known]))
    excess = np.where(known, loader.step_s - usual_s, 0.0)
    chosen = np.flatnonzero(excess >= max(2 * usual_s, _LEAST_S))
    if len(chosen) < 2 or excess[chosen].sum() < _UNKNOWN_FROM * train_s:
        return
    cost = Cost(**cost_of(excess[chosen]))
    where = ", ".join(str(step) for step in loader.batch[chosen[:5]]) + (" …" if len(chosen) > 5 else "")
    evidence = (
        SLOW_STEPS.filled(where=where, **cost.blanks),
        Text(
            "nothing that is timed happened there: no wait for data, no save, no evaluation, no log, no collection",
            "当时没有发生任何被计时的事：没有等数据、保存、评估、写日志或垃圾回收",
        ),
    )
    yield _unknown(cost, train_s, evidence)


def _unknown(cost: Cost, train_s: float, evidence: Iterable[Text]) -> Finding:
    figures, measure = {"count": float(cost.count)}, (HostLoss.PYTHON.value,)
    return make_finding(Cause.UNKNOWN, cost.lost_s / train_s, evidence, figures=figures, measure=measure)
