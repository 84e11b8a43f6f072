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
    from headrace.loader import FedIterator, Feeding

_FEED = int(EventKind.FEED)
_STRETCH = 64  # batches of torch's that are measured: some rounds over its workers
_MARK = "_headrace_"  # what hooks note in an iterator


@dataclass
class _FedLoader:
    """What is known of one loader."""

    name: str
    note: FeedNote
    feeding: "Feeding | None" = None


_known: weakref.WeakKeyDictionary[Any, _FedLoader] = weakref.WeakKeyDictionary()


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


def standing_in(loader: Any) -> Any:
    """Return the loader that makes the batches: ours where it stands in for a script's."""
    ours = None
    with contextlib.suppress(TypeError):  # a class of the script's own that has no hash
        known = _known.get(loader)
        ours = known.feeding.ours if known and known.feeding and known.note.by == "headrace" else None
    return loader if ours is None else ours


def marked(iterator: Any) -> Any:
    """Return the iterator whose `next` is timed, where another one stands around it."""
    return vars(iterator).get("inner", iterator)


def _fed(loader: Any, dataloader: ModuleType, *, has_own_iterator: bool) -> "FedIterator | None":
    """Return an iterator that may be ours; None where torch's is to be made."""
    from .loader import name_of

    try:
        from headrace.loader import DataLoader, FedIterator, Feeding

        if isinstance(loader, DataLoader) or (loader in _known and not loader.num_workers):  # by now, without workers
            return None
        known, mode = _known.get(loader), feed_mode()
        if known is None:
            note = _examine(loader, dataloader, has_own_iterator=has_own_iterator)
            known = _known[loader] = _FedLoader(name_of(loader), note)
            stretch = _STRETCH if mode == "measure" else 0
            known.feeding = Feeding(partial(_tell, known), stretch=stretch, tunes=mode == "tune")
        if known.feeding is not None and known.note.reason in (FeedReason.FED, FeedReason.DREW, FeedReason.MEASURED):
            return FedIterator(loader, known.feeding)
        _write(known)
    except Exception as error:  # torch's loader is there still; what the script's own parts raised, it raises too
        failed = FeedNote(reason=FeedReason.FAILED, detail=describe_error(error).message)
        with contextlib.suppress(Exception):
            _say(name_of(loader), failed.detail)
            known = _known[loader] = _FedLoader(name_of(loader), failed)
            _write(known)
    return None


def _examine(loader: Any, dataloader: ModuleType, *, has_own_iterator: bool) -> FeedNote:
    """Return who shall make a loader's batches; that costs two samples, fetched by a process of its own."""
    from headrace.loader import probe_samples

    is_iterable = loader._dataset_kind == dataloader._DatasetKind.Iterable
    if isinstance(loader.dataset, (dataloader.IterDataPipe, dataloader.MapDataPipe)):
        return FeedNote(reason=FeedReason.PIPE)
    if loader.num_workers == 0:
        return FeedNote(reason=FeedReason.IN_PROCESS)
    if has_own_iterator or type(loader)._get_iterator is not dataloader.DataLoader._get_iterator:
        return FeedNote(reason=FeedReason.OWN_ITERATOR, detail=type(loader).__name__)
    # the workers of an iterable data set are seeded as torch's are, and each has its own part of it
    found = FeedReason.FED if is_iterable else probe_samples(loader)
    if found is FeedReason.FED or (found is FeedReason.DRAWS and feeds_random()):
        return FeedNote(by="headrace", reason=FeedReason.FED)
    return FeedNote(reason=found)


def _tell(known: _FedLoader, iterator: "FedIterator", why: str, before: Any) -> None:
    """Write down who makes the batches now; an iterator that took another one's place goes on with its marks."""
    if before is not None:
        vars(iterator.inner).update({name: mark for name, mark in vars(before).items() if name.startswith(_MARK)})
    if why == "drew":
        if feeds_random():
            return
        known.note = replace(known.note, by="headrace", reason=FeedReason.DREW)
    elif iterator.is_ours:
        ours: Any = known.feeding and known.feeding.ours
        known.note = FeedNote(
            by="headrace",
            reason=FeedReason.FED,
            profile=ours.profile or "",
            num_workers=ours.num_workers,
            is_tuned=ours.tune is not None if feed_mode() == "tune" else None,
        )
    elif why == "begun":
        known.note = FeedNote(reason=FeedReason.MEASURED)
    else:
        known.note = FeedNote(reason=FeedReason.FAILED, detail=why)
        _say(known.name, why)
    _write(known)


def _write(known: _FedLoader) -> None:
    tape.write(_FEED, now(), 0, tape.name(known.name), tape.name(known.note.as_text()))


def _say(name: str, what: str) -> None:
    sys.stderr.write(f"headrace: {name} goes on with torch's own loader, for feeding it failed: {what}\n")
