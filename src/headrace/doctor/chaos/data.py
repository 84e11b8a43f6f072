"""The data set that `headrace chaos` uses when it is given none: small samples of several kinds of content."""

from __future__ import annotations

from typing import Any

import numpy as np


class PracticeSamples:
    """Arrays, a number and a text, all of them made from the index."""

    def __init__(self, num_samples: int = 2400, side: int = 24) -> None:
        self._num_samples, self._side = num_samples, side

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        values = np.random.default_rng(index)
        volume = values.random((self._side, self._side, self._side), dtype=np.float32)
        return {"volume": volume, "label": index % 7, "name": f"practice_{index:05d}"}


def practice() -> PracticeSamples:
    """Return the data set."""
    return PracticeSamples()
