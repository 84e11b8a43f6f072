"""A batch goes out to the workers: its entry in the ledger, its chunks through the pipes."""

from __future__ import annotations

from collections.abc import Sequence

from ..memory import GENERAL, UNBOUND, Result, pack_indices, payload_bytes, write_payload
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

    def take(self) -> int:
        """The worker that fills the next batch."""
        worker = self.active[self._turn % len(self.active)]
        self._turn = (self._turn + 1) % len(self.active)
        return worker

    def retire(self, worker: int) -> bool:
        """A worker's iterable data set is exhausted: take it out of the turns. False: that was known."""
        if worker not in self.active:
            return False
        place = self.active.index(worker)
        self.active.remove(worker)
        if place < self._turn:
            self._turn -= 1
        return True


class Issuing:
    """Issues the batches of an epoch, one after another, and what has to go out again."""

    def __init__(
        self, pool: Pool, settings: FeedSettings, scheduler: Scheduler, delivery: Delivery, pacing: Pacing
    ) -> None:
        self._pool, self._settings, self._scheduler = pool, settings, scheduler
        self._delivery, self._pacing = delivery, pacing
        self._base_seed = 0
        self.turns = Turns()
        self.is_whole = settings.whole_batches  # from here on, batches are not split

    def begin(self, base_seed: int) -> None:
        """Begin an epoch."""
        self._base_seed = base_seed

    def issue(
        self,
        taken: TakenBatch,
        *,
        run: int,
        place: int = UNBOUND,
        done: Sequence[int] = (),
        chunk_part: int = 1,
    ) -> int:
        """Send a batch out; returns its number.

        `place` and `done`: a slot that has some of its rows already. `chunk_part` divides its chunks.
        """
        num_rows, position, worker = taken.num_rows, taken.position, -1
        self._delivery.make_room(num_rows)
        seq = self._scheduler.next_seq
        if self._settings.is_iterable:
            worker = self.turns.take()
            works = [self._scheduler.issue_whole(num_rows, position, worker=worker)]
        elif self.is_whole:
            works = [self._scheduler.issue_whole(num_rows, position)]
        else:
            gaps = taken.planned.gaps if taken.planned is not None else ()
            chunk = max(1, self._pacing.chunk_for(num_rows) // chunk_part)
            works = self._scheduler.issue(num_rows, position, chunk, gaps=gaps, done=done)
        payload, row_words = (0, 0) if self._settings.is_iterable else self._write_indices(seq, taken)
        self._pool.ledger.open(
            seq,
            run=run,
            num_rows=num_rows,
            first_position=position,
            base_seed=self._base_seed,
            payload=payload,
            row_words=row_words,
            place=place if self._settings.uses_slots else GENERAL,
            done=done,
        )
        for work in works:
            self._pool.pipes.send(work, worker=worker)
        return seq

    def _write_indices(self, seq: int, taken: TakenBatch) -> tuple[int, int]:
        """Put a batch's indices into shared memory; returns their block, and where the words of its rows begin."""
        packed = pack_indices(taken.indices, is_batched=self._settings.is_batched)
        size = payload_bytes(taken.num_rows, packed)
        block = self._pool.region.take(size)
        end = write_payload(self._pool.arena.view(block, size), taken.num_rows, packed)
        self._delivery.keep_payload(seq, block)
        return block, (block + end) >> 3

    def note(self, result: Result) -> None:
        """Let the scheduler know of an answer, and send what has to go out again because of it."""
        for work in self._scheduler.note(result):
            self._pool.ledger.forget_rows(work.seq, work.rows)
            self._pool.pipes.send_again(work)
