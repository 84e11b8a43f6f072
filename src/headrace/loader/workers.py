"""The iterator over a pool of workers: one epoch, or all of them with persistent workers."""

from __future__ import annotations

import logging
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import copy
from functools import partial
from itertools import chain
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader as torch_loader

from headrace.engine import (
    DeviceCopier,
    Ending,
    Feed,
    FeedSettings,
    HostRegistration,
    OnlineTuner,
    Pool,
    PoolPlan,
    find_budget,
    lies_in_dev_shm,
    mix_seed,
    place_workers,
    signals_later,
    usable_processors,
    workers_for,
)
from headrace.errors import BatchTooLarge, InternalError, NotSupported, TooManyBad, WorkerHang, WorkerLost
from headrace.knowledge import add_hint
from headrace.model import Count, LoaderStats, find_rank, is_from_signal, language
from headrace.signals import NextWatch

from .batches import collate_as_workers_do, is_pinned, pin_batch
from .local import LocalStages, local_batches
from .reading import Reading
from .snapshot import cannot_go_on, make_turns, say_once

if TYPE_CHECKING:
    from .dataloader import DataLoader

_log = logging.getLogger(__name__)

_ENDING = (WorkerLost, WorkerHang, BatchTooLarge, TooManyBad, NotSupported, InternalError)
_is_profiling: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)


