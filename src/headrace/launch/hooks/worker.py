"""torch's workers, and its fetching in the training process: tasks, samples, collation, sending, idling, CPU time.

Where `headrace run` was asked to, workers get a heap that keeps its pages, and fewer threads.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dis import get_instructions
from operator import getitem
from traceback import walk_tb
from types import ModuleType, SimpleNamespace
from typing import Any

from headrace.model import EventKind, keeps_worker_heap, worker_threads
from headrace.signals import SHORT_TASK_NS, TaskPace, TaskUsage, begin_sample, born_ns, end_sample
from headrace.signals.system import set_worker_gains

from ..tape import note, now, tape
from .parts import time_stages
from .wrapping import instead_of

_FETCH, _SAMPLE, _COLLATE, _SEND, _IDLE, _WORKER_START = (
    int(EventKind[name]) for name in ("FETCH", "SAMPLE", "COLLATE", "SEND", "IDLE", "WORKER_START")
)


# what this process is fetching: the number of its batch, and the samples of it that were timed
_task = SimpleNamespace(number=-1, samples=0, samples_ns=0)


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
    """Time its fetching and collating; where samples are timed one by one, another stands in for their source.

    Samples that are not timed are fetched as without us: even to ask would show.
    """
    name = "dataset_iter" if hasattr(fetcher, "dataset_iter") else "dataset"
    plain = stand_in = getattr(fetcher, name)
    if name == "dataset_iter":
        if plain is not fetcher.dataset:  # torchdata saves the state of one that is both once
            stand_in = _TimedIterator(plain)
    else:
        takes_many = getattr(plain, "__getitems__", None) and fetcher.auto_collation
        stand_in = (_timed_batches if takes_many else _TimedDataset)(plain)

    def exchange(one: Any, other: Any) -> None:
        if getattr(fetcher, name) is one:  # somebody may have put in another
            setattr(fetcher, name, other)

    fetcher.collate_fn = _timed_collate(fetcher.collate_fn)
    use_stand_in, use_plain = (functools.partial(exchange, *pair) for pair in ((plain, stand_in), (stand_in, plain)))
    fetcher.fetch = _timed_fetch(fetcher.fetch, use_stand_in, use_plain)


class _StandIn:
    """What a fetcher sees while it is timed, and nobody else; all but the samples is that of the original."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)  # torchdata asks an iterator for its state


def _timed(number: int, count: int, fetch: Callable[..., Any], *args: Any) -> Any:
    clock = begin_sample()
    try:
        return fetch(*args)
    finally:
        if duration_ns := end_sample(clock, number, tape):
            _task.samples += count
            _task.samples_ns += duration_ns


class _TimedDataset(_StandIn):
    def __getitem__(self, index: Any) -> Any:
        return _timed(index if type(index) is int else -1, 1, getitem, self._original, index)


class _TimedBatches(_TimedDataset):
    """A data set that is asked for several samples at once: they are timed together."""

    def __getitems__(self, indices: Any) -> Any:
        return _timed(-max(1, len(indices)), len(indices), self._original.__getitems__, indices)


def _timed_batches(dataset: Any) -> Any:
    """Return what is asked for several samples at once; a `Subset`, as `random_split` makes it, may ask one by one."""
    if type(dataset).__module__ != "torch.utils.data.dataset" or not hasattr(dataset, "indices"):
        return _TimedBatches(dataset)
    timed, inner = copy.copy(dataset), dataset.dataset
    takes_many = callable(getattr(inner, "__getitems__", None))
    timed.dataset = _timed_batches(inner) if takes_many else _TimedDataset(inner)
    return timed


class _TimedIterator(_StandIn):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return _timed(-1, 1, next, self._original)


def _timed_collate(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def collate(data: Any) -> Any:
        start = now()
        try:
            return original(data)
        finally:
            tape.keep(_COLLATE, start, now() - start)

    return collate


def _timed_fetch(
    original: Callable[[Any], Any], use_stand_in: Callable[[], None], use_plain: Callable[[], None]
) -> Callable[[Any], Any]:
    """Return `fetch` with a FETCH for each call; of some tasks, samples and resources are looked at, too."""
    task, pace, resources = _task, TaskPace(), TaskUsage(tape)
    number, next_look = -1, 0

    def fetch(index: Any) -> Any:
        nonlocal number, next_look
        number += 1
        is_due = number >= next_look
        looks = is_due and pace.looks(number)
        if is_due:
            task.samples = task.samples_ns = 0
        if times := is_due and pace.times_samples(number):
            use_stand_in()
        if looks:
            resources.start()
        start = now()
        try:
            return original(index)
        except Exception as error:
            if not times and (failed := _failed_at(error, index)) >= 0:
                took = (now() - start) // len(index)  # its own time is not known
                tape.write(_SAMPLE, now() - took, took, failed)
            raise
        finally:
            duration = now() - start
            tape.keep(_FETCH, start, duration, task.number)
            if looks:
                resources.write(start, duration)
            if is_due:
                use_plain()
                next_look = pace.looked(number, start, duration, task.samples, task.samples_ns)
            elif duration >= SHORT_TASK_NS:
                next_look = pace.long_task(number)

    return fetch


def _failed_at(error: Exception, indices: Any) -> int:
    """Return the index of the sample that raised, by what the data set was asked; -1 where that does not tell."""
    for frame, _ in walk_tb(error.__traceback__):
        names = frame.f_code.co_varnames
        if frame.f_code.co_name == "__getitem__" and len(names) > 1:
            index = frame.f_locals.get(names[1])
            stores = (one.argval for one in get_instructions(frame.f_code) if one.opname.startswith("STORE_"))
            is_as_given = all(names[1] not in (one if isinstance(one, tuple) else (one,)) for one in stores)
            return index if is_as_given and type(index) is int and type(indices) is list and index in indices else -1
    return -1


def time_worker_loop(worker: ModuleType) -> None:
    """Time a worker's whole life. The wrapper bears the original's name, by which `spawn` finds it."""
    original = worker._worker_loop
    signature = inspect.signature(original)

    @instead_of(worker, "_worker_loop")
    def _worker_loop(*args: Any, **kwargs: Any) -> None:
        try:
            tape.say_role("worker")
            index_queue = signature.bind(*args, **kwargs).arguments["index_queue"]
            index_queue.get = _with_gains(_timed_idling(index_queue.get))
            _time_pickling()
        except Exception as error:
            note(f"worker: {type(error).__name__}: {error}")
        try:
            original(*args, **kwargs)
        finally:
            tape.write_kept()


def _with_gains(get: Callable[..., Any]) -> Callable[..., Any]:
    """Return a worker's way to its work that sets what was asked for: behind torch's own settings and `init_fn`."""
    threads, keeps_heap = worker_threads(), keeps_worker_heap()
    is_due = keeps_heap or threads > 0

    def first_set(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_due
        if is_due:
            is_due = False
            set_worker_gains(keeps_heap=keeps_heap, threads=threads)
        return get(*args, **kwargs)

    return first_set if is_due else get


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
        loads = original.loads

        @staticmethod
        def dumps(*args: Any, **kwargs: Any) -> Any:
            start = now()
            data = original.dumps(*args, **kwargs)
            tape.write(_SEND, start, now() - start, len(data))
            return data

    queues._ForkingPickler = Pickler  # type: ignore[attr-defined]
