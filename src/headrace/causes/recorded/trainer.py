"""A training process of a recording: its window, where its time went, its passes over loaders, its steps. Pure.

What a pass was for is told by what is done with its batches, not by the object that `eval()` was called on: a framework
may train one and evaluate another, which lies inside it or is a copy. A pass in which there is a backward pass or an
optimizer step trains. One without, in which a model is called, evaluates, if anything is trained at all.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import Activity, Cause, EventKind, LoaderRole, LoaderRow, LoaderSettings, Text, TimeRow, copied_ns

from .processes import Coverage, ProcessEvents, Span, Times, covering, ends_of, exclusive_times, seen, starts_of

Label = tuple[Activity, str]  # and the name of a phase
# An event is the activity of its name, but for the start of an epoch.
_ACTIVITY = {EventKind[one.name]: one for one in Activity if one.name in EventKind.__members__}
_ACTIVITY[EventKind.EPOCH] = Activity.EPOCH_START
# What lies inside these belongs to them: an evaluation's waits are evaluation.
_OPAQUE = {Activity.CHECKPOINT, Activity.EVALUATION, Activity.LOGGING, Activity.REPLAY}
# And yet: a script that leaves `eval()` with its next step has saved meanwhile.
_SHOWS_THROUGH = {Activity.CHECKPOINT}
# A phase that the user named after one of these is one of these.
_PHASES = (
    (re.compile(r"checkpoint|ckpt|\bsav(e|ing)\b|检查点|保存", re.IGNORECASE), Activity.CHECKPOINT),
    (re.compile(r"\beval|valid|\btest(ing)?\b|评估|验证", re.IGNORECASE), Activity.EVALUATION),
    (re.compile(r"\blog(s|ging)?\b|upload|日志|上传", re.IGNORECASE), Activity.LOGGING),
)
_PLACE = Text("in the DataLoader over {data}", "{data} 的 DataLoader")
_FOLLOWING = ("os.", "shutil.")  # how calls are named that a save is followed by: to sync, rename or copy its file
_NONE = np.empty(0, np.int64)
_NEVER = np.iinfo(np.int64).max - 1
REPLAY_COPYING, REPLAY_NOT_DONE = -1, -2  # values of a REPLAY event; from 0 on, batches were given again
_STEP = (Activity.BACKWARD, Activity.OPTIMIZER)
CAUSE_OF = {
    Activity.CHECKPOINT: Cause.CHECKPOINT,
    Activity.EVALUATION: Cause.EVALUATION,
    Activity.LOGGING: Cause.LOGGING,
    Activity.GC: Cause.GC,
    Activity.H2D: Cause.H2D_COPY,
}
OWN_WORK = {  # what a rank does by itself, not with others
    Activity.EPOCH_START: Text("starting epochs", "epoch 开头"),
    Activity.WAIT: Text("waiting for data", "等数据"),
    Activity.H2D: Text("copying to the device", "拷贝到设备"),
    Activity.FORWARD: Text("forward", "前向"),
    Activity.OPTIMIZER: Text("the optimizer", "优化器"),
    Activity.BETWEEN_STEPS: Text("code between steps", "步与步之间的代码"),
    Activity.CHECKPOINT: Text("saving", "保存"),
    Activity.EVALUATION: Text("evaluation", "评估"),
    Activity.LOGGING: Text("logging", "写日志"),
    Activity.GC: Text("garbage collection", "垃圾回收"),
    Activity.OTHER: Text("code of the loop that is not timed", "循环里未计时的代码"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class LoaderWaits:
    """The steps of a training loop over one loader; what lies in an evaluation is not among them."""

    name: str
    settings: LoaderSettings
    num_made: int  # how many times the script made it
    batch: NDArray[np.int64]  # its number in the epoch
    epoch: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    step_s: NDArray[np.float64]  # from this batch to the next `next`, without interruptions; nan for an epoch's last
    is_ready: NDArray[np.bool_]  # the batch lay in the queue already: the wait is what taking it costs
    get_s: NDArray[np.float64]  # of the wait: in the queue, with unpickling; the rest is this process's own
    end_s: NDArray[np.float64]  # what the `next` took that ended an epoch: stopping workers

    @property
    def wait_s(self) -> NDArray[np.float64]:
        return np.asarray((self.end_ns - self.start_ns) / 1e9)

    @property
    def place(self) -> str | Text:
        """Return where the script makes it."""
        return self.settings.place.rpartition("/")[2] or _PLACE.filled(data=self.name)

    @property
    def num_workers(self) -> int:
        """Return how many workers it was asked for; 0 where nobody knows."""
        return self.settings.num_workers or 0


@dataclass(frozen=True, eq=False, kw_only=True)
class LoaderPass:
    """One pass over a loader by the thread that trains, from `iter()` or its first `next` to its last."""

    loader: int  # the number of its name
    role: LoaderRole
    waits: NDArray[np.int64]  # which of the thread's WAIT events, in their order
    start_ns: int
    end_ns: int  # of an evaluation with what was done with its last batch


@dataclass(frozen=True, eq=False, kw_only=True)
class Trainer:
    process: ProcessEvents
    thread: int  # the one that trains
    is_fed: bool  # it is this thread that asks for batches to train on: no other on its behalf, and not nobody
    start_ns: int
    train_start_ns: int  # the first epoch begins
    train_end_ns: int  # the last thing that was timed has ended
    end_ns: int
    rows: tuple[TimeRow, ...]  # add up to the wall clock
    exclusive_s: dict[Label, float]  # from train_start_ns on
    spans: tuple[Span[Label], ...]
    loaders: tuple[LoaderWaits, ...]  # that it trains on, the one that was waited for longest first
    loader_rows: tuple[LoaderRow, ...]  # of all loaders
    untimed_saves_s: float  # what lies around the calls of saves, of which nobody says what it was

    @property
    def train_s(self) -> float:
        """Return how long the training itself took, without what came before and after it, and without a replay."""
        return (self.train_end_ns - self.train_start_ns) / 1e9 - self.seconds(Activity.REPLAY)

    def seconds(self, activity: Activity) -> float:
        """Return the exclusive time of an activity while training."""
        return sum(seconds for (one, _), seconds in self.exclusive_s.items() if one is activity)

    def share(self, *activities: Activity) -> float:
        """Return the share of the training that some activities took; 0 where there was no training."""
        return sum(map(self.seconds, activities)) / self.train_s if self.train_s > 0 else 0.0

    def covered_by(self, *activities: Activity) -> Coverage:
        return coverage([span for span in self.spans if span.label[0] in activities])

    @property
    def title(self) -> str:
        pid = f"pid {self.process.pid}"
        return pid if self.rank is None else f"rank {self.rank} ({pid})"

    @property
    def num_batches(self) -> int:
        """Return how many batches it took, whichever thread asked for them; of a loop without a loader its steps."""
        waits, raised = (self.process.of(kind)["value"] for kind in (EventKind.WAIT, EventKind.EXCEPTION))
        failed = int(raised.any())  # a `next` that raised brought none
        return int((waits >= 0).sum()) - failed if len(waits) else len(self.process.of(EventKind.OPTIMIZER))

    @property
    def rank(self) -> int | None:
        """Return which rank it is; None for a training of one process."""
        said = self.process.of(EventKind.RANK)
        return int(said["value"][-1]) if len(said) else None


def has_loader(process: ProcessEvents) -> bool:
    """Whether a process ran a loop over a loader: it asked for batches."""
    return process.role != "worker" and len(process.of(EventKind.WAIT)) > 0


def trainers_of(processes: Sequence[ProcessEvents]) -> list[ProcessEvents]:
    """Return those that train: they asked a loader for batches, or where none did, made steps without one."""
    made_steps = (one for one in processes if one.role != "worker" and len(one.of(EventKind.OPTIMIZER)))
    return [*filter(has_loader, processes)] or [*made_steps]


def read_trainer(process: ProcessEvents, start_ns: int, end_ns: int) -> Trainer:
    """Take a training process apart, from the start of the run to its end."""
    asking = process.of(EventKind.WAIT)["thread"]
    working = process.of(EventKind.BACKWARD, EventKind.OPTIMIZER)["thread"]
    thread = int(np.bincount(working if len(working) else asking).argmax())  # the one that trains
    process = _outside_next(process, thread)
    passes = read_passes(process, thread)
    is_fed = any(one.role is not LoaderRole.EVALUATION for one in passes)
    evaluated = evaluations(process, thread, passes)
    spans = _spans(process, thread, evaluated)
    untimed_saves_s = _reach_over_pauses(spans)
    if not is_fed:
        spans = [*_between_steps(process, thread, coverage(spans[: len(evaluated)])), *spans]
    begins = [span.start for span in spans if span.label[0] is Activity.EPOCH_START]
    begins += starts_of(process.of(EventKind.EPOCH)).tolist()  # of another thread, where that one asks for batches
    begins += [span.start for span in spans if span.label[0] in _STEP]
    first = min(begins, default=start_ns)
    # An evaluation comes before the first epoch of its loader.
    first = min([first, *(span.start for span in spans if span.is_opaque and span.start <= first < span.end)])
    train_start = min(max(first, start_ns), end_ns)
    # A collection while the interpreter ends is not training.
    lasts = [span.end for span in spans if span.label[0] not in {Activity.GC, Activity.LOGGING}]
    train_end = max(train_start, min(end_ns, max(lasts, default=end_ns)))
    training = exclusive_times(spans, train_start, train_end, rest=(Activity.OTHER, ""))
    replayed = training.get((Activity.REPLAY, ""), 0)
    outside = {(Activity.STARTUP, ""): train_start - start_ns, (Activity.ENDING, ""): end_ns - train_end}
    return Trainer(
        process=process,
        thread=thread,
        is_fed=is_fed,
        start_ns=start_ns,
        train_start_ns=train_start,
        train_end_ns=train_end,
        end_ns=end_ns,
        rows=_rows(
            {**training, **outside},
            [span for span in spans if span.end > train_start and span.start <= train_end],
            end_ns - start_ns,
        ),
        exclusive_s={label: ns / 1e9 for label, ns in training.items()},
        spans=tuple(spans),
        loaders=_loaders(process, thread, spans, passes),
        loader_rows=tuple(loader_rows(process, thread, passes, (train_end - train_start - replayed) / 1e9)),
        untimed_saves_s=untimed_saves_s,
    )


def _outside_next(process: ProcessEvents, thread: int) -> ProcessEvents:
    """Return a process without the saves and logs that lie inside `next`: they are a sample's, and a wait for data."""
    events, waits = process.events, process.of(EventKind.WAIT, thread=thread)
    is_inside = np.isin(events["kind"], [int(EventKind.CHECKPOINT), int(EventKind.LOGGING)])
    is_inside &= covering(waits).between(starts_of(events), ends_of(events)) > 0.99 * events["duration_ns"]
    return replace(process, events=events[~is_inside])


