"""Iterators in the training process: torch's own, counted, and one whose samples are seeded by position."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader as torch_loader

from headrace.engine import (
    DeviceCopier,
    GuardedLocal,
    LocalFetcher,
    Steps,
    WaitLog,
    named_samples,
    named_steps,
    say_doubt,
    with_rows,
)
from headrace.knowledge import add_hint
from headrace.model import (
    EpochAccount,
    LoaderStats,
    SampleFailure,
    Stages,
    StageTable,
    find_rank,
    language,
    read_stages,
    record_stages,
    stages_of,
)
from headrace.order import EpochOrder

from .batches import pin_batch
from .reading import Reading
from .snapshot import empty_stats, make_turns

if TYPE_CHECKING:
    from .dataloader import DataLoader


class LocalStages:
    """Named stages of batches that are fetched in the training process."""

    def __init__(self, loader: DataLoader[Any], reading: Reading | None) -> None:
        self._loader, self._reading, self._table, self._busy_ns = loader, reading, StageTable(), 0

    def during(self, fetch: Callable[[], Any]) -> Any:
        """Fetch a batch, recording its stages, with the reader's blocks at hand."""
        if self._reading is not None:
            fetch = partial(self._reading.during, fetch)
        if not self._loader.keep_stats:
            return fetch()
        started_ns = time.perf_counter_ns()
        try:
            with record_stages(self._table):
                return fetch()
        finally:
            self._busy_ns += time.perf_counter_ns() - started_ns

    def figures(self) -> Stages:
        return stages_of(read_stages(self._table.words), worker_s=self._busy_ns / 1e9)


class LocalIterator(torch_loader._SingleProcessDataLoaderIter):
    """torch's own in-process iterator, counted."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.opened_at, self.is_open = time.perf_counter(), True
        self._loader, self._turns = loader, make_turns()
        self._copier = DeviceCopier(loader.device) if loader.device is not None else None
        self._waits, self._num_samples = WaitLog(), 0
        self._reading = Reading.start(loader, self)
        self._stages = LocalStages(loader, self._reading)
        if self._reading is not None:
            self._sampler_iter = self._reading.follow(self._sampler_iter)
        fetcher: Any = self._dataset_fetcher  # torch's: where timing lines are printed, it goes through our data set
        fetcher.dataset = named_samples(fetcher.dataset)
        if hasattr(fetcher, "dataset_iter"):
            fetcher.dataset_iter = named_steps(fetcher.dataset_iter)
        self._steps = self._guard_steps()
        self._taken = 0  # samples of an iterable data set, in the batches that were delivered
        loader._live.add(self)

    def __next__(self) -> Any:
        with self._turns[os.getpid()]:
            return super().__next__()

    def _next_data(self) -> Any:
        started = time.perf_counter()
        self._waits.ask(started)
        reading = self._reading
        try:
            batch = self._stages.during(self._fetch)
        except StopIteration:
            if self.is_open:
                self._loader._keep(self.snapshot())
                self.is_open = False
                if self._steps is not None and self._steps.ends_in_doubt:
                    say_doubt("the data set's iterator")
            if reading is not None:
                reading.close()
            raise
        except Exception as error:
            add_hint(error, language=language())
            raise
        if self._copier is not None:
            self._copier.start(batch)
            batch = self._copier.take()
        if reading is not None:
            reading.delivered()
        now = time.perf_counter()
        self._waits.give(now - started, now, since_start_s=now - self.opened_at)
        self._num_samples += self._loader._count_samples(batch)
        if self._steps is not None:
            self._loader._condemned.good(self._steps.taken - self._taken)
            self._taken = self._steps.taken
        return batch

    def _fetch(self) -> Any:
        fetch: Callable[[], Any] = super()._next_data
        return fetch()

    def _guard_steps(self) -> Steps | None:
        """Let torch's fetcher pass over the samples of an iterable data set that fail, where the policy does."""
        condemned = self._loader._condemned
        if not self._loader._is_iterable or condemned.policy.raises_at_once:
            return None

        def tell(error: Exception) -> None:
            if not condemned.pass_over(SampleFailure.from_exception(error, key=None, rank=find_rank())):
                raise error

        fetcher: Any = self._dataset_fetcher
        steps = fetcher.dataset_iter = Steps(fetcher.dataset_iter, tell=tell, whose="the data set's iterator")
        return steps

    def snapshot(self) -> LoaderStats:
        elapsed = max(1e-9, time.perf_counter() - self.opened_at)
        return replace(
            empty_stats(self._loader),
            batches_delivered=self._waits.count,
            samples_delivered=self._num_samples,
            samples_per_s=self._num_samples / elapsed,
            waits=self._waits.stats(),
            account=self._account(),
            stages=self._stages.figures(),
            reader=self._reading.reader.stats() if self._reading is not None else None,
        )

    def _account(self) -> EpochAccount:
        if self._loader._local_account is not None:
            return self._loader._local_account()
        if self._steps is not None:
            left_out = self._steps.passed_over
            return EpochAccount(given_out=self._taken + left_out, delivered=self._taken, quarantined=left_out)
        return EpochAccount(given_out=self._num_samples, delivered=self._num_samples)


class SeededLocalIterator(LocalIterator):
    """In-process because that was measured to be best: samples are seeded as workers would seed them."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._batches = local_batches(loader, self._sampler_iter, int(self._base_seed))

    def _fetch(self) -> Any:
        batch = next(self._batches)()
        return pin_batch(batch, self._pin_memory_device) if self._pin_memory else batch


def local_batches(
    loader: DataLoader[Any], indices: Iterable[Any], base_seed: int, *, epoch: int = 0
) -> Iterator[Callable[[], Any]]:
    """Batches fetched in the training process, each sample seeded by its position.

    Each comes as a function that fetches it, and out of no generator: an exception there would end the epoch.
    """
    is_batched = loader._auto_collation
    fetcher = LocalFetcher(
        named_samples(loader.dataset),
        loader.collate_fn,
        is_batched=is_batched,
        has_getitems=loader._has_getitems,
        is_default_collation=loader._uses_slots,
        is_patient=not loader._condemned.policy.raises_at_once,
    )
    if loader._condemned.is_active and not loader._is_iterable:
        batches = iter(indices) if is_batched else ([index] for index in indices)
        guarded = GuardedLocal(fetcher, loader._condemned, loader.dataset, base_seed, epoch)
        order = EpochOrder(batches, loader._condemned.is_out)
        loader._local_account = lambda: guarded.account(order)
        return guarded.batches(order)
    position = 0

    def planned(some: Any) -> Callable[[], Any]:
        nonlocal position
        some = with_rows(some) if is_batched else some
        first, position = position, position + (len(some) if is_batched else 1)
        return partial(fetcher.fetch, some, base_seed, first)

    return map(planned, indices)
