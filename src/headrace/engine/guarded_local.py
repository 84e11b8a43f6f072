"""Batches fetched in the training process, where samples that fail may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.model import RAISE, RETRY, EpochAccount, Replacement, SampleFailure, find_rank
from headrace.order import EpochOrder, PlannedBatch

from .local import LocalFetcher
from .losses import Condemned, name_sample, place_sample


class GuardedLocal:
    """What workers and their guard do, one sample after the other."""

    def __init__(self, fetcher: LocalFetcher, condemned: Condemned, dataset: Any, base_seed: int, epoch: int) -> None:
        self._fetcher, self._condemned, self._dataset = fetcher, condemned, dataset
        self._base_seed, self._epoch = base_seed, epoch
        self._delivered = self._filled = 0

    def account(self, order: EpochOrder) -> EpochAccount:
        real = self._delivered - self._filled
        return EpochAccount(given_out=order.given_out, delivered=real, quarantined=order.left_out, filled=self._filled)

    def batches(self, order: EpochOrder) -> Iterator[Any]:
        done: dict[int, Any] = {}  # by position: what was fetched before the batch was planned anew
        for planned in order:
            if not self._fetch(planned, done):
                order.give_back([planned])
                continue
            samples = [done.pop(position) for position in planned.positions]
            done.clear()
            self._condemned.good(len(samples))
            self._delivered += len(samples)
            self._filled += planned.num_filled
            yield self._fetcher.collate(samples, self._base_seed, planned.first_position)

    def _fetch(self, planned: PlannedBatch, done: dict[int, Any]) -> bool:
        """Fetch a batch's samples. False: one is left out from now on, and the batch is to be planned anew."""
        for key, position in zip(planned.keys, planned.positions, strict=True):
            tries = 0
            while position not in done:
                try:
                    done[position] = self._fetcher.fetch_one(key, self._base_seed, position)
                except Exception as error:
                    tries += self._fetcher.last_tries
                    failure = self._failure(error, key, position, tries)
                    decision = self._condemned.judge(failure)
                    if decision is RAISE:
                        raise
                    if isinstance(decision, Replacement):
                        self._condemned.condemn(failure, is_replaced=True)
                        done[position] = decision.sample
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
