"""How a worker gets samples from a map-style data set, with the right random seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from headrace.model import backoff_s, is_transient

from .seeding import SampleSeeds


class CannotSplit(Exception):
    """The data set's `__getitems__` only makes sense for a whole batch."""


class Fetcher:
    """Fetches samples by index. One per worker."""

    def __init__(
        self, dataset: Any, *, has_getitems: bool, seeds: SampleSeeds | None, is_patient: bool = False
    ) -> None:
        self._dataset = dataset
        self._has_getitems = has_getitems
        self.seeds = seeds
        self._is_patient = is_patient
        self.last_tries = 1  # of the last sample that was fetched on its own

    @property
    def is_splittable(self) -> bool:
        return not self._has_getitems

    def one(self, index: Any, base_seed: int, position: int) -> Any:
        """Fetch one sample of a batch. With patience, an error that may pass by itself is waited for."""
        if not self._is_patient:
            return self._once(index, base_seed, position)
        return self._patiently(lambda: self._once(index, base_seed, position), position)

    def whole_patiently(self, indices: Any, base_seed: int, position: int, *, is_batch: bool) -> Any:
        """What `whole` gives; with patience as in `one`."""
        if not self._is_patient:
            return self.whole(indices, base_seed, position, is_batch=is_batch)
        return self._patiently(lambda: self.whole(indices, base_seed, position, is_batch=is_batch), position)

    def _patiently(self, fetch: Callable[[], Any], position: int) -> Any:
        self.last_tries = 1
        waits = backoff_s(seed=position)
        while True:
            try:
                return fetch()
            except Exception as error:
                wait_s = next(waits, None) if is_transient(error) else None
                if wait_s is None:
                    raise
            self.last_tries += 1
            time.sleep(wait_s)

    def _once(self, index: Any, base_seed: int, position: int) -> Any:
        if self._has_getitems:
            return self._getitems([index], base_seed, position, whole=False)[0]
        return self._plain(index, base_seed, position)

    def _plain(self, index: Any, base_seed: int, position: int) -> Any:
        seeds = self.seeds
        if seeds is None or not seeds.per_sample:
            return self._dataset[index]
        seeds.begin_sample(base_seed, position)
        sample = self._dataset[index]
        seeds.end_sample()
        return sample

    def many(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        """Fetch all at once, for samples that cost next to nothing."""
        if self._has_getitems:
            samples: list[Any] = self._getitems(indices, base_seed, position, whole=False)
            return samples
        return self._one_by_one(indices, base_seed, position)

    def _one_by_one(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        if self.seeds is not None and self.seeds.per_sample:
            return [self._plain(index, base_seed, position + offset) for offset, index in enumerate(indices)]
        dataset = self._dataset
        return [dataset[index] for index in indices]

    def whole(self, indices: Any, base_seed: int, position: int, *, is_batch: bool) -> Any:
        """What torch's fetcher gives for a batch (or, without batching, for one index), before collation."""
        if is_batch and self._has_getitems:
            return self._getitems(indices, base_seed, position, whole=True)
        if is_batch:
            return self._one_by_one(indices, base_seed, position)
        return self._plain(indices, base_seed, position)

    def _getitems(self, indices: Sequence[Any], base_seed: int, position: int, *, whole: bool) -> Any:
        seeds = self.seeds
        if seeds is not None and seeds.per_sample:
            seeds.begin_sample(base_seed, position)
        samples = self._dataset.__getitems__(list(indices))
        if seeds is not None and seeds.per_sample:
            seeds.end_sample()
        if whole:
            return samples
        if seeds is not None and seeds.is_drawing:
            raise CannotSplit("it draws random numbers: they must not depend on how the batch was split")
        if not isinstance(samples, (list, tuple)) or len(samples) != len(indices):
            raise CannotSplit("it did not return a list with one sample per index")
        return samples