def _spans(process: ProcessEvents, thread: int, evaluated: Sequence[tuple[int, int]]) -> list[Span[Label]]:
    events = process.of(*set(_ACTIVITY) - {EventKind.EVALUATION}, thread=thread)
    activities = {int(kind): activity for kind, activity in _ACTIVITY.items()}
    spans = [Span(start, end, (Activity.EVALUATION, ""), is_opaque=True) for start, end in evaluated]
    saved: int | None = None  # the place of the last save
    columns = (events[name].tolist() for name in ("start_ns", "duration_ns", "kind", "arg", "value"))
    for start, duration, kind, arg, value in zip(*columns, strict=True):
        activity, name, end = activities[kind], "", start + duration
        if activity is Activity.CHECKPOINT:
            is_part = process.names.get(arg, "").startswith(_FOLLOWING)
            if is_part and saved is not None and _follows(spans[saved:], start):
                spans[saved] = replace(spans[saved], end=end)
                continue
            saved = len(spans)
        elif activity is Activity.WAIT and value <= 0:  # the first batch, or the end of the epoch
            activity = Activity.EPOCH_START
        elif activity is Activity.PHASE:
            name = process.names.get(arg, "?")
            activity = next((known for pattern, known in _PHASES if pattern.search(name)), activity)
            name = name if activity is Activity.PHASE else ""
        elif activity is Activity.REPLAY and value == REPLAY_NOT_DONE:
            continue
        elif activity is Activity.H2D and (begun := end - copied_ns(duration, arg)) > start:
            spans.append(Span(start, begun, (Activity.SYNC, "")))  # it waited for what the device had yet to do
            start = begun
        spans.append(Span(start, end, (activity, name), activity in _OPAQUE, activity in _SHOWS_THROUGH))
    cached, replays = (process.of(kind, thread=thread) for kind in (EventKind.CACHED, EventKind.REPLAY))
    cached = cached[starts_of(cached) >= ends_of(replays[replays["value"] >= 0]).max(initial=0)]
    if len(cached):  # a replay at whose end nobody was left to write it down
        spans.append(Span(int(starts_of(cached)[0]), int(ends_of(cached)[-1]), (Activity.REPLAY, ""), is_opaque=True))
    return spans


