"""torch's workers, and its fetching in the training process: tasks, samples, collation, sending, idling, CPU time."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from headrace.model import EventKind
from headrace.signals.timing import SHORT_TASK_NS, TaskPace, TaskResources, begin_sample, born_ns, end_sample

from ..tape import note, now, tape
from .parts import time_stages

_FETCH, _COLLATE, _SEND, _IDLE, _WORKER_START = (
    int(kind) for kind in (EventKind.FETCH, EventKind.COLLATE, EventKind.SEND, EventKind.IDLE, EventKind.WORKER_START)
)


class _Task:
    """What a process is fetching: the number of its batch, and whether its samples are timed one by one."""

    number = -1
    times_samples = True
    samples_ns = 0
    samples = 0


_task = _Task()


def time_fetchers(kinds: Any) -> None:
    """Time what a fetcher does, wherever it is made, and what a data set names in it."""
    time_stages()
    original = kinds.create_fetcher

    @functools.wraps(original)
    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = original(*args, **kwargs)
        try:
            _time_fetcher(fetcher)
        except Exception as error:
            note(f"fetcher: {type(error).__name__}: {error}")
        return fetcher

    kinds.create_fetcher = staticmethod(create_fetcher)


def _time_fetcher(fetcher: Any) -> None:
    if hasattr(fetcher, "dataset_iter"):
        if fetcher.dataset_iter is not fetcher.dataset:  # torchdata saves the state of one that is both once
            fetcher.dataset_iter = _TimedIterator(fetcher.dataset_iter)
    elif not (getattr(fetcher.dataset, "__getitems__", None) and fetcher.auto_collation):
        fetcher.dataset = _TimedDataset(fetcher.dataset)
    elif type(fetcher.dataset).__module__ == "torch.utils.data.dataset" and hasattr(fetcher.dataset, "indices"):
        fetcher.dataset = _timed_subset(fetcher.dataset)
    else:
        fetcher.dataset = _TimedBatches(fetcher.dataset)
    fetcher.collate_fn = _timed_collate(fetcher.collate_fn)
    fetcher.fetch = _timed_fetch(fetcher.fetch)


class _TimedDataset:
    """A data set as the fetcher sees it: each sample is timed. Nobody else gets to see this object."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __getitem__(self, index: Any) -> Any:
        if not _task.times_samples:
            return self._dataset[index]
        clock = begin_sample()
        try:
            return self._dataset[index]
        finally:
            _sample_done(end_sample(clock, index if type(index) is int else -1, tape))


class _TimedBatches(_TimedDataset):
    """A data set that is asked for several samples at once: they are timed together."""

    def __getitems__(self, indices: Any) -> Any:
        if not _task.times_samples:
            return self._dataset.__getitems__(indices)
        clock = begin_sample()
        try:
            return self._dataset.__getitems__(indices)
        finally:
            _sample_done(end_sample(clock, -max(1, len(indices)), tape), len(indices))


def _timed_subset(subset: Any) -> Any:
    """Return a `Subset`, as `random_split` makes them, that asks for its samples one by one, as the original does."""
    timed = copy.copy(subset)
    inner = subset.dataset
    if not callable(getattr(inner, "__getitems__", None)):
        timed.dataset = _TimedDataset(inner)
    elif type(inner) is type(subset):
        timed.dataset = _timed_subset(inner)
    else:
        timed.dataset = _TimedBatches(inner)
    return timed


