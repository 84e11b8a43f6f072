"""Our workers for the torch loaders of an unchanged script, where its batches stay the same: `headrace run --feed`."""

import contextlib
import sys
import weakref
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headrace.model import EventKind, FeedNote, FeedReason, describe_error, feed_mode, feeds_random, replay_steps

from ..tape import now, tape
from .wrapping import instead_of

if TYPE_CHECKING:
    from headrace.loader import FedIterator, TorchsTurn

_FEED = int(EventKind.FEED)
_STRETCH = 64  # batches of torch's that are measured: some rounds over its workers
_ON_THE_WAY = (FeedReason.MEASURED, FeedReason.DRAINED)  # torch's now, and ours later
_MARK = "_headrace_"  # what hooks note in an iterator


@dataclass
class _Feeding:
    """What is known of one loader."""

    name: str
    note: FeedNote
    stretch: "TorchsTurn | None" = None  # of torch's, to be measured
    ours: Any = None  # our loader in its place, of the last pass


_known: weakref.WeakKeyDictionary[Any, _Feeding] = weakref.WeakKeyDictionary()


def feed_loaders(dataloader: ModuleType) -> None:
    """Let `DataLoader._get_iterator` give iterators over our workers, where that was asked for and can be."""
    if not feed_mode() or replay_steps():
        return
    cls = dataloader.DataLoader
    original, workers = cls._get_iterator, dataloader._MultiProcessingDataLoaderIter

    @instead_of(cls, "_get_iterator")
    def _get_iterator(self: Any) -> Any:
        has_own = dataloader._MultiProcessingDataLoaderIter is not workers
        iterator = _fed(self, dataloader, has_own_iterator=has_own)
        return original(self) if iterator is None else iterator


def is_fed(loader: Any) -> bool:
    """Whether our workers make a loader's batches."""
    with contextlib.suppress(TypeError):  # a class of the script's own that has no hash
        return loader in _known and _known[loader].note.by == "headrace"
    return False


def standing_in(loader: Any) -> Any:
    """Return the loader that makes the batches: ours where it stands in for a script's."""
    ours = _known[loader].ours if is_fed(loader) else None
    return loader if ours is None else ours


def marked(iterator: Any) -> Any:
    """Return the iterator whose `next` is timed, where another one stands around it."""
    return vars(iterator).get("inner", iterator)


def _fed(loader: Any, dataloader: ModuleType, *, has_own_iterator: bool) -> "FedIterator | None":
    """Return an iterator that may be ours; None where torch's is to be made."""
    from .loader import name_of

    try:
        from headrace.loader import DataLoader, FedIterator, TorchsTurn

        if isinstance(loader, DataLoader):
            return None
        feeding = _known.get(loader)
        if feeding is None:
            note = _examine(loader, dataloader, has_own_iterator=has_own_iterator)
            feeding = _known[loader] = _Feeding(
                name_of(loader), note, TorchsTurn(_STRETCH if feed_mode() == "measure" else 0)
            )
        if feeding.note.by != "headrace" and feeding.note.reason not in _ON_THE_WAY:
            _write(feeding)
            return None
        tunes, told = feed_mode() == "tune", partial(_tell, feeding)
        return FedIterator(loader, stretch=feeding.stretch, tunes=tunes, before=feeding.ours, told=told)
    except Exception as error:  # torch's loader is there still; what the script's own parts raised, it raises too
        failed = FeedNote(reason=FeedReason.FAILED, detail=describe_error(error).message)
        with contextlib.suppress(Exception):
            _say(name_of(loader), failed.detail)
            feeding = _known[loader] = _Feeding(name_of(loader), failed)
            _write(feeding)
        return None


def _examine(loader: Any, dataloader: ModuleType, *, has_own_iterator: bool) -> FeedNote:
    """Return who shall make a loader's batches; that costs two samples, fetched by a process of its own."""
    from headrace.loader import Dependence, probe_samples

    is_iterable = loader._dataset_kind == dataloader._DatasetKind.Iterable
    if isinstance(loader.dataset, (dataloader.IterDataPipe, dataloader.MapDataPipe)):
        return FeedNote(reason=FeedReason.PIPE)
    if loader.num_workers == 0:
        return FeedNote(reason=FeedReason.IN_PROCESS)
    if has_own_iterator or type(loader)._get_iterator is not dataloader.DataLoader._get_iterator:
        return FeedNote(reason=FeedReason.OWN_ITERATOR, detail=type(loader).__name__)
    # the workers of an iterable data set are seeded as torch's are, and each has its own part of it
    found = Dependence.NOTHING if is_iterable else probe_samples(loader)
    if found is Dependence.RANDOM and not feeds_random():
        return FeedNote(reason=FeedReason.DRAWS)
    reasons = {Dependence.WORKER: FeedReason.ASKS_WORKER, Dependence.FAILED: FeedReason.PROBE_FAILED}
    reasons[Dependence.LATE] = FeedReason.PROBE_LATE
    if found in reasons:
        return FeedNote(reason=reasons[found])
    return FeedNote(by="headrace", reason=FeedReason.FED)


def _tell(feeding: _Feeding, iterator: "FedIterator", why: str, before: Any) -> None:
    """Write down who makes the batches now; an iterator that took another one's place goes on with its marks."""
    if before is not None:
        vars(iterator.inner).update({name: mark for name, mark in vars(before).items() if name.startswith(_MARK)})
    if why == "drew":
        if feeds_random():
            return
        feeding.note = replace(feeding.note, by="headrace", reason=FeedReason.DREW)
    elif iterator.is_ours:
        feeding.ours = ours = iterator.ours
        feeding.note = FeedNote(
            by="headrace",
            reason=FeedReason.FED,
            profile=ours.profile or "",
            num_workers=ours.num_workers,
            is_tuned=ours.tune is not None if feed_mode() == "tune" else None,
        )
    elif why in ("begun", "drained"):
        feeding.note = FeedNote(reason=FeedReason.MEASURED if why == "begun" else FeedReason.DRAINED)
    else:
        feeding.note = FeedNote(reason=FeedReason.FAILED, detail=why)
        _say(feeding.name, why)
    _write(feeding)


def _write(feeding: _Feeding) -> None:
    tape.write(_FEED, now(), 0, tape.name(feeding.name), tape.name(feeding.note.as_text()))


def _say(name: str, what: str) -> None:
    sys.stderr.write(f"headrace: {name} goes on with torch's own loader, for feeding it failed: {what}\n")