def _follows(since: Sequence[Span[Label]], start: int) -> bool:
    """Whether nothing else has happened since a save, the first of some spans, but a collection."""
    others = (one for one in since if one.label[0] is not Activity.GC)
    return not any(since[0].end <= one.start < start for one in others)


# A script that saves gathers the state and opens a file before, and closes or uploads it afterwards, which cannot be
# timed: what the loop stands still right before and after its saves, and hardly anywhere else, is theirs, too.
_FEWEST_SAVES = 3  # what lies beside one or two of them may be anything
_LEAST_PAUSE_NS = 2_000_000
_AS_OFTEN = 0.25  # of the saves: as many pauses of that kind elsewhere, and saves do not explain them
_MOST_PAUSES = 3.0  # the usual pause: a longer one has something else in it


def _reach_over_pauses(spans: list[Span[Label]]) -> float:
    """Let saves reach over the pauses that are theirs; return how many seconds that is in all."""
    order = sorted((n for n, one in enumerate(spans) if one.label[0] is not Activity.GC), key=lambda n: spans[n].start)
    timed = [spans[number] for number in order]
    starts, reach = [one.start for one in timed], [*accumulate((one.end for one in timed), max)]
    saved, evaluated = (
        {one.end for one in timed if one.label[0] is kind} for kind in (Activity.CHECKPOINT, Activity.EVALUATION)
    )
    saves: list[tuple[int, int, int]] = []  # which span, the pause before it and that after it
    others: list[int] = []  # pauses before the loop asked for a batch, where it had not saved just before
    for place in range(1, len(timed)) if saved else ():
        activity, before, last = timed[place].label[0], starts[place] - reach[place - 1], reach[place - 1]
        if activity is Activity.CHECKPOINT and (behind := bisect_left(starts, timed[place].end)) < len(starts):
            after = starts[behind] - timed[place].end if reach[behind - 1] <= timed[place].end else 0
            # an evaluation may end with something of its own
            saves.append((order[place], 0 if last in evaluated else max(0, before), after))
        elif activity is Activity.WAIT and last not in saved:
            others.append(max(0, before))
    if min(len(saves), len(others)) < _FEWEST_SAVES:
        return 0.0
    usual = median(others)
    longer = [max(0.0, before + after - usual) for _, before, after in saves]
    typical = median(longer)
    alike = sum(one >= usual + typical / 2 for one in others)
    if typical < _LEAST_PAUSE_NS or alike >= max(1.0, _AS_OFTEN * len(saves)):
        return 0.0
    theirs = [min(one, _MOST_PAUSES * typical) for one in longer]
    for (number, _, after), own in zip(saves, theirs, strict=True):
        tail = min(after, own)  # on which side the loop's own part lies is not known
        start, end = spans[number].start, spans[number].end
        spans[number] = replace(spans[number], start=int(start - own + tail), end=int(end + tail))
    return sum(theirs) / 1e9


