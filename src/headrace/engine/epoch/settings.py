"""How a feed runs its epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class FeedSettings:
    """What a loader asks of its feed."""

    is_iterable: bool
    is_batched: bool
    uses_slots: bool
    whole_batches: bool  # never split a batch: no batching, or a custom collation over `__getitems__`
    in_order: bool
    timeout_s: float
    batches_ahead: int | None  # given by the user; None: follow what is measured
    collate: Callable[[Any], Any]
    measures_threads: bool  # find out, when workers are idle, what a second thread brings
    measures_at_end: bool  # and at the end of the epoch, if they never were
    rank: int = 0
