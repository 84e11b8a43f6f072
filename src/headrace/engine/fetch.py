"""How a worker gets samples from a map-style data set, with the right random seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .seeding import SampleSeeds


class CannotSplit(Exception):
    """The data set's `__getitems__` only makes sense for a whole batch."""


class Fetcher:
    """Fetches samples by index. One per worker."""

    def __init__(self, dataset: Any, *, has_getitems: bool, seeds: SampleSeeds | None) -> None:
        self._dataset = dataset
        self._has_getitems = has_getitems
        self.seeds = seeds

    @property
    def is_splittable(self) -> bool:
        return not self._has_getitems

    def one(self, index: Any, base_seed: int, position: int) -> Any:
        """Fetch one sample of a batch."""
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