def _between_steps(process: ProcessEvents, thread: int, evaluated: Coverage) -> Iterator[Span[Label]]:
    """Yield what lies between two steps of a loop without a loader: it may make its data there."""
    events = process.of(EventKind.FORWARD, EventKind.BACKWARD, EventKind.OPTIMIZER, thread=thread)
    events = events[evaluated.between(starts_of(events), ends_of(events)) <= 0]
    reach, before = 0, EventKind.FORWARD
    for kind, start, end in zip(events["kind"], starts_of(events).tolist(), ends_of(events).tolist(), strict=True):
        # With gradient accumulation forward follows backward. Between backward and the optimizer gradients are clipped.
        follows = kind == EventKind.FORWARD or (kind == EventKind.OPTIMIZER and before == EventKind.OPTIMIZER)
        if follows and before != EventKind.FORWARD and start > reach:
            yield Span(reach, start, (Activity.BETWEEN_STEPS, ""))
        if end > reach:
            reach, before = end, kind


def _rows(totals: dict[Label, int], spans: Sequence[Span[Label]], wall_ns: int) -> tuple[TimeRow, ...]:
    counts, order = Counter(span.label for span in seen(spans)), list(Activity)
    return tuple(
        TimeRow(
            activity=activity,
            name=name,
            seconds=ns / 1e9,
            share=ns / wall_ns if wall_ns else 0.0,
            count=counts[activity, name],
        )
        for (activity, name), ns in sorted(totals.items(), key=lambda one: (order.index(one[0][0]), one[0][1]))
        if ns
    )


