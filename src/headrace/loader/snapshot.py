"""What iterators share: a loader's figures before it has one, what is said of it, and whose turn it is."""

from __future__ import annotations

import _thread
import logging
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.engine import Budget, Pace, batches_ahead, find_budget
from headrace.errors import NotSupported
from headrace.model import LoaderStats

if TYPE_CHECKING:
    from .dataloader import DataLoader

_log = logging.getLogger(__name__)


def empty_stats(loader: DataLoader[Any]) -> LoaderStats:
    budget = find_budget(loader.memory) if loader.num_workers else Budget(0, "in-process: nothing is queued")
    return LoaderStats(
        backend="in-process" if loader.num_workers == 0 else loader.backend,
        backend_reason="num_workers=0" if loader.num_workers == 0 else "not started yet",
        num_workers=loader.num_workers,
        num_workers_reason=loader._workers_reason,
        budget_bytes=budget.bytes,
        budget_reason=budget.reason,
        adjustments=tuple(loader._controller.told) if loader._controller is not None else (),
    )


def expected_ahead(*, batch_size: int, batch_bytes: int, num_workers: int, worst_sample_s: float, step_s: float) -> int:
    """How many batches our loader runs ahead where no prefetch_factor is given, by what is known before it starts."""
    pace = Pace(
        sample_s=worst_sample_s,
        worst_sample_s=worst_sample_s,
        samples_seen=0,
        step_s=step_s,
        batch_rows=batch_size,
        num_workers=max(1, num_workers),
        batch_bytes=batch_bytes,
    )
    return batches_ahead(pace)[0]


def make_turns() -> defaultdict[int, Any]:
    """By process, what lets one thread at a time into an iterator: in a forked child nobody is, whoever was before."""
    return defaultdict(_thread.RLock)


@cache
def say_once(text: str) -> None:
    _log.warning(text)


def len_or_none(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def cannot_go_on(whose: str) -> NotSupported:
    return NotSupported(
        f"an exception came out of `next` in the middle of its work, and {whose} cannot be asked again",
        next_step="iterate over the loader anew: that begins another epoch",
    )
