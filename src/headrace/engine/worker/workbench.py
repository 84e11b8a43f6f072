"""All that the parts of one worker work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.signals.recording import open_lane

from ..memory import Arena, Board, BoardLock, PayloadReader, Region
from .answering import Teller
from .events import WorkerEvents
from .fetch import Fetcher
from .placing import Placer
from .plan import WorkerPlan
from .record import WorkerRecord
from .room_for_blocks import Entering
from .seeding import SampleSeeds


class Workbench:
    """One worker's data set, memory, record and means of answering."""

    def __init__(
        self,
        plan: WorkerPlan,
        arena: Arena,
        lock: BoardLock,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        is_seeded: bool,
    ) -> None:
        self.plan, self.arena, self.lock = plan, arena, lock
        self.is_seeded = is_seeded  # its random generators are its own
        lane = open_lane(role="worker")
        self.events = None if lane is None else WorkerEvents(lane)  # None where nobody records: nothing is timed for it
        self.dataset, self.collate = dataset, collate
        self.words = Board(arena.bytes).words
        self.all_words = arena.bytes.cast("q")
        self.region = Region(arena, plan.region_start, plan.region_bytes, largest=plan.largest_block)
        self.record = WorkerRecord(self.words, plan.worker, self.events)
        self.entering = Entering(plan, arena, lock, self.region, self.record)
        self.payloads = PayloadReader(arena, self.words, is_batched=plan.is_batched)
        self.fetcher = Fetcher(
            dataset,
            has_getitems=plan.has_getitems,
            seeds=SampleSeeds() if is_seeded and not plan.is_iterable else None,
            is_patient=plan.goes_on,
        )
        self.teller = Teller(plan, arena, lock, self.region, self.fetcher)
        self.placer = Placer(arena, lock, self.region, self.record, self.teller.propose, budget_bytes=plan.budget_bytes)