def _loaders(
    process: ProcessEvents, thread: int, spans: Sequence[Span[Label]], passes: Sequence[LoaderPass]
) -> tuple[LoaderWaits, ...]:
    trained = [one for one in passes if one.role is LoaderRole.TRAINING] or passes
    waits = process.of(EventKind.WAIT, thread=thread)[np.sort(np.concatenate([_NONE, *(one.waits for one in trained)]))]
    hidden = coverage([span for span in spans if span.is_opaque])
    waits = waits[hidden.between(starts_of(waits), ends_of(waits)) <= 0]
    worked = np.sort(starts_of(process.of(EventKind.FORWARD, EventKind.BACKWARD, EventKind.OPTIMIZER, thread=thread)))
    interruptions = coverage(
        [
            span
            for span in spans
            if span.label[0] in (*CAUSE_OF, Activity.REPLAY)
            or (span.label[0] is Activity.PHASE and not np.diff(np.searchsorted(worked, [span.start, span.end]))[0])
        ]
    )
    gets = process.of(EventKind.QUEUE_GET, thread=thread)
    replays = process.of(EventKind.REPLAY, thread=thread)
    replays = replays[replays["value"] > 0]
    settings = process.loader_settings()
    loaders = []
    for arg in np.unique(waits["arg"]).tolist():
        name = process.names.get(arg, "loader")
        own, replayed = waits[waits["arg"] == arg], replays[replays["arg"] == arg]
        of = {"name": name, "settings": settings.get(name, LoaderSettings()), "num_made": num_made(process, arg)}
        loaders.append(_loader_waits(own, gets, replayed, interruptions, **of))
    loaders.sort(key=lambda one: (-float(one.wait_s.sum()), -len(one.batch)))
    return tuple(one for one in loaders if len(one.batch))


