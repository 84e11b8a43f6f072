"""A batch goes out to the workers: its entry in the ledger, its chunks through the pipes."""

from collections.abc import Sequence

from ..memory import GENERAL, UNBOUND, Result, write_indices
from ..pool import Pool
from .delivery import Delivery
from .pacing import Pacing
from .plan import FeedSettings, TakenBatch
from .scheduler import Scheduler


class Turns:
    """Whose turn it is among the workers of an iterable data set: each fills batches of its own."""

    def __init__(self) -> None:
        self.active: list[int] = []  # those whose iterators have more
        self._turn = 0

    def begin(self, num_workers: int) -> None:
        """Begin an epoch: all have more."""
        self.active, self._turn = list(range(num_workers)), 0

    def take(self, owed: Sequence[int] = ()) -> int:
        """The worker that fills the next batch: one that has the fewest to fill, where those are told (`owed`)."""
        places = [(self._turn + later) % len(self.active) for later in range(len(self.active))]
        place = min(places, key=lambda place: owed.count(self.active[place]))
        self._turn = (place + 1) % len(self.active)
        return self.active[place]

    def retire(self, worker: int) -> bool:
        """A worker's iterable data set is exhausted: take it out of the turns. False: that was known."""
        if worker not in self.active:
            return False
        if self.active.index(worker) < self._turn:
            self._turn -= 1
        self.active.remove(worker)
        return True


class Issuing:
    """Issues the batches of an epoch, one after another, and what has to go out again."""

    def __init__(
        self, pool: Pool, settings: FeedSettings, scheduler: Scheduler, delivery: Delivery, pacing: Pacing
    ) -> None:
        self.pool, self.settings, self.scheduler, self.delivery = pool, settings, scheduler, delivery
        self._pacing = pacing
        self.base_seed = 0  # of the epoch
        self.turns = Turns()
        self.is_whole = settings.whole_batches  # from here on, batches are not split

    def issue(
        self, taken: TakenBatch, *, run: int, place: int = UNBOUND, done: Sequence[int] = (), chunk_part: int = 1
    ) -> int:
        """Send a batch out; returns its number.

        `place` and `done`: a slot that has some of its rows already. `chunk_part` divides its chunks.
        """
        num_rows, position, worker = taken.num_rows, taken.position, -1
        self.delivery.layouts.make_room(num_rows)
        seq = self.scheduler.next_seq
        if self.pool.plan.is_iterable:
            batches = () if self.settings.in_order else self.scheduler.batches.values()
            worker = self.turns.take([batch.worker for batch in batches if not batch.is_settled])
            works = [self.scheduler.issue_whole(num_rows, position, worker=worker)]
        elif self.is_whole:
            works = [self.scheduler.issue_whole(num_rows, position)]
        else:
            gaps = taken.planned.gaps if taken.planned is not None else ()
            chunk = max(1, self._pacing.chunk_for(num_rows) // chunk_part)
            works = self.scheduler.issue(num_rows, position, chunk, gaps=gaps, done=done)
        payload = row_words = 0
        if not self.pool.plan.is_iterable:
            payload, row_words = write_indices(
                self.pool.arena, self.pool.region, taken.indices, num_rows, is_batched=self.pool.plan.is_batched
            )
            self.delivery.keep_payload(seq, payload)
        self.pool.ledger.open(
            seq,
            run=run,
            num_rows=num_rows,
            first_position=position,
            base_seed=self.base_seed,
            payload=payload,
            row_words=row_words,
            place=place if self.pool.plan.uses_slots else GENERAL,
            done=done,
        )
        for work in works:
            self.pool.pipes.send(work, worker=worker)
        return seq

    def note(self, result: Result) -> None:
        """Let the scheduler know of an answer, and send what has to go out again because of it."""
        for work in self.scheduler.note(result):
            self.pool.ledger.forget_rows(work.seq, work.rows)
            self.pool.pipes.send_again(work)
