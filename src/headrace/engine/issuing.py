"""A batch of indices goes out: its entry on the board, its chunks to the workers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from headrace.order import PlannedBatch

from .epoch import Delivery, FeedSettings, KnownLayouts, Scheduler, ThreadTrial, Turns
from .losses import Carrying
from .memory import GENERAL, TOLD, UNBOUND, Board, Entry, Work, pack_indices, payload_bytes, write_payload
from .pacing import Pacing
from .pool import Pool


class Issuing:
    """Issues the batches of an epoch, one after another."""

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        *,
        scheduler: Scheduler,
        delivery: Delivery,
        layouts: KnownLayouts,
        pacing: Pacing,
        turns: Turns,
        trial: ThreadTrial,
        carrying: Carrying,
    ) -> None:
        self._pool, self._settings, self._scheduler, self._delivery = pool, settings, scheduler, delivery
        self._layouts, self._pacing, self._turns, self._trial = layouts, pacing, turns, trial
        self._carrying = carrying
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self.position = self._base_seed = 0
        self.is_whole = settings.whole_batches  # from here on, batches are not split

    def begin(self, base_seed: int) -> None:
        """Begin an epoch."""
        self.position, self._base_seed = 0, base_seed

    def issue(self, indices: Any, planned: PlannedBatch | None, *, run: int, is_first: bool) -> int:
        """Send a batch out; returns its number."""
        if planned is not None and not self._settings.is_batched:
            (indices,) = indices
        elif self._settings.is_batched and isinstance(indices, (Set, Mapping)):
            indices = list(indices)  # it has an order, but no rows to point at
        if planned is not None:
            self.position = planned.first_position
        num_rows = len(indices) if self._settings.is_batched else 1
        self._layouts.make_room(num_rows)
        worker = -1
        seq = self._scheduler.next_seq
        place = UNBOUND if self._settings.uses_slots else GENERAL
        done: list[int] = []
        if self._settings.is_iterable:
            worker = self._turns.take()
            works = [self._scheduler.issue_whole(num_rows, self.position, worker=worker)]
        elif self.is_whole:
            works = [self._scheduler.issue_whole(num_rows, self.position)]
        else:
            gaps = planned.gaps if planned is not None else ()
            if planned is not None and place == UNBOUND:
                place, done = self._carrying.fill(planned)
            chunk = self._pacing.chunk_for(num_rows)
            works = self._scheduler.issue(num_rows, self.position, chunk, gaps=gaps, done=done)
        payload, row_words = (0, 0) if self._settings.is_iterable else self._write_indices(seq, indices, num_rows)
        self._pool.board.open_entry(
            seq,
            run=run,
            num_rows=num_rows,
            first_position=self.position,
            base_seed=self._base_seed,
            payload=payload,
            row_words=row_words,
            place=place,
        )
        if done:
            self._words[Board.entry_at(seq) + Entry.ROWS_DONE] = len(done)
            for row in done:
                self._all_words[row_words + row] = TOLD
        if is_first and self._settings.measures_threads and self._settings.is_batched:
            self._trial.keep(indices)
        self.position += num_rows
        for work in works:
            self._pool.pipes.send(work, worker=worker)
        return seq

    def _write_indices(self, seq: int, indices: Any, num_rows: int) -> tuple[int, int]:
        """Put a batch's indices into shared memory; returns their block, and where the words of its rows begin."""
        packed = pack_indices(indices, is_batched=self._settings.is_batched)
        size = payload_bytes(num_rows, packed)
        block = self._pool.region.take(size)
        end = write_payload(self._pool.arena.view(block, size), num_rows, packed)
        self._delivery.keep_payload(seq, block)
        return block, (block + end) >> 3

    def forget_rows(self, work: Work) -> None:
        """A batch is fetched anew in one piece: what its chunks left does not count."""
        at = self._words[Board.entry_at(work.seq) + Entry.ROW_WORDS]
        self._all_words[at : at + work.rows] = memoryview(bytes(8 * work.rows)).cast("q")
