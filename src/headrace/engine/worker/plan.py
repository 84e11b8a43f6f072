"""What a worker needs to know of its loader; travels to its process."""

from __future__ import annotations

from dataclasses import dataclass

from ..memory import Fd


@dataclass(frozen=True)
class WorkerPlan:
    """One worker: its pipes, its region of the arena, and how samples are taken from the data set."""

    worker: int
    work: Fd
    urgent: Fd | None
    results: Fd
    region_start: int
    region_bytes: int
    largest_block: int
    budget_bytes: int
    is_iterable: bool
    is_batched: bool  # False: batch_size=None
    drop_last: bool
    uses_slots: bool  # the default collation
    has_getitems: bool
    goes_on: bool  # a failing sample is reported alone, and the others of its chunk go on