def _loader_waits(
    waits: NDArray[Any], gets: NDArray[Any], replays: NDArray[Any], interruptions: Coverage, **of: Any
) -> LoaderWaits:
    starts, ends = starts_of(waits), ends_of(waits)
    batch = waits["value"].astype(np.int64)
    epoch = np.cumsum(batch == 0)
    step_s = np.full(len(waits), np.nan)
    step_s[:-1] = (starts[1:] - ends[:-1] - interruptions.between(ends[:-1], starts[1:])) / 1e9
    step_s[:-1][epoch[1:] != epoch[:-1]] = np.nan
    end_s = (ends - starts)[batch < 0] / 1e9
    kept = np.flatnonzero(batch >= 0)
    for end, ahead in zip(ends_of(replays).tolist(), replays["value"].tolist(), strict=True):
        first = int(np.searchsorted(starts[kept], end))  # these found what the loader had made during the replay
        kept = np.delete(kept, slice(first, first + ahead + 1))
    starts, ends = starts[kept], ends[kept]
    # A batch was on its way where the queue was not empty at any look. More than one look means that batches of other
    # workers came first; they are taken, and cost what taking costs.
    empty_at = starts_of(gets)[gets["value"] <= 0]
    is_ready = np.searchsorted(empty_at, starts) == np.searchsorted(empty_at, ends)
    return LoaderWaits(
        **of,
        batch=batch[kept],
        epoch=epoch[kept],
        start_ns=starts,
        end_ns=ends,
        step_s=step_s[kept],
        is_ready=is_ready & (len(gets) > 0),
        get_s=covering(gets).between(starts, ends) / 1e9,
        end_s=end_s,
    )


def coverage(spans: Sequence[Span[Label]]) -> Coverage:
    starts, ends = ([getattr(span, edge) for span in spans] for edge in ("start", "end"))
    return Coverage(np.array(starts, np.int64), np.array(ends, np.int64))


# ---------------------------------------------------------------------------------------- passes over loaders


def read_passes(process: ProcessEvents, thread: int) -> list[LoaderPass]:
    """Return the passes of a thread over its loaders."""
    waits, epochs = (process.of(kind, thread=thread) for kind in (EventKind.WAIT, EventKind.EPOCH))
    starts, ends = starts_of(waits), ends_of(waits)
    asked = np.sort(np.concatenate((starts_of(epochs), starts[waits["value"] >= 0])))
    worked = starts_of(process.of(EventKind.BACKWARD, EventKind.OPTIMIZER, thread=thread))
    called = np.sort(ends_of(process.of(EventKind.FORWARD, thread=thread)))
    used = np.sort(ends_of(process.of(EventKind.FORWARD, EventKind.SYNC, thread=thread)))
    quiet, found = _quiet(process, thread, worked), []
    for loader in np.unique(waits["arg"]).tolist():
        own = np.flatnonzero(waits["arg"] == loader)
        begun, values = starts_of(epochs[epochs["arg"] == loader]), waits["value"][own]
        # A long recording may lack the first batch of a pass, or its end.
        is_new = (values[1:] >= 0) & ((values[:-1] < 0) | (values[1:] <= values[:-1]))
        is_new |= np.diff(np.searchsorted(begun, starts[own], side="right")) > 0
        for places in np.split(own, 1 + np.flatnonzero(is_new)):
            start, last, end = int(starts[places[0]]), int(starts[places[-1]]), int(ends[places[-1]])
            later = _next(asked, end)
            # A loop may be a batch behind its loader: where there is hardly one, its step comes after the last `next`.
            trains = _count(worked, start, last if len(places) > 2 else later) > 0
            iterated = _last(begun, start + 1)
            if iterated and not _count(worked, iterated, start) and not _count(asked, iterated + 1, start):
                start = iterated  # nothing else came in between
            if not trains and _next(worked, end) >= later:  # else what is called now is called to train
                end = max(end, _last(used, later + 1))
            evaluates = not trains and len(worked) > 0 and _count(called, start, end + 1) > 0
            # a single batch of it may come between the batch of a step and its backward pass
            within = int(np.searchsorted(quiet[:, 0], starts[places[0]], side="right")) - 1
            evaluates |= within >= 0 and _count(called, end, int(quiet[within, 1]) + 1) > 0
            role = LoaderRole.EVALUATION if evaluates else LoaderRole.TRAINING if trains else LoaderRole.OTHER
            found.append(LoaderPass(loader=loader, role=role, waits=places, start_ns=start, end_ns=end))
    return found


