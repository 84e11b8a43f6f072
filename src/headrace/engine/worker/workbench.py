"""What the parts of one worker work with: what it is told, its memory, its record, its means of answering."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.signals.recording import open_lane
from headrace.signals.system import Fd

from ..memory import (
    Answer,
    Arena,
    Board,
    BoardLock,
    CaughtError,
    IndexReader,
    Ledger,
    Region,
    Result,
    Task,
    Work,
    dump,
    free_block,
)
from .events import WorkerEvents
from .fetch import Fetcher, SampleSeeds
from .record import WorkerRecord
from .room_for_blocks import Entering
from .rows import Placer
from .staging import named_samples

# of the budget, for the blocks that all workers keep in their heaps
_KEPT_PART, _LEAST_KEPT_BYTES = 8, 4 << 20
_TOLD_BYTES = 1 << 20  # how a batch is laid out, and that it does not fit, are told whatever the budget


def kept_heap_bytes(budget_bytes: int, num_workers: int) -> int:
    """How much one block may be for a worker to keep its pages: together no more than a part of the budget."""
    return max(_LEAST_KEPT_BYTES, budget_bytes // (_KEPT_PART * max(1, num_workers)))


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """What every worker of a pool shares."""

    dataset: Any
    collate: Callable[[Any], Any] | None  # None: torch's default_collate, imported only where it is needed
    init_fn: Callable[[int], None] | None
    context: Any  # a multiprocessing context
    base_seed: int
    is_iterable: bool
    is_batched: bool  # False: batch_size=None
    drop_last: bool
    uses_slots: bool  # the default collation
    has_getitems: bool
    in_threads: bool
    keeps_stats: bool
    budget_bytes: int
    num_workers: int  # to begin with
    room_bytes: int | None = None  # of addresses, where the system limits them
    cpus: frozenset[int] | None = None  # on which processes of the loader run; None: wherever they may
    goes_on: bool = False  # a failing sample is reported alone, and the others of its chunk go on
    watches_draws: bool = False  # generators are looked at for ever, also where samples are slow


@dataclass(frozen=True)
class WorkerPlan:
    """One worker: its pipes, and its region of the arena."""

    pool: PoolPlan  # without its context
    worker: int
    work: Fd
    urgent: Fd | None
    results: Fd
    region_start: int
    region_bytes: int


def _default_collate(samples: Any) -> Any:
    from torch.utils.data import default_collate

    return default_collate(samples)


class Workbench:
    """One worker's data set, memory, record and means of answering."""

    def __init__(self, plan: WorkerPlan, arena: Arena, lock: BoardLock) -> None:
        self.plan, self.pool, self.arena, self.lock = plan, plan.pool, arena, lock
        pool, worker, budget = plan.pool, plan.worker, plan.pool.budget_bytes
        self.is_seeded = not pool.in_threads  # its random generators are its own
        lane = open_lane(role="worker")
        self.events = None if lane is None else WorkerEvents(lane)  # None where nobody records: nothing is timed for it
        self.dataset, self.collate = named_samples(pool.dataset), pool.collate or _default_collate
        self.words = Board(arena.bytes).words
        self.all_words = arena.bytes.cast("q")
        largest = max(_TOLD_BYTES, min(budget, plan.region_bytes // 2))
        self.region = Region(arena, plan.region_start, plan.region_bytes, largest=largest)
        self.record = WorkerRecord(self.words, worker, self.events)
        self.entering = Entering(arena, lock, self.region, self.record, worker=worker, budget_bytes=budget)
        self.indices = IndexReader(arena, self.words, is_batched=pool.is_batched)
        seeds = None
        if self.is_seeded and not pool.is_iterable:
            has_getitems, uses_slots = pool.has_getitems, pool.uses_slots
            needs_to_know, seeds_all = has_getitems and uses_slots, has_getitems and not uses_slots
            needs_to_know |= pool.watches_draws
            seeds = SampleSeeds(self.dataset, needs_to_know=needs_to_know, seeds_all=seeds_all)
        self.fetcher = Fetcher(self.dataset, has_getitems=pool.has_getitems, seeds=seeds, is_patient=pool.goes_on)
        self.ledger = Ledger(arena, lock)
        self.teller = Teller(plan, arena, self.ledger, self.region, self.fetcher)
        self.placer = Placer(
            arena, lock, self.ledger, self.region, self.record, self.teller.propose, budget_bytes=budget
        )


class Teller:
    """Counts what was done, and answers for it. One per worker."""

    def __init__(self, plan: WorkerPlan, arena: Arena, ledger: Ledger, region: Region, fetcher: Fetcher) -> None:
        self._worker, self._results = plan.worker, plan.results
        self._arena, self._region, self._fetcher = arena, region, fetcher
        self._ledger, self._all_words = ledger, arena.bytes.cast("q")

    def answer(self, work: Work, answer: Answer, *, block: int = 0, row: int = -1, rows: int = -1) -> None:
        row, rows = (work.row if row < 0 else row), (work.rows if rows < 0 else rows)
        os.write(self._results.fd, Result(work.seq, block, row, rows, self._worker, answer).pack())

    def propose(self, seq: int, num_rows: int, block: int) -> None:
        self.answer(Work(seq, 0, num_rows, Task.CHUNK), Answer.LAYOUT, block=block)

    def fail(
        self, work: Work, entry: int, row: int, error: BaseException, *, rows: int | None = None, is_sample: bool = True
    ) -> None:
        """Report an exception of user code; the rest of its chunk is void."""
        tries = self._fetcher.last_tries
        caught = CaughtError.from_exception(error, self._worker, is_sample=is_sample, tries=tries)
        block, _ = dump(caught, self._region, self._arena)
        rows = work.row + work.rows - row if rows is None else rows
        self.tell(work, entry, Answer.FAILED, row, rows, block=block, is_void=True)

    def tell(
        self, work: Work, entry: int, answer: Answer, row: int, rows: int, *, block: int = 0, is_void: bool = False
    ) -> None:
        """Count rows as done and answer for them. `is_void`: there is no sample, so nobody may collate the batch."""
        if self.account(work, entry, row, rows, is_void=is_void):
            self.answer(work, answer, block=block, row=row, rows=rows)
        elif block:
            free_block(self._all_words, block)

    def account(
        self, work: Work, entry: int, row: int, rows: int, *, quietly: bool = False, is_void: bool = False
    ) -> bool:
        """Count rows of a batch as done; whoever counts the last one tells of all that were done quietly.

        Waking the training process costs a worker more than a small sample (20 to 50 µs on a virtual machine): one
        answer a batch is enough where there is nothing else to say. False: the rows were given to another worker
        meanwhile, and what this one did counts for nothing.
        """
        if work.task != Task.CHUNK:
            return True
        tries, worker = work.tries, self._worker
        quiet = self._ledger.count_done(entry, row, rows, tries=tries, worker=worker, quietly=quietly, is_void=is_void)
        if quiet > 0:
            self.answer(work, Answer.ROWS, row=0, rows=quiet)
        return quiet >= 0
