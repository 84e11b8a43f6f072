"""What each pass over a loader was for: to train, to evaluate, or neither. Pure.

What is done with the batches tells it, not the object that `eval()` was called on: a framework may train one and
evaluate another, which lies inside it or is a copy. A pass in which there is a backward pass or an optimizer step
trains. One without, in which a model is called, evaluates, if anything is trained at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.model import EventKind, LoaderRole, LoaderRow

from .processes import Coverage, ProcessEvents, Times, ends_of, starts_of

_NEVER = np.iinfo(np.int64).max - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class LoaderPass:
    """One pass over a loader by the thread that trains, from `iter()` or its first `next` to its last."""

    loader: int  # the number of its name
    role: LoaderRole
    waits: NDArray[np.int64]  # which of the thread's WAIT events, in their order
    start_ns: int
    end_ns: int  # of an evaluation with what was done with its last batch


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
