"""torch's DataLoader in the training process: the start of each epoch, every `next`, waiting for workers, pinning."""

import contextlib
import functools
import os
import sys
import traceback
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace.model import EventKind, LoaderSettings, nbytes_of
from headrace.signals import NextWatch

from ..tape import now, tape
from .device import say_rank
from .feeding import feed_loaders, marked, standing_in
from .replay import with_replay
from .step import look_for_models
from .worker import time_fetchers, time_worker_loop
from .wrapping import LIBRARIES, instead_of, replace

_LOADER, _EPOCH, _WAIT, _QUEUE_GET, _PIN = (
    int(kind) for kind in (EventKind.LOADER, EventKind.EPOCH, EventKind.WAIT, EventKind.QUEUE_GET, EventKind.PIN)
)
ENDED = -1  # the value of a WAIT that brought no batch: the epoch is over

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep

_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_epochs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_places: weakref.WeakKeyDictionary[Any, tuple[str, ...]] = weakref.WeakKeyDictionary()  # where it was made
_kinds: dict[str, int] = {}
_made: dict[tuple[Any, ...], dict[str, weakref.ref[Any]]] = {}  # by data and place: the last loader of each name
_beginning: set[int] = set()  # the ids of loaders whose `__iter__` is under way


def time_loaders(dataloader: ModuleType) -> None:
    """Time the loader's iterators, single and multi process, and have its workers timed."""
    feed_loaders(dataloader)
    for name in ("__iter__", "_get_iterator"):
        _time_beginning(dataloader.DataLoader, name)
    _note_places(dataloader.DataLoader)
    base = dataloader._BaseDataLoaderIter
    for cls in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        cls.__next__ = with_replay(timed_next(base.__next__))
    workers = dataloader._MultiProcessingDataLoaderIter
    workers._try_get_data = _timed_get(workers._try_get_data)
    NextWatch.install(lambda take: with_replay(timed_next(take)))  # our own loader's
    time_fetchers(dataloader._DatasetKind)
    time_worker_loop(dataloader._utils.worker)
    # the copy to page-locked memory, in the loader's own thread or in `next`; it calls itself for nested data
    replace(dataloader._utils.pin_memory, "pin_memory", _PIN, "", set(), lambda args, _: nbytes_of(args[0]))


def time_stateful_loader(module: ModuleType) -> None:
    """Time torchdata's loader, which has iterators of its own; its workers are timed as torch's are."""
    _time_beginning(module.StatefulDataLoader, "__iter__")
    workers = module._StatefulMultiProcessingDataLoaderIter
    for cls in (module._StatefulSingleProcessDataLoaderIter, workers):
        cls.__next__ = timed_next(module._StatefulBaseDataLoaderIter.__next__)
    workers._try_get_data = _timed_get(workers._try_get_data)


def name_of(loader: Any) -> str:
    """Return what tells a loader from others: its data set, and which of the loaders over such it is.

    One that is made anew, in each epoch say, is the one before: made at the same place over as much data of the same
    kind, after the one before was gone.
    """
    name = _names.get(loader)
    if name is None:
        kind, length = type(loader.dataset).__name__, -1
        with contextlib.suppress(Exception):  # one that is iterable, as a rule
            length = len(loader.dataset)
        made = _made.setdefault((kind, length, *_places.setdefault(loader, _place_here())), {})
        name = next((known for known, before in made.items() if before() is None), None)
        if name is None:
            count = _kinds[kind] = _kinds.get(kind, 0) + 1
            name = f"{kind}#{count}"
        made[name] = weakref.ref(loader)
        _names[loader] = name
    return name


def _note_places(cls: Any) -> None:
    original = cls.__init__

    @instead_of(cls, "__init__")
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):  # whatever a class of the script's own makes of its hash
            _places[self] = _place_here()
        original(self, *args, **kwargs)


def _place_here() -> tuple[str, ...]:
    """Return the lines of the script that led here, the innermost first; if all is a library's, its innermost one."""
    frames = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(sys._getframe(1)))
    lines = [f"{file}:{line}" for file, line in frames if not file.startswith(_OURS)]
    own = (line for line in lines if not any(part in line for part in LIBRARIES))
    return tuple(own) or tuple(lines[:1])


def settings_of(loader: Any) -> LoaderSettings:
    acting = standing_in(loader)
    packages = [cls.__module__.split(".")[0] for cls in type(acting).__mro__]
    numbers = {"batch_size": loader.batch_size}
    numbers |= {name: getattr(acting, name) for name in ("num_workers", "prefetch_factor")}
    return LoaderSettings(
        by="headrace" if "headrace" in packages else packages[0],
        place=next(iter(_places.get(loader, ())), ""),
        **{name: value for name, value in numbers.items() if isinstance(value, int)},
        pin_memory=bool(loader.pin_memory),
        persistent_workers=bool(loader.persistent_workers),
        in_order=bool(getattr(loader, "in_order", True)),
        tunes_itself=getattr(acting, "tune", None) == "online",
    )


def time_endless_loader(module: ModuleType) -> None:
    """Time Ultralytics' loader, which goes on with one endless iterator: that it begins an epoch, nobody else knows."""
    cls = module.InfiniteDataLoader
    original = cls.__iter__

    @instead_of(cls, "__iter__")
    def __iter__(self: Any) -> Any:
        if self.iterator is not None:
            _begin_epoch(self, lambda: self.iterator)
        yield from original(self)


def _time_beginning(cls: Any, name: str) -> None:
    """Have an epoch begin where a method makes an iterator, once: a loader may have an `__iter__` of its own."""
    original = getattr(cls, name)

    @instead_of(cls, name)
    def begin(self: Any) -> Any:
        return original(self) if id(self) in _beginning else _begin_epoch(self, lambda: original(self))


def _begin_epoch(loader: Any, begin: Callable[[], Any]) -> Any:
    """Return the iterator that `begin` gives, with an EPOCH for what that took; its batches are counted from 0."""
    tape.say_role("trainer")
    say_rank()
    look_for_models()
    text = name_of(loader)
    epoch = _epochs[loader] = _epochs.get(loader, -1) + 1
    _beginning.add(id(loader))
    start = now()
    try:
        iterator = begin()
    finally:
        _beginning.discard(id(loader))
        tape.num_epochs += 1
        number = tape.name(text)
        tape.write(_LOADER, start, 0, number, tape.name(settings_of(loader).as_text()))
        tape.write(_EPOCH, start, now() - start, epoch, number)
    if hasattr(iterator, "__dict__"):
        marked(iterator).__dict__.update(_headrace_loader=text, _headrace_batches=0)
    return iterator


def timed_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        state = self.__dict__
        value = state.get("_headrace_batches", 0)
        if value < 4 or not value % 64:  # a second model may join later
            look_for_models()
        start = now()
        try:
            batch = original(self)
            state["_headrace_batches"] = value + 1
            return batch
        except StopIteration:
            value = ENDED
            raise
        finally:
            duration = now() - start
            tape.num_waits += 1
            text = state.get("_headrace_loader", "loader")
            tape.keep(_WAIT, start, duration, value, tape.names.get(text) or tape.name(text))

    return __next__


def _timed_get(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            ready = self._data_queue.qsize()
        except (NotImplementedError, OSError, ValueError):  # not on macOS; not on a queue that is closed
            ready = 0
        start = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            duration = now() - start
            text = self.__dict__.get("_headrace_loader", "loader")
            tape.keep(_QUEUE_GET, start, duration, ready, tape.names.get(text) or tape.name(text))

    return _try_get_data
