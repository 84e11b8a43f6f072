"""How a worker gets samples from a map-style data set, with the right random seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def each(self, indices: Sequence[Any], base_seed: int, position: int) -> Iterator[Any]:
        """Fetch sample by sample; the caller may use one before the next is fetched."""
        seeds, dataset = self.seeds, self._dataset
        for offset, index in enumerate(indices):
            if seeds is not None and seeds.per_sample:
                seeds.begin_sample(base_seed, position + offset)
                sample = dataset[index]
                seeds.end_sample()
            else:
                sample = dataset[index]
            yield sample

    def many(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        """Fetch all at once, for samples that cost next to nothing."""
        if self._has_getitems:
            samples: list[Any] = self._getitems(indices, base_seed, position, whole=False)
            return samples
        return self._one_by_one(indices, base_seed, position)

    def _one_by_one(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        if self.seeds is not None and self.seeds.per_sample:
            return list(self.each(indices, base_seed, position))
        dataset = self._dataset
        return [dataset[index] for index in indices]

    def whole(self, indices: Any, base_seed: int, position: int, *, is_batch: bool) -> Any:
        """What torch's fetcher gives for a batch (or, without batching, for one index), before collation."""
        if is_batch and self._has_getitems:
            return self._getitems(indices, base_seed, position, whole=True)
        if is_batch:
            return self._one_by_one(indices, base_seed, position)
        return next(self.each([indices], base_seed, position))

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