def _count(times: Times, start: int, end: int) -> int:
    return int(np.diff(np.searchsorted(times, [start, end]))[0])


def _next(times: Times, at: int) -> int:
    """Return the first of some times from a moment on; one that never comes where there is none."""
    place = int(np.searchsorted(times, at))
    return int(times[place]) if place < len(times) else _NEVER


def _last(times: Times, before: int) -> int:
    """Return the last of some times before a moment; 0 where there is none."""
    place = int(np.searchsorted(times, before))
    return int(times[place - 1]) if place else 0


def _quiet(process: ProcessEvents, thread: int, worked: Times) -> NDArray[np.int64]:
    """Return from when to when a model was in `eval()`, without the times in which one is trained like that."""
    events = process.of(EventKind.EVALUATION, thread=thread)
    spans = np.stack((starts_of(events), ends_of(events)), axis=1)
    return np.asarray(spans[np.diff(np.searchsorted(worked, spans), axis=1)[:, 0] == 0])


def evaluations(process: ProcessEvents, thread: int, passes: Sequence[LoaderPass]) -> list[tuple[int, int]]:
    """Return from when to when a thread evaluated: by its passes, by `eval()` and `train()`, by what frameworks say."""
    starts = starts_of(process.of(EventKind.WAIT, thread=thread))
    trained = [one for one in passes if one.role is LoaderRole.TRAINING]
    begun = np.array([one.start_ns for one in trained], np.int64)
    asked = np.sort(np.concatenate((begun, *(starts[one.waits] for one in trained))))
    worked = starts_of(process.of(EventKind.BACKWARD, EventKind.OPTIMIZER, thread=thread))
    found = [(one.start_ns, one.end_ns) for one in passes if one.role is LoaderRole.EVALUATION]
    # `train()` may be called as late as in the next step
    found += [(start, min(end, _next(asked, start))) for start, end in _quiet(process, thread, worked).tolist()]
    return Coverage(*np.array(found, np.int64).reshape(-1, 2).T).stretches


def loader_rows(process: ProcessEvents, thread: int, passes: Sequence[LoaderPass], train_s: float) -> list[LoaderRow]:
    """Return a row for each loader in each of its roles, those that were trained on first, then by what was waited."""
    waits, settings, rows = process.of(EventKind.WAIT, thread=thread), process.loader_settings(), []
    for loader, role in {(one.loader, one.role) for one in passes}:
        own = [one.waits for one in passes if (one.loader, one.role) == (loader, role)]
        came = waits[np.concatenate(own)]
        came, later = came[came["value"] >= 0], came[came["value"] > 0]
        usual = later if len(later) else came
        name = process.names.get(loader, "loader")
        rows.append(
            LoaderRow(
                name=name,
                place=settings[name].place if name in settings else "",
                role=role,
                num_made=num_made(process, loader),
                passes=len(own),
                batches=len(came),
                wait_median_s=float(np.median(usual["duration_ns"])) / 1e9 if len(usual) else 0.0,
                wait_share=float(came["duration_ns"].sum()) / 1e9 / train_s if train_s > 0 else 0.0,
            )
        )
    return sorted(rows, key=lambda row: ([*LoaderRole].index(row.role), -row.wait_share, row.name))


def num_made(process: ProcessEvents, loader: int) -> int:
    """Return how many objects a loader has been: each counts its own epochs from 0. 1 where it is none that we know."""
    epochs, is_known = process.of(EventKind.EPOCH), bool((process.of(EventKind.LOADER)["value"] == loader).any())
    return max(1, is_known * int(((epochs["arg"] == loader) & (epochs["value"] == 0)).sum()))
