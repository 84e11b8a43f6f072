"""Samples fetched in the training process, seeded by position as workers seed them; those that fail may be left out."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from headrace.model import RAISE, RETRY, EpochAccount, Replacement, SampleFailure, find_rank, is_from_signal
from headrace.order import EpochOrder, PlannedBatch

from .losses import Condemned, name_sample, place_sample
from .worker import Fetcher, SampleSeeds

# a collation that draws at all draws for nearly every batch
_TRIAL_BATCHES = 4


class LocalFetcher:
    """What a worker would do, in-process, leaving the training loop's own random generators as they were."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        is_batched: bool,
        has_getitems: bool,
        is_default_collation: bool,
        is_patient: bool = False,
    ) -> None:
        self.fetches_whole = has_getitems = has_getitems and is_batched
        self._seeds = SampleSeeds(dataset, is_shared=True, needs_to_know=has_getitems)
        self._fetcher = Fetcher(dataset, has_getitems=has_getitems, seeds=self._seeds, is_patient=is_patient)
        self._collate, self._is_batched = collate, is_batched
        # batches for which a collation of the user's own is watched; one that draws is seeded for good
        self._collation_trial = 0 if is_default_collation else _TRIAL_BATCHES
        self._collation_draws = False

    def fetch(self, indices: Any, base_seed: int, position: int) -> Any:
        if not self._seeds.per_sample and not self._collation_trial and not self._collation_draws:
            self._seeds.begin_chunk()
            with self._seeds:
                samples = self._whole(indices, base_seed, position)
            if not self._seeds.end_chunk():
                return self._collate(samples)
        self._seeds.begin_chunk()
        with _GeneratorsKept(self._seeds):
            with self._seeds:
                samples = self._whole(indices, base_seed, position)
            if self._seeds.end_chunk():
                samples = self._whole(indices, base_seed, position)
            if not self._collation_trial and not self._collation_draws:
                return self._collate(samples)
            self._seeds.begin_collation(base_seed, position)
            before = self._seeds.positions()
            batch = self._collate(samples)
            self._collation_draws = self._collation_draws or self._seeds.positions() != before
            self._collation_trial = max(0, self._collation_trial - 1)
            return batch

    def fetch_one(self, index: Any, base_seed: int, position: int) -> Any:
        """One sample, or of a data set that gives whole batches a batch of one."""
        if self.fetches_whole:
            return self.fetch_whole([index], base_seed, position)
        return self._seeded(partial(self._fetcher.one, index, base_seed, position))

    def fetch_whole(self, indices: Sequence[Any], base_seed: int, position: int) -> Any:
        """A batch in one piece, before collation."""
        return self._seeded(partial(self._fetcher.whole_patiently, indices, base_seed, position, is_batch=True))

    def _seeded(self, fetch: Callable[[], Any]) -> Any:
        """Fetch something. The loop's own generators stay as they were."""
        self._seeds.begin_chunk()
        with _GeneratorsKept(self._seeds):
            with self._seeds:
                fetched = fetch()
            return fetch() if self._seeds.end_chunk() else fetched

    @property
    def last_tries(self) -> int:
        return self._fetcher.last_tries

    def collate(self, samples: list[Any], base_seed: int, position: int) -> Any:
        """Collate samples (or, without batching, convert the one), seeded as in `fetch`."""
        with _GeneratorsKept(self._seeds):
            self._seeds.begin_collation(base_seed, position)
            return self._collate(samples if self._is_batched else samples[0])

    def _whole(self, indices: Any, base_seed: int, position: int) -> Any:
        return self._fetcher.whole(indices, base_seed, position, is_batch=self._is_batched)


class _GeneratorsKept:
    """Puts all generators back at its end. No generator with `@contextmanager`: that sets attributes of exceptions."""

    def __init__(self, seeds: SampleSeeds) -> None:
        torch: Any = sys.modules.get("torch")
        self._kept: list[Callable[[], Any]] = [partial(random.setstate, random.getstate()), *seeds.keep_held()]
        self._kept.append(partial(np.random.set_state, np.random.get_state()))
        if torch is not None:
            self._kept.append(partial(torch.default_generator.set_state, torch.default_generator.get_state()))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for put_back in self._kept:
            put_back()