class WorkersIterator(torch_loader._BaseDataLoaderIter):
    """An epoch (or, with persistent workers, all epochs) through a pool."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.opened_at, self.is_open, self._pid = time.perf_counter(), True, os.getpid()
        self._fatal: Exception | None = None
        # a loader with persistent workers holds its iterator: did that hold it in return, the workers of a loader that
        # nobody uses any more would stay until a garbage collection
        self._maker, self._settings = weakref.ref(loader), copy(loader) if loader.persistent_workers else loader
        self._is_undecided = not loader._is_decided
        self._budget = find_budget(loader.memory, in_dev_shm=lies_in_dev_shm())
        self._context = loader.multiprocessing_context or torch.multiprocessing.get_context()
        # under fork, processes start in milliseconds and share the data set's memory; and a crash ends one worker alone
        self._backend = "thread" if loader.backend == "thread" else "process"
        self._backend_reason = "as asked for" if loader.backend != "auto" else "processes isolate crashes"
        self._local: Iterator[Callable[[], Any]] | None = None
        self._copier = DeviceCopier(loader.device) if loader.device is not None else None
        self._registration: HostRegistration | None = None
        self._epoch, self._seed, self._turns = -1, 0, make_turns()
        self._is_inside = False  # `next` has begun, and has not come to its end
        self._on_its_way: dict[int, tuple[Any] | None] = {}  # by thread: a batch that its loop has not got yet
        self._placement = place_workers(loader.cpus, gpu=_gpu_address(loader.device))
        self._reading = Reading.start(loader, self, budget_bytes=self._budget.bytes)
        with ExitStack() as opened:  # an exception's traceback would keep it open, and us
            if self._reading is not None:
                opened.callback(self._reading.close)
            pool = self._open(1 if self._is_undecided else loader.num_workers)
            opened.callback(self._closer)
            if self._is_undecided:
                self._feed.plan.replay = []
            self._reset(loader, first_iter=True)
            self._launch(pool)
            opened.pop_all()
        loader._live.add(self)
        workers = f"{Count(pool.num_workers):worker(s)}"
        _log.info(
            "%s: %s (%s), backend %s (%s), start method %s, memory budget %s, processors %s",
            *(loader, workers, loader._workers_reason, self._backend, self._backend_reason),
            *(self._context.get_start_method(), self._budget.reason, self._placement.reason),
        )

    @property
    def _loader(self) -> DataLoader[Any]:
        loader = self._maker()
        return self._settings if loader is None else loader

    def _open(self, num_workers: int, before: Feed | None = None) -> Pool:
        """Make a pool, its workers yet to be launched, and what drives it (in place of another one)."""
        loader = self._loader
        with signals_later():  # or what one raises here would leave the pool's files without an owner
            pool = Pool(self._pool_plan(loader))
            earlier = loader._histogram if before is None else before.figures.histogram()
            self._feed = Feed(pool, self._feed_settings(loader), loader._condemned, earlier=earlier, before=before)
            if self._wants_registration():
                self._registration = HostRegistration(pool.arena)
                self._feed.slots.on_first_lease = self._registration.add
            self._closer = Ending(self, partial(_close_pool, pool, self._copier, self._registration))
        # of two iterators at once, each would take what the other does for what its own change brought
        if loader._controller is not None and all(one is self for one in loader._running()):
            feed, reader = self._feed, self._reading.reader if self._reading is not None else None
            parts = (pool, feed.waits, feed.pacing, feed.guard, reader)
            feed.tuner = OnlineTuner(loader._controller, *parts)
        try:
            pool.reserve(num_workers)
        except BaseException:
            self._closer()
            raise
        return pool

    @property
    def _is_torn(self) -> bool:
        """Whether an exception, perhaps a signal handler's, left `next` in the middle of its work."""
        return self._is_inside and self._local is None and not self._feed.pool.is_at_rest

    def _open_anew(self) -> Pool:
        """Take nothing over of what an exception left anywhere, but the plan."""
        feed = self._feed
        feed.losses.count_good()
        feed.pool.close(grace_s=1.0)
        self._closer()
        self._is_undecided, feed.plan.replay = False, None
        return self._open(feed.pool.num_workers or self._loader.num_workers, feed)

    def _go_on(self) -> None:
        """Go on behind the last batch that the loop got."""
        if self._loader._is_iterable or self._feed.plan.is_torn:
            raise cannot_go_on("the data set's iterators" if self._loader._is_iterable else "the sampler")
        with signals_later():  # or one that comes again and again would let no start come to its end
            _log.warning("an exception came out of `next` in the middle of its work: the workers are started anew")
            pool = self._open_anew()
            self._feed.go_on(self._seed)
            pool.launch()

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
            init_fn=self._reading.init_fn(loader.worker_init_fn) if self._reading else loader.worker_init_fn,
            context=self._context,
            base_seed=int(self._base_seed),
            is_iterable=loader._is_iterable,
            is_batched=loader._auto_collation,
            drop_last=loader.drop_last,
            uses_slots=loader._uses_slots,
            has_getitems=loader._has_getitems and loader._auto_collation,
            in_threads=self._backend == "thread",
            keeps_stats=loader.keep_stats,
            budget_bytes=self._budget.bytes,
            num_workers=loader.num_workers if not loader._is_chosen else max(8, 4 * usable_processors()),
            room_bytes=self._budget.room_bytes,
            cpus=self._placement.cpus,
            goes_on=not loader._condemned.policy.raises_at_once,
            watches_draws=loader._watches_draws,
        )

    @staticmethod
    def _feed_settings(loader: DataLoader[Any]) -> FeedSettings:
        ahead = loader._asked_ahead
        if ahead is None and loader._asked_prefetch_factor is not None:
            ahead = max(1, loader._asked_prefetch_factor * loader.num_workers)
        return FeedSettings(
            whole_batches=not loader._auto_collation or (loader._has_getitems and loader._keeps_batches_whole),
            in_order=loader.in_order,
            timeout_s=loader.timeout,
            batches_ahead=ahead,
            collate=collate_as_workers_do if loader._uses_slots else loader.collate_fn,
            rank=find_rank(),
        )

    def _wants_registration(self) -> bool:
        pins = bool(self._pin_memory) and self._pin_memory_device in ("cuda", None, "")
        copies = self._copier is not None and self._copier.device.type == "cuda"
        return (pins or copies) and torch.cuda.is_available() and torch.version.cuda is not None

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        with self._turns[os.getpid()]:
            self._begin_epoch(loader, first_iter)

    def _begin_epoch(self, loader: Any, first_iter: bool) -> None:
        super()._reset(loader, first_iter)
        if self._is_torn:
            with signals_later():
                self._open_anew().launch()
        self._is_inside, self._on_its_way = False, {}
        self._epoch += 1
        if self._reading is not None:
            self._sampler_iter = self._reading.follow(self._sampler_iter)
        # persistent workers keep torch's base seed; the epoch must still change what samples draw
        base_seed = int(self._base_seed)
        self._seed = mix_seed(base_seed, -1 - self._epoch) if self._epoch else base_seed
        if self._copier is not None:
            self._copier.close()
        self._feed.start_epoch(self._sampler_iter, self._seed)

    def __next__(self) -> Any:
        pid, thread = os.getpid(), get_ident()
        if pid != self._pid and self._local is None and self.is_open:
            raise NotSupported(
                f"this iterator belongs to process {self._pid}, of which this one is a forked child",
                this_process=pid,
                next_step="iterate over the loader in this process: that starts workers of its own",
            )
        turn = self._turns[pid]
        if turn._is_owned():
            raise NotSupported(
                "`next` of an iterator was called inside of its own `next`, by `on_error` or a signal handler",
                next_step="call it when the batch has come, or use a second iterator of the loader",
            )
        with turn:
            take = WorkersIterator._next_batch
            batch = take(self) if NextWatch.wrap is None else NextWatch.take(take)(self)
        self._on_its_way[thread] = None  # no call behind this: what a signal handler raises comes before it
        return batch

    def _next_batch(self) -> Any:
        # torch's own adds a mark for its profiler and counts an IterableDataset's batches: only then is it needed
        if self._dataset_kind == torch_loader._DatasetKind.Map and not _is_profiling():
            batch = self._next_data()
            self._num_yielded += 1
            return batch
        return super().__next__()  # calls `_next_data`

    def _next_data(self) -> Any:
        if self._fatal is not None:
            raise copy(self._fatal)
        thread = get_ident()
        if kept := self._on_its_way.get(thread):  # an exception struck behind it: this thread has not got it
            return kept[0]
        try:
            if not self.is_open:
                raise StopIteration
            waits, started = self._feed.waits, time.perf_counter()
            waits.ask(started)
            if self._is_torn:
                self._go_on()
            self._is_inside = True
            if self._is_undecided:
                self._decide()
            if self._local is not None:
                batch = self._next_local()
            else:
                batch = self._next_on_device() if self._copier is not None else self._next_on_host()
            if self._reading is not None:
                self._reading.delivered()
            now = time.perf_counter()
            waits.give(now - started, now, since_start_s=now - self._feed.epoch_started)
            if self._local is None:
                self._feed.plan.note_received()
            self._on_its_way[thread] = (batch,)  # no call in between: what a signal handler raises there would lose it
            self._is_inside = False
            if self._local is None and self._feed.tuner is not None:
                self._keep_tuned(self._feed.tuner)
            return batch
        except StopIteration:
            self._is_inside = False
            if self.is_open:
                self._end_of_epoch()
            raise
        except Exception as error:
            own, is_foreign = (self._feed.raised, self._feed.losses.fatal), is_from_signal(error)
            if not self.is_open and not is_foreign and all(error is not one for one in own):
                raise StopIteration from None  # another thread has closed it, whatever was found missing
            if issubclass(type(error), _ENDING):
                self._give_up(error)
                raise
            self._is_inside = error is not self._feed.raised
            if self._is_inside and not is_foreign:
                self._feed.plan.is_torn = False  # the sampler raised by itself, and can be asked what comes after it
                if self._feed.delivering >= 0:
                    self._feed.plan.note_failed(self._feed.delivering)  # it would come with that batch each time
            if not is_foreign:
                add_hint(error, language=language())
            if error is self._feed.losses.fatal:
                self._give_up(None)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether this process made the iterator: a forked child that read answers would take them from its parent."""
        return self._feed.pool.is_ours

    @property
    def _workers(self) -> list[Any]:
        """Its processes, under the name by which scripts find them in torch's iterator."""
        return self._feed.pool.processes

    def _give_up(self, error: Exception | None) -> None:
        """What was in flight cannot come any more: end here, and let a next epoch begin with new workers."""
        self._fatal = copy(error)  # without its traceback, which would keep this iterator
        if self._loader._iterator is self:
            self._loader._iterator = None
        self.close()

    def _end_of_epoch(self) -> None:
        feed, loader = self._feed, self._loader
        if self._local is not None:
            self.close()
            return
        if self._backend == "thread" and feed.figures.draws:
            say_once(
                "the data set draws from random generators, which threads share: results depend on timing. "
                "Use backend='process' for random numbers that depend on the sample alone."
            )
        if loader.persistent_workers:
            loader._keep(self.snapshot())
        else:
            self.close()

    def _next_on_host(self) -> Any:
        batch = self._feed.next()
        if self._pin_memory and not (self._registration is not None and is_pinned(batch)):
            return pin_batch(batch, self._pin_memory_device)
        return batch

    def _next_on_device(self) -> Any:
        copier = self._copier
        assert copier is not None
        if not copier.num_ahead:
            copier.start(self._feed.next())
        # the next one, if it is there already, crosses while this one is being used; it may be another that failed
        if self._feed.has_ready:
            copier.start(self._feed.next())
        return copier.take()

    def _decide(self) -> None:
        """Choose the number of workers from what the first worker measured on the first samples."""
        loader, feed = self._loader, self._feed
        sample_s, cpu_share = feed.measure_first_samples()
        with signals_later():
            self._is_undecided = False
            if not loader._is_decided:
                cores = min(usable_processors(), len(self._placement.cpus or os.sched_getaffinity(0)))
                count, reason = workers_for(sample_s, cpu_share, cores)
                if count == 0 and (loader.timeout or loader.worker_init_fn):
                    count, reason = 1, f"1, which {'timeout' if loader.timeout else 'worker_init_fn'}= needs"
                loader._decide(count, reason)
                _log.info('%s: num_workers="auto" chose %s', loader, loader._workers_reason)
            count = loader.num_workers
            if count == 0:
                self._local_stages = LocalStages(loader, self._reading)
                indices = chain(feed.plan.replay or [], self._sampler_iter)
                self._local = local_batches(loader, indices, int(self._base_seed), epoch=feed.plan.progress.epoch)
                self._closer()  # the reader goes on, for the batches that are fetched here
            elif count > 1:
                feed.pool.grow(count - 1)
            feed.plan.replay = None

    def _next_local(self) -> Any:
        assert self._local is not None
        batch = self._local_stages.during(next(self._local))
        if self._pin_memory:
            batch = pin_batch(batch, self._pin_memory_device)
        if self._copier is not None:
            self._copier.start(batch)
            batch = self._copier.take()
        self._feed.plan.note_local(self._loader._count_samples(batch))
        return batch

    def resize(self, num_workers: int | None, prefetch_batches: int | None) -> None:
        if prefetch_batches is not None:
            self._feed.pacing.asked_ahead = prefetch_batches
        if num_workers is None or self._local is not None:
            return
        self._is_undecided = False
        self._feed.plan.replay = None
        pool, change = self._feed.pool, num_workers - self._feed.pool.num_workers
        if change > 0:
            pool.grow(change)
        elif change < 0:
            pool.shrink(-change)
        pool.pipes.flush()

    def keep_stats(self, is_on: bool) -> None:
        self._feed.pool.keep_stats(is_on)

    def _keep_tuned(self, tuner: OnlineTuner) -> None:
        """Let the next epoch begin with what was found in this one."""
        if tuner.has_moved:
            tuner.has_moved, loader = False, self._loader
            loader._decide(tuner.num_workers, 'set by tune="online"')
            if loader._asked_prefetch_factor is None:
                loader._asked_ahead = tuner.asked_ahead

    def close(self) -> None:
        """End the workers; what was delivered stays valid."""
        with signals_later():
            if self.is_open:
                self._loader._keep(self.snapshot(), self._feed.figures.histogram())
                self.is_open = False
                self._feed.losses.count_good()
                self._closer()
                if self._reading is not None:
                    self._reading.close()

    _shutdown_workers = close  # the name by which Lightning and others end torch's iterator

    def snapshot(self) -> LoaderStats:
        feed, loader = self._feed, self._loader
        elapsed = max(1e-9, time.perf_counter() - self.opened_at)
        ahead, ahead_reason = feed.pacing.ahead
        is_local = self._local is not None
        return LoaderStats(
            backend="in-process" if is_local else self._backend,
            backend_reason=loader._workers_reason if is_local else self._backend_reason,
            num_workers=0 if is_local else feed.pool.num_workers,
            num_workers_reason=loader._workers_reason,
            start_method=self._context.get_start_method(),
            budget_bytes=self._budget.bytes,
            budget_reason=self._budget.reason,
            epoch=feed.plan.progress.epoch,
            batches_delivered=feed.plan.progress.total_batches,
            samples_delivered=feed.plan.progress.total_samples,
            samples_per_s=feed.plan.progress.total_samples / elapsed,
            bytes_per_s=feed.figures.bytes_written() / elapsed,
            prefetch_batches=ahead,
            prefetch_reason=ahead_reason,
            batches_ready=feed.scheduler.num_ready,
            batches_in_flight=feed.scheduler.in_flight,
            chunk_samples=feed.pacing.chunk,
            slot_batches=feed.delivery.slot_batches,
            general_batches=feed.delivery.general_batches,
            copied_batches=feed.delivery.copied_batches,
            page_faults_per_sample=feed.figures.faults_per_sample(),
            sample_times=feed.figures.sample_times(),
            waits=feed.waits.stats(),
            slots=feed.slots.stats(num_filled=feed.scheduler.num_ready),
            workers=feed.figures.workers(),
            account=loader._local_account() if is_local and loader._local_account is not None else feed.plan.account,
            workers_lost=feed.losses.recovery.num_losses,
            stages=self._local_stages.figures() if is_local else feed.figures.stages(),
            reader=self._reading.reader.stats() if self._reading is not None else None,
            adjustments=tuple(loader._controller.told) if loader._controller is not None else (),
        )


def _gpu_address(device: torch.device | None) -> str | None:
    """The PCI address of the GPU that a loader feeds: its own, else the current one if CUDA is in use already."""
    if not torch.cuda.is_initialized() and (device is None or device.type != "cuda"):
        return None
    number = None if device is None or device.type != "cuda" else device.index
    facts: Any = torch.cuda.get_device_properties(torch.cuda.current_device() if number is None else number)
    if not hasattr(facts, "pci_bus_id"):  # torch before 2.6
        return None
    return f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"


def _close_pool(pool: Pool, copier: DeviceCopier | None, registration: HostRegistration | None) -> None:
    if not pool.is_ours:  # a forked child: all this is its parent's, CUDA's streams and page locks too
        return
    if copier is not None:
        copier.close()
    pool.close()
    if registration is not None:
        registration.close()
