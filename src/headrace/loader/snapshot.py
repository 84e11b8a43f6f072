"""What every iterator of ours can tell, and what a loader tells before it has one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.engine import Budget, WaitLog, find_budget
from headrace.model import LoaderStats, SlotStats

if TYPE_CHECKING:
    from .dataloader import DataLoader

_log = logging.getLogger(__name__)

_said: set[str] = set()


class Counted:
    """An iterator that can be asked for its figures."""

    opened_at: float
    is_open: bool

    def snapshot(self) -> LoaderStats:
        raise AssertionError("each iterator says this for itself")


def empty_stats(loader: DataLoader[Any]) -> LoaderStats:
    budget = find_budget(loader.memory) if loader.num_workers else Budget(0, "in-process: nothing is queued")
    return LoaderStats(
        backend="in-process" if loader.num_workers == 0 else loader.backend,
        backend_reason="num_workers=0" if loader.num_workers == 0 else "not started yet",
        num_workers=loader.num_workers,
        num_workers_reason=loader._workers_reason,
        start_method="",
        budget_bytes=budget.bytes,
        budget_reason=budget.reason,
        epoch=-1,
        batches_delivered=0,
        samples_delivered=0,
        samples_per_s=0.0,
        bytes_per_s=0.0,
        prefetch_batches=0,
        prefetch_reason="not started yet",
        batches_ready=0,
        batches_in_flight=0,
        chunk_samples=0,
        slot_batches=0,
        general_batches=0,
        copied_batches=0,
        page_faults_per_sample=None,
        sample_times=None,
        waits=WaitLog().stats(),
        slots=SlotStats(total=0, free=0, filling=0, filled=0, leased=0, slot_bytes=0, touched_bytes=0),
        workers=(),
    )


def say_once(text: str) -> None:
    """Warn the first time that something is so."""
    if text not in _said:
        _said.add(text)
        _log.warning(text)