class _TimedIterator:
    """An iterable data set's iterator, each of its samples timed."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)  # torchdata asks an iterator for its state

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not _task.times_samples:
            return next(self._iterator)
        clock = begin_sample()
        try:
            return next(self._iterator)
        finally:
            _sample_done(end_sample(clock, -1, tape))


def _sample_done(duration_ns: int, count: int = 1) -> None:
    if duration_ns:
        _task.samples += count
        _task.samples_ns += duration_ns


def _timed_collate(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def collate(data: Any) -> Any:
        start = now()
        try:
            return original(data)
        finally:
            tape.keep(_COLLATE, start, now() - start)

    return collate


def _timed_fetch(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `fetch` with a FETCH for each call; of some tasks, samples and resources are looked at, too."""
    task, pace, resources = _task, TaskPace(), TaskResources(tape)
    number, next_look = -1, 0
    samples = _SampleSource(getattr(original, "__self__", None))

    def fetch(index: Any) -> Any:
        nonlocal number, next_look
        number += 1
        if number >= next_look:
            return fetch_and_look(index)
        start = now()
        try:
            return original(index)
        finally:
            duration = now() - start
            tape.keep(_FETCH, start, duration, task.number)
            if duration >= SHORT_TASK_NS:
                next_look = pace.long_task(number)

    def fetch_and_look(index: Any) -> Any:
        nonlocal next_look
        task.samples = task.samples_ns = 0
        task.times_samples, looks = pace.times_samples(number), pace.looks(number)
        if task.times_samples:
            samples.use_stand_in()
        if looks:
            resources.start()
        start = now()
        try:
            return original(index)
        finally:
            duration = now() - start
            samples.use_plain()
            tape.keep(_FETCH, start, duration, task.number)
            if looks:
                resources.write(start, duration)
            next_look = pace.looked(number, start, duration, task.samples, task.samples_ns)

    samples.use_plain()
    return fetch


class _SampleSource:
    """Where a fetcher takes samples from: what the user gave, and while they are timed what stands in for it.

    Samples that are not timed are fetched as without us: even to ask would show.
    """

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher
        self._name = "dataset_iter" if hasattr(fetcher, "dataset_iter") else "dataset"
        self._stand_in = getattr(fetcher, self._name, None)
        self._plain = self._stand_in
        if isinstance(self._stand_in, (_TimedDataset, _TimedIterator)):
            self._plain = next(iter(vars(self._stand_in).values()))

    def use_stand_in(self) -> None:
        self._exchange(self._plain, self._stand_in)

    def use_plain(self) -> None:
        self._exchange(self._stand_in, self._plain)

    def _exchange(self, one: Any, other: Any) -> None:
        if one is not other and getattr(self._fetcher, self._name, None) is one:  # somebody may have put in another
            setattr(self._fetcher, self._name, other)


def time_worker_loop(worker: ModuleType) -> None:
    """Time a worker's whole life. The wrapper bears the original's name, by which `spawn` finds it."""
    original = worker._worker_loop
    signature = inspect.signature(original)

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> None:
        try:
            tape.say_role("worker")
            index_queue = signature.bind(*args, **kwargs).arguments["index_queue"]
            index_queue.get = _timed_idling(index_queue.get)
            _time_pickling()
        except Exception as error:
            note(f"worker: {type(error).__name__}: {error}")
        try:
            original(*args, **kwargs)
        finally:
            tape.write_kept()

    worker._worker_loop = _worker_loop  # type: ignore[attr-defined]


def _timed_idling(original: Callable[..., Any]) -> Callable[..., Any]:
    current, mark = _task, tape.mark_task
    is_first = True

    def get(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        mark(0)
        current.number = -1
        start = now()
        try:
            task = original(*args, **kwargs)
            if type(task) is tuple:
                current.number = task[0]
            return task
        finally:
            end = now()
            if current.number >= 0:
                mark(end)
            if is_first:
                is_first = False
                born = born_ns()
                tape.write(_WORKER_START, born, max(0, start - born))
            tape.keep(_IDLE, start, end - start)

    return get


def _time_pickling() -> None:
    """Time a queue's pickling, which happens in a thread of its own and copies tensors into shared memory."""
    from multiprocessing import queues

    original = queues._ForkingPickler  # type: ignore[attr-defined]

    class Pickler:
        """The pickler as the queues of this worker see it."""

        loads = original.loads

        @staticmethod
        def dumps(*args: Any, **kwargs: Any) -> Any:
            start = now()
            data = original.dumps(*args, **kwargs)
            tape.write(_SEND, start, now() - start, len(data))
            return data

    queues._ForkingPickler = Pickler  # type: ignore[attr-defined]
