"""Samples fetched in the training process, seeded by position as workers seed them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .fetch import Fetcher
from .seeding import SampleSeeds


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
    ) -> None:
        self._seeds = SampleSeeds(is_shared=True)
        self._is_default_collation = is_default_collation
        self._fetcher = Fetcher(dataset, has_getitems=has_getitems, seeds=self._seeds)
        self._collate, self._is_batched = collate, is_batched

    def fetch(self, indices: Any, base_seed: int, position: int) -> Any:
        if not self._seeds.per_sample and self._is_default_collation:
            self._seeds.begin_chunk()
            samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._is_batched)
            if not self._seeds.end_chunk():
                return self._collate(samples)
        state = _generator_states()
        try:
            self._seeds.begin_chunk()
            samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._is_batched)
            if self._seeds.end_chunk():
                samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._is_batched)
            if not self._is_default_collation:
                self._seeds.begin_collation(base_seed, position)
            return self._collate(samples)
        finally:
            _restore(state)


def _generator_states() -> tuple[Any, Any, Any]:
    torch: Any = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state() if torch else None


def _restore(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None:
        sys.modules["torch"].default_generator.set_state(states[2])
