"""Samples fetched in the training process, seeded by position as workers seed them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

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
        self._seeds = SampleSeeds(is_shared=True)
        self._fetcher = Fetcher(dataset, has_getitems=has_getitems, seeds=self._seeds, is_patient=is_patient)
        self._collate, self._is_batched = collate, is_batched
        # batches for which a collation of the user's own is watched; one that draws is seeded for good
        self._collation_trial = 0 if is_default_collation else _TRIAL_BATCHES
        self._collation_draws = False

    def fetch(self, indices: Any, base_seed: int, position: int) -> Any:
        if not self._seeds.per_sample and not self._collation_trial and not self._collation_draws:
            self._seeds.begin_chunk()
            samples = self._whole(indices, base_seed, position)
            if not self._seeds.end_chunk():
                return self._collate(samples)
        state = _generator_states()
        try:
            self._seeds.begin_chunk()
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
        finally:
            _restore(state)

    def fetch_one(self, index: Any, base_seed: int, position: int) -> Any:
        """One sample. The loop's own generators stay as they were."""
        state = _generator_states()
        try:
            self._seeds.begin_chunk()
            sample = self._fetcher.one(index, base_seed, position)
            return self._fetcher.one(index, base_seed, position) if self._seeds.end_chunk() else sample
        finally:
            _restore(state)

    @property
    def last_tries(self) -> int:
        return self._fetcher.last_tries

    def collate(self, samples: list[Any], base_seed: int, position: int) -> Any:
        """Collate samples (or, without batching, convert the one), seeded as in `fetch`."""
        state = _generator_states()
        try:
            self._seeds.begin_collation(base_seed, position)
            return self._collate(samples if self._is_batched else samples[0])
        finally:
            _restore(state)

    def _whole(self, indices: Any, base_seed: int, position: int) -> Any:
        return self._fetcher.whole(indices, base_seed, position, is_batch=self._is_batched)


def _generator_states() -> tuple[Any, Any, Any]:
    torch: Any = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state() if torch else None


def _restore(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None:
        sys.modules["torch"].default_generator.set_state(states[2])
