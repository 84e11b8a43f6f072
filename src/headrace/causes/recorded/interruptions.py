"""What a loop did besides training: checkpoints, evaluation, logging, garbage collection, copies to the device. Pure.

These are timed as such, so there is nothing to guess; what is to be decided is whether they cost enough to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.model import Activity, Cause, EventKind, format_seconds

from ..steps import REPORT_FROM, REPORT_FROM_ELSE, REPORT_ONCE_FROM, Period, Span, find_period, of_weight
from .copies import CopyTimes, read_copies
from .processes import starts_of
from .trainer import CAUSE_OF, Label, Trainer, coverage, outermost

_KIND_OF = {
    Activity.CHECKPOINT: EventKind.CHECKPOINT,
    Activity.EVALUATION: EventKind.EVALUATION,  # a framework's
    Activity.LOGGING: EventKind.LOGGING,
}
_FEWEST_COLLECTIONS = 4  # long ones: every program has one or two of them after its imports


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """Time that one thing beside training took."""

    cause: Cause
    lost_s: float
    count: int
    num_heavy: int  # of them, those that carry the loss
    typical_s: float
    worst_s: float
    period: Period | None  # in steps
    calls: tuple[str, ...] = ()  # which calls, the longest in sum first; of several, how long each took
    typical_bytes: int = 0  # that one wrote; 0: not known
    copies: CopyTimes | None = None  # to the device
    untimed_s: float = 0.0  # right before and after the calls of a checkpoint


def find_interruptions(trainer: Trainer) -> Iterator[Interruption]:
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
            copies=read_copies(trainer) if activity is Activity.H2D else None,
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


def _period(trainer: Trainer, starts_ns: list[int]) -> Period | None:
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
