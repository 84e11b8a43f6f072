"""What a torch user sees: `DataLoader`, torch's own with an engine that does not stall."""

from __future__ import annotations

import inspect
import logging
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import torch
import torch.utils.data as torch_data
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import pin_memory as _pin_memory

from .engine import (
    Budget,
    DeviceCopier,
    Feed,
    FeedSettings,
    HostRegistration,
    LocalFetcher,
    Pool,
    PoolPlan,
    find_budget,
    lies_in_dev_shm,
    mix_seed,
    usable_processors,
    workers_for,
)
from .errors import BatchTooLarge, HeadraceError, NotSupported, WorkerLost
from .model import LoaderStats, SlotStats, WaitStats, keeps_statistics, parse_bytes

_log = logging.getLogger(__name__)

pin_batch: Callable[[Any, Any], Any] = _pin_memory.pin_memory

_is_profiling: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)

_T_co = TypeVar("_T_co", covariant=True)
_BACKENDS = ("auto", "process", "thread")
_ORIGINAL_COLLATIONS = dict(torch_collate.default_collate_fn_map)
_MAX_SEED = (1 << 63) - 1


class DataLoader(torch_data.DataLoader[_T_co]):
    """torch's DataLoader with the same arguments and results, and waits that stay even.

    All workers fill the next batch together, sample by sample, straight into reused shared memory. Batches are
    views of that memory and live as long as you hold them. Arguments of our own, by keyword:

    - `memory`: bytes that queued batches may take (int or "8GiB"); default a quarter of what is free.
    - `backend`: "process", "thread" (threads inside one loader process), or "auto", which measures.
    - `on_error`: "raise", as torch does.
    - `device`: copy batches there on a side stream ("cuda"); off by default.
    - `record`: keep times and histograms for `stats()`; costs under 2 %.

    `num_workers` not given means chosen from a measurement of the first samples, and said in the log and in
    `stats()`; 0 means in-process, as in torch.
    """

    def __init__(
        self,
        dataset: torch_data.Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: torch_data.Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: torch_data.Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        memory: int | str | None = None,
        backend: str = "auto",
        on_error: str = "raise",
        device: torch.device | str | None = None,
        record: bool | None = None,
    ) -> None:
        if backend not in _BACKENDS:
            raise ValueError(f"backend={backend!r}: choose one of {', '.join(map(repr, _BACKENDS))}")
        if on_error != "raise":
            raise ValueError(f"on_error={on_error!r}: only 'raise' is supported in this version")
        if memory is not None:
            parse_bytes(memory)
        self.memory, self.backend, self.on_error = memory, backend, on_error
        self.device = None if device is None else torch.device(device)
        self.record = keeps_statistics() if record is None else record
        self._is_chosen = num_workers is None
        self._is_decided = not self._is_chosen
        self._workers_reason = "as asked for"
        self._asked_prefetch_factor = prefetch_factor
        self._asked_ahead: int | None = None
        self._thread_rate: float | None = None  # of two threads over one, once it was measured
        self._draws = False
        self._histogram: Any = None  # sample times of earlier epochs
        self._live: weakref.WeakSet[_Counted] = weakref.WeakSet()
        self._last_stats: LoaderStats | None = None
        if num_workers is None:
            num_workers = usable_processors()
            self._workers_reason = "to be measured on the first samples"
        extra: dict[str, Any] = {"in_order": in_order} if _HAS_IN_ORDER else {}
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **extra,
        )
        self.in_order = in_order

    # ------------------------------------------------------------------------------------ iteration

    def _get_iterator(self) -> Any:
        if isinstance(self.dataset, (torch_data.IterDataPipe, torch_data.MapDataPipe)):
            _say_once("data pipes run in torch's own loader: Headrace does not speed them up")
            return super()._get_iterator()
        if self.num_workers == 0:
            return _SeededLocalIterator(self) if self._is_chosen else _LocalIterator(self)
        if not self._is_chosen:
            self.check_worker_number_rationality()
        return _WorkersIterator(self)

    @property
    def _uses_slots(self) -> bool:
        """Whether batches are what `default_collate` makes, and nobody changed how it treats tensors and numbers."""
        return (
            self._auto_collation
            and self.collate_fn is torch_collate.default_collate
            and torch_collate.default_collate_fn_map == _ORIGINAL_COLLATIONS
        )

    @property
    def _has_getitems(self) -> bool:
        return bool(getattr(self.dataset, "__getitems__", None))

    @property
    def _is_iterable(self) -> bool:
        return bool(self._dataset_kind == torch_loader._DatasetKind.Iterable)

    # ------------------------------------------------------------------------------------ control

    def resize(self, *, num_workers: int | None = None, prefetch_batches: int | None = None) -> None:
        """Change the number of workers, or of batches ahead, while a loop iterates or before the next one.

        No sample is lost, repeated or reordered. Workers that go finish what they have in hand.
        """
        for name, value in (("num_workers", num_workers), ("prefetch_batches", prefetch_batches)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
        running = [it for it in self._live if isinstance(it, _WorkersIterator) and it.is_open]
        if num_workers is not None and running and self._is_iterable:
            raise NotSupported(
                "the workers of an IterableDataset each own a part of the data: their number is fixed while it is read",
                next_step="call resize before the epoch starts",
            )
        if self.num_workers == 0 and running == [] and prefetch_batches is not None and num_workers is None:
            raise ValueError("prefetch_batches needs workers: this loader has num_workers=0")
        if prefetch_batches is not None:
            self._asked_ahead = prefetch_batches
        if num_workers is not None:
            self.num_workers, self._workers_reason = num_workers, "set by resize()"
            self._is_chosen, self._is_decided = False, True
            if self.prefetch_factor is None:
                self.prefetch_factor = 2
        for iterator in running:
            iterator.resize(num_workers, prefetch_batches)

    def stats(self) -> LoaderStats:
        """A frozen snapshot of what this loader is doing, or of how the last epoch ended."""
        newest: _Counted | None = None
        for iterator in self._live:
            if iterator.is_open and (newest is None or iterator.opened_at > newest.opened_at):
                newest = iterator
        if newest is not None:
            return newest.snapshot()
        if self._last_stats is not None:
            return self._last_stats
        return _empty_stats(self)

    def __repr__(self) -> str:
        workers = f"{self.num_workers} workers" if self.num_workers else "in-process"
        return f"<headrace.DataLoader of {type(self.dataset).__name__}: batch {self.batch_size}, {workers}>"


# --------------------------------------------------------------------------------------------- iterators


class _Counted:
    """What every iterator of ours can tell."""

    opened_at: float
    is_open: bool

    def snapshot(self) -> LoaderStats:
        raise AssertionError("each iterator says this for itself")


class _WorkersIterator(torch_loader._BaseDataLoaderIter, _Counted):
    """An epoch (or, with persistent workers, all epochs) through a pool."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.opened_at, self.is_open = time.perf_counter(), True
        self._fatal: HeadraceError | None = None
        self._loader = loader
        self._is_undecided = not loader._is_decided and not loader._is_iterable
        if loader._is_chosen and loader._is_iterable:
            loader._workers_reason = "one per usable processor: each reads its own part of an IterableDataset"
        self._budget = find_budget(loader.memory, in_dev_shm=lies_in_dev_shm())
        self._context = loader.multiprocessing_context or torch.multiprocessing.get_context()
        self._backend, self._backend_reason = _choose_backend(loader, self._context.get_start_method())
        self._local: Iterator[Any] | None = None
        self._copier = DeviceCopier(loader.device) if loader.device is not None else None
        self._registration: HostRegistration | None = None
        self._epoch = -1
        pool = Pool(self._pool_plan(loader))
        self._feed = Feed(
            pool, self._feed_settings(loader, self._context.get_start_method()), earlier=loader._histogram
        )
        if self._wants_registration():
            self._registration = HostRegistration(pool.arena)
            self._feed.slots.on_first_lease = self._registration.add
        self._closer = weakref.finalize(self, _close_pool, pool, self._copier, self._registration)
        try:
            if self._is_undecided:
                self._feed.replay = []
            pool.reserve(1 if self._is_undecided else loader.num_workers)
            self._reset(loader, first_iter=True)
            self._launch(pool)
        except BaseException:
            self._closer()
            raise
        loader._live.add(self)
        _log.info(
            "%s: %s workers (%s), backend %s (%s), start method %s, memory budget %s",
            loader,
            loader.num_workers,
            loader._workers_reason,
            self._backend,
            self._backend_reason,
            self._context.get_start_method(),
            self._budget.reason,
        )

    def _launch(self, pool: Pool) -> None:
        try:
            pool.launch()
        except (TypeError, AttributeError) as error:
            if "pickle" not in str(error).lower():
                raise
            warnings.warn(
                "Got pickle error when attempting to start a worker process: the data set, collate_fn or "
                "worker_init_fn cannot travel to a process under the "
                f"{self._context.get_start_method()!r} start method. Move what it names to module level, or pass "
                "multiprocessing_context='fork'.",
                stacklevel=5,
            )
            raise

    def _pool_plan(self, loader: DataLoader[Any]) -> PoolPlan:
        return PoolPlan(
            dataset=loader.dataset,
            collate=None if loader._uses_slots else loader.collate_fn,
            init_fn=loader.worker_init_fn,
            context=self._context,
            base_seed=int(self._base_seed),
            is_iterable=loader._is_iterable,
            is_batched=loader._auto_collation,
            drop_last=loader.drop_last,
            uses_slots=loader._uses_slots,
            has_getitems=loader._has_getitems and loader._auto_collation,
            in_threads=self._backend == "thread",
            copies_dataset=self._backend == "thread" and loader.backend == "auto",
            record=loader.record,
            budget_bytes=self._budget.bytes,
        )

    @staticmethod
    def _feed_settings(loader: DataLoader[Any], start_method: str) -> FeedSettings:
        ahead = loader._asked_ahead
        if ahead is None and loader._asked_prefetch_factor is not None:
            ahead = max(1, loader._asked_prefetch_factor * loader.num_workers)
        return FeedSettings(
            is_iterable=loader._is_iterable,
            is_batched=loader._auto_collation,
            uses_slots=loader._uses_slots,
            whole_batches=not loader._auto_collation or (loader._has_getitems and not loader._uses_slots),
            in_order=loader.in_order,
            timeout_s=loader.timeout,
            batches_ahead=ahead,
            collate=_collate_as_workers_do if loader._uses_slots else loader.collate_fn,
            measures_threads=loader.backend == "auto" and loader._thread_rate is None and not loader._is_iterable,
            measures_at_end=start_method != "fork",
        )

    def _wants_registration(self) -> bool:
        pins = bool(self._pin_memory) and self._pin_memory_device in ("cuda", None, "")
        copies = self._copier is not None and self._copier.device.type == "cuda"
        return (pins or copies) and torch.cuda.is_available() and torch.version.cuda is not None

    # ------------------------------------------------------------------------------------ torch's protocol

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._epoch += 1
        # persistent workers keep torch's base seed; the epoch must still change what samples draw
        base_seed = int(self._base_seed)
        seed = base_seed if not self._epoch else mix_seed(base_seed, -1 - self._epoch) & _MAX_SEED
        if self._copier is not None:
            self._copier.close()
        self._feed.start_epoch(self._sampler_iter, seed)

    def __next__(self) -> Any:
        # torch's own adds a mark for its profiler and counts an IterableDataset's batches: only then is it needed
        if self._dataset_kind == torch_loader._DatasetKind.Map and not _is_profiling():
            return self._next_data()
        return super().__next__()

    def _next_data(self) -> Any:
        if self._fatal is not None:
            raise copy(self._fatal)
        try:
            if self._is_undecided:
                self._decide()
            if self._local is not None:
                return self._next_local()
            if not self.is_open:
                raise StopIteration
            return self._next_on_device() if self._copier is not None else self._next_on_host()
        except StopIteration:
            if self.is_open and self._local is None:
                self._end_of_epoch()
            raise
        except (WorkerLost, BatchTooLarge) as error:
            self._give_up(error)
            raise

    def _give_up(self, error: HeadraceError) -> None:
        """What was in flight cannot come any more: end here, and let a next epoch begin with new workers."""
        self._fatal = copy(error)  # without its traceback, which would keep this iterator
        if self._loader._iterator is self:
            self._loader._iterator = None
        self.close()

    def _end_of_epoch(self) -> None:
        feed, loader = self._feed, self._loader
        feed.finish_measuring()
        if feed.thread_gain is not None and loader._thread_rate is None:
            loader._thread_rate, loader._draws = feed.thread_gain, feed.draws
            choice, reason = _choose_backend(loader, self._context.get_start_method())
            _log.info("%s: backend %s from the next epoch on (%s)", loader, choice, reason)
        if self._backend == "thread" and feed.draws:
            _say_once(
                "the data set draws from a global random generator, which threads share: results depend on timing. "
                "Use backend='process' for random numbers that depend on the sample alone."
            )
        if not loader.persistent_workers:
            self.close()
        else:
            loader._last_stats = self.snapshot()

    def _next_on_host(self) -> Any:
        batch = self._feed.next()
        if self._pin_memory and not (self._registration is not None and _is_pinned(batch)):
            return pin_batch(batch, self._pin_memory_device)
        return batch

    def _next_on_device(self) -> Any:
        copier = self._copier
        assert copier is not None
        started = time.perf_counter()
        if not copier.num_ahead:
            copier.start(self._feed.next())
        batch = copier.take()
        # the next one, if it is there already, crosses while this one is being used
        if self._feed.has_ready:
            copier.start(self._feed.next())
        self._feed.note_device_wait(time.perf_counter() - started)
        return batch

    # ------------------------------------------------------------------------------------ choosing workers

    def _decide(self) -> None:
        """Choose the number of workers from what the first worker measured on the first samples."""
        self._is_undecided = False
        loader, feed = self._loader, self._feed
        sample_s, cpu_share = feed.measure_first_samples()
        if not loader._is_decided:
            loader.num_workers, loader._workers_reason = workers_for(sample_s, cpu_share, usable_processors())
            loader._is_decided = True
            _log.info("%s: num_workers was not given; chosen %s", loader, loader._workers_reason)
        count = loader.num_workers
        if count == 0:
            fetcher = LocalFetcher(
                loader.dataset,
                loader.collate_fn,
                is_batched=loader._auto_collation,
                has_getitems=loader._has_getitems,
                is_default_collation=loader._uses_slots,
            )
            indices = chain(feed.replay or [], self._sampler_iter)
            self._local = _local_batches(fetcher, indices, int(self._base_seed), is_batched=loader._auto_collation)
            self._stop_pool()
        elif count > 1:
            feed.pool.grow(count - 1)
        feed.replay = None

    def _next_local(self) -> Any:
        started = time.perf_counter()
        assert self._local is not None
        try:
            batch = next(self._local)
        except StopIteration:
            self.close()
            raise
        if self._pin_memory:
            batch = pin_batch(batch, self._pin_memory_device)
        if self._copier is not None:
            self._copier.start(batch)
            batch = self._copier.take()
        self._feed.note_local(time.perf_counter() - started, _rows_of(self._loader, batch))
        return batch

    def resize(self, num_workers: int | None, prefetch_batches: int | None) -> None:
        pool = self._feed.pool
        if prefetch_batches is not None:
            self._feed.asked_ahead = prefetch_batches
        if num_workers is None or self._local is not None:
            return
        self._is_undecided = False
        self._feed.replay = None
        change = num_workers - pool.num_workers
        if change > 0:
            pool.grow(change)
        elif change < 0:
            pool.shrink(-change)
        pool.flush()

    # ------------------------------------------------------------------------------------ end

    def _stop_pool(self) -> None:
        self._closer.detach()
        _close_pool(self._feed.pool, None, self._registration)

    def close(self) -> None:
        """End the workers; what was delivered stays valid."""
        if self.is_open:
            self._loader._last_stats = self.snapshot()
            self._loader._histogram = self._feed.histogram()
            self.is_open = False
            self._closer()

    _shutdown_workers = close  # the name by which Lightning and others end torch's iterator

    def snapshot(self) -> LoaderStats:
        feed, loader = self._feed, self._loader
        elapsed = max(1e-9, time.perf_counter() - self.opened_at)
        ahead, ahead_reason = feed.ahead
        is_local = self._local is not None
        workers = feed.worker_stats()
        return LoaderStats(
            backend="in-process" if is_local else self._backend,
            backend_reason=loader._workers_reason if is_local else self._backend_reason,
            num_workers=0 if is_local else feed.pool.num_workers,
            num_workers_reason=loader._workers_reason,
            start_method=self._context.get_start_method(),
            budget_bytes=self._budget.bytes,
            budget_reason=self._budget.reason,
            epoch=feed.epoch,
            batches_delivered=feed.delivered,
            samples_delivered=feed.delivered_samples,
            samples_per_s=feed.delivered_samples / elapsed,
            bytes_per_s=feed.bytes_written() / elapsed,
            prefetch_batches=ahead,
            prefetch_reason=ahead_reason,
            batches_ready=feed.scheduler.num_ready,
            batches_in_flight=feed.scheduler.in_flight,
            chunk_samples=feed.chunk,
            slot_batches=feed.slot_batches,
            general_batches=feed.general_batches,
            copied_batches=feed.copied_batches,
            page_faults_per_sample=feed.faults_per_sample(),
            sample_times=feed.sample_times(),
            waits=feed.wait_stats(),
            slots=feed.slots.stats(num_filled=feed.scheduler.num_ready),
            workers=workers,
        )


class _LocalIterator(torch_loader._SingleProcessDataLoaderIter, _Counted):
    """torch's own in-process iterator, counted."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.opened_at, self.is_open = time.perf_counter(), True
        self._loader = loader
        self._copier = DeviceCopier(loader.device) if loader.device is not None else None
        self._counts = _LocalCounts()
        loader._live.add(self)

    def _next_data(self) -> Any:
        started = time.perf_counter()
        try:
            batch = self._fetch()
        except StopIteration:
            if self.is_open:
                self._loader._last_stats = self.snapshot()
                self.is_open = False
            raise
        if self._copier is not None:
            self._copier.start(batch)
            batch = self._copier.take()
        self._counts.note(time.perf_counter() - started, _rows_of(self._loader, batch))
        return batch

    def _fetch(self) -> Any:
        fetch: Callable[[], Any] = super()._next_data
        return fetch()

    def snapshot(self) -> LoaderStats:
        elapsed = max(1e-9, time.perf_counter() - self.opened_at)
        counts = self._counts
        return replace(
            _empty_stats(self._loader),
            batches_delivered=counts.batches,
            samples_delivered=counts.samples,
            samples_per_s=counts.samples / elapsed,
            waits=counts.waits(),
        )


class _SeededLocalIterator(_LocalIterator):
    """In-process because that was measured to be best: samples are seeded as workers would seed them."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        fetcher = LocalFetcher(
            loader.dataset,
            loader.collate_fn,
            is_batched=loader._auto_collation,
            has_getitems=loader._has_getitems,
            is_default_collation=loader._uses_slots,
        )
        self._batches = _local_batches(
            fetcher, self._sampler_iter, int(self._base_seed), is_batched=loader._auto_collation
        )

    def _fetch(self) -> Any:
        batch = next(self._batches)
        return pin_batch(batch, self._pin_memory_device) if self._pin_memory else batch


class _LocalCounts:
    """Waits of an in-process iterator: there, a wait is the time that fetching took."""

    def __init__(self) -> None:
        self.batches = self.samples = 0
        self.total_s = self.worst_s = self.first_s = 0.0
        self._recent: list[float] = []

    def note(self, wait_s: float, rows: int) -> None:
        self.first_s = self.first_s or wait_s
        self.batches += 1
        self.samples += rows
        self.total_s += wait_s
        self.worst_s = max(self.worst_s, wait_s)
        self._recent = [*self._recent[-255:], wait_s] if self.batches % 16 == 1 else self._recent

    def waits(self) -> WaitStats:
        recent = sorted(self._recent) or [0.0]
        return WaitStats(
            count=self.batches,
            total_s=self.total_s,
            median_s=recent[len(recent) // 2],
            p95_s=recent[min(len(recent) - 1, int(0.95 * len(recent)))],
            worst_s=self.worst_s,
            first_batch_s=self.first_s,
            recent_s=tuple(self._recent),
            step_median_s=0.0,
        )


# --------------------------------------------------------------------------------------------- small parts


def _local_batches(fetcher: LocalFetcher, indices: Iterable[Any], base_seed: int, *, is_batched: bool) -> Iterator[Any]:
    position = 0
    for some in indices:
        yield fetcher.fetch(some, base_seed, position)
        position += len(some) if is_batched else 1


def _collate_as_workers_do(samples: Any) -> Any:
    """The default collation as torch's workers run it: a batch of several dtypes takes that of its first sample."""
    collations = {**torch_collate.default_collate_fn_map, torch.Tensor: _stack}
    return torch_collate.collate(samples, collate_fn_map=collations)


def _stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        return torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return torch.stack(list(batch), 0, out=first.new_empty((len(batch), *first.shape)))


def _close_pool(pool: Pool, copier: DeviceCopier | None, registration: HostRegistration | None) -> None:
    if copier is not None:
        copier.close()
    pool.close()
    if registration is not None:
        registration.close()


# a second thread that brings this much nearly doubles the rate: the data set releases the interpreter's lock
_THREADS_PAY = 1.8


def _choose_backend(loader: DataLoader[Any], start_method: str) -> tuple[str, str]:
    """Threads or processes, and why.

    Under fork, processes start in milliseconds, share the data set's memory and isolate a crash: threads could only
    lose. Otherwise each process imports everything anew and holds a copy, which threads of one process avoid, each
    with its own copy of the data set so that nothing is shared that a process would not share.
    """
    if loader.backend != "auto":
        return loader.backend, "as asked for"
    gain = loader._thread_rate
    measured = f"a second thread was measured to bring {gain:.2f}x" if gain is not None else "threads not measured yet"
    if start_method == "fork":
        return "process", f"{measured}; under fork, processes start at once, share memory and isolate crashes"
    if gain is None:
        return "process", measured
    if loader._draws:
        return "process", f"{measured}; the data set draws random numbers, which threads cannot seed by sample"
    if gain >= _THREADS_PAY:
        return "thread", f"{measured}, so one process with threads saves {start_method!r} its imports and copies"
    return "process", f"{measured}, less than {_THREADS_PAY}x"


def _rows_of(loader: DataLoader[Any], batch: Any) -> int:
    if not loader._auto_collation:
        return 1
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(batch) if isinstance(batch, torch.Tensor) and batch.dim() else loader.batch_size or 1


def _is_pinned(batch: Any) -> bool:
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return isinstance(batch, torch.Tensor) and batch.is_pinned()


def _empty_stats(loader: DataLoader[Any]) -> LoaderStats:
    budget = find_budget(loader.memory) if loader.num_workers else Budget(0, "in-process: nothing is queued")
    return LoaderStats(
        backend="in-process" if loader.num_workers == 0 else loader.backend,
        backend_reason="num_workers=0" if loader.num_workers == 0 else "not started yet",
        num_workers=loader.num_workers,
        num_workers_reason=loader._workers_reason,
        start_method="",
        budget_bytes=budget.bytes,
        budget_reason=budget.reason,
        epoch=-1,
        batches_delivered=0,
        samples_delivered=0,
        samples_per_s=0.0,
        bytes_per_s=0.0,
        prefetch_batches=0,
        prefetch_reason="not started yet",
        batches_ready=0,
        batches_in_flight=0,
        chunk_samples=0,
        slot_batches=0,
        general_batches=0,
        copied_batches=0,
        page_faults_per_sample=None,
        sample_times=None,
        waits=_LocalCounts().waits(),
        slots=SlotStats(total=0, free=0, filling=0, filled=0, leased=0, slot_bytes=0, touched_bytes=0),
        workers=(),
    )


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.warning(text)


_HAS_IN_ORDER = "in_order" in inspect.signature(torch_data.DataLoader.__init__).parameters