class GuardedLocal:
    """What workers and their guard do, one sample after the other."""

    def __init__(self, fetcher: LocalFetcher, condemned: Condemned, dataset: Any, base_seed: int, epoch: int) -> None:
        self._fetcher, self._condemned, self._dataset = fetcher, condemned, dataset
        self._base_seed, self._epoch = base_seed, epoch
        self._delivered = self._filled = 0
        self._replaced: set[int] = set()  # positions of samples that the user gave instead

    def account(self, order: EpochOrder) -> EpochAccount:
        real = self._delivered - self._filled
        return EpochAccount(given_out=order.given_out, delivered=real, quarantined=order.left_out, filled=self._filled)

    def batches(self, order: EpochOrder) -> Iterator[Callable[[], Any]]:
        """Functions that fetch the batches, one after the other: what one raises ends neither the order nor us."""
        return map(partial(partial, self._batch, order), order)

    def _batch(self, order: EpochOrder, planned: PlannedBatch) -> Any:
        done: dict[int, Any] = {}  # by position: what was fetched before the batch was planned anew
        self._delivered += len(planned.keys)  # or raised, as torch counts
        while (samples := self._fetch(planned, done)) is None:
            self._delivered -= len(planned.keys)
            order.give_back([planned])
            planned = next(order)
            self._delivered += len(planned.keys)
        self._condemned.good(len(planned.keys))
        self._filled += planned.num_filled
        return self._fetcher.collate(samples, self._base_seed, planned.first_position)

    def _fetch(self, planned: PlannedBatch, done: dict[int, Any]) -> Any:
        """Fetch a batch's samples. None: one is left out from now on, and the batch is to be planned anew.

        Of a batch that comes in one piece, a sample that fails is looked for one by one.
        """
        whole = partial(self._fetcher.fetch_whole, planned.keys, self._base_seed, planned.first_position)
        if self._fetcher.fetches_whole:
            try:
                return whole()
            except Exception as error:
                if is_from_signal(error):
                    raise
        for key, position in zip(planned.keys, planned.positions, strict=True):
            if position not in done and not self._fetch_sample(key, position, done):
                return None
        samples = [done[position] for position in planned.positions]
        if not self._fetcher.fetches_whole:
            return samples
        if self._replaced.isdisjoint(planned.positions):
            return whole()  # none failed by itself, or none any more
        if not all(isinstance(alone, (list, tuple)) for alone in samples):
            raise TypeError("on_error gave a sample for a batch that is fetched in one piece")
        return [*chain.from_iterable(samples)]

    def _fetch_sample(self, key: Any, position: int, done: dict[int, Any]) -> bool:
        """Fetch one sample, whose failures are judged. False: it is left out."""
        tries = 0
        while position not in done:
            try:
                done[position] = self._fetcher.fetch_one(key, self._base_seed, position)
            except Exception as error:
                if is_from_signal(error):
                    raise  # nothing that the sample did
                tries += self._fetcher.last_tries
                failure = self._failure(error, key, position, tries)
                decision = self._condemned.policy.judge(failure)
                if decision is RAISE:
                    raise
                if isinstance(decision, Replacement):
                    self._condemned.condemn(failure, is_replaced=True)
                    self._replaced.add(position)
                    done[position] = [decision.sample] if self._fetcher.fetches_whole else decision.sample
                elif decision is not RETRY:
                    self._condemned.condemn(failure)
                    return False
        return True

    def _failure(self, error: Exception, key: Any, position: int, tries: int) -> SampleFailure:
        known: dict[str, Any] = {"num_samples": self._condemned.num_samples}
        if (place := place_sample(self._dataset, key)) is not None:
            known |= {"file": place.key, "shard": place.shard, "offset": place.offset}
        elif (file := name_sample(self._dataset, key)) is not None:
            known["file"] = file
        return SampleFailure.from_exception(
            error, key=key, position=position, epoch=self._epoch, tries=tries, rank=find_rank(), **known
        )
