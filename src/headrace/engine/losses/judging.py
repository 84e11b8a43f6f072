"""A sample failed: ask the loader's policy, and do what it says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from headrace.errors import TooManyBad
from headrace.model import RAISE, RETRY, Replacement, SampleFailure
from headrace.order import PlannedBatch

from ..epoch import Batch, Scheduler
from ..memory import TOLD, Board, CaughtError, Entry, Result, dump, free_block, load, mark_told, peek
from ..pool import Pool
from .condemned import Condemned
from .rows_again import RowsAgain
from .sample_names import name_sample, place_sample

_log = logging.getLogger(__name__)


class Judge:
    """Decides about samples that failed while batches are in flight."""

    def __init__(
        self,
        pool: Pool,
        scheduler: Scheduler,
        again: RowsAgain,
        condemned: Condemned,
        *,
        held: Callable[[int], PlannedBatch | None],
        leave_out: Callable[[Batch, int], bool],
    ) -> None:
        self._pool, self._scheduler, self._again, self._condemned = pool, scheduler, again, condemned
        self._held = held  # what lies in the rows of a batch
        self._leave_out = leave_out  # without this row's sample; False: the batch is given up, and planned anew
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self._tries: dict[tuple[int, int], int] = {}  # (batch, row): how often it was tried again
        self.fatal: Exception | None = None

    def consider(self, result: Result, epoch: int, rank: int) -> bool:
        """Deal with the failure of a sample. False: the batch fails, as torch's would."""
        batch = self._scheduler.batches.get(result.seq)
        plan = self._held(result.seq)
        if batch is None or batch.is_cancelled or plan is None or self.fatal is not None:
            return False
        caught: CaughtError = peek(self._pool.arena, result.block)
        if not caught.is_sample:
            return False
        failure = self._failure(caught, batch, result.row, plan, epoch, rank)
        try:
            decision = self._condemned.judge(failure)
        except Exception as error:  # the user's function raised: the batch fails with that
            self._fail_with(result, error)
            return True
        if decision is RAISE:
            return False
        try:
            if decision is RETRY:
                self._tries[result.seq, result.row] = self._tries.get((result.seq, result.row), 0) + 1
                self._again.retry(batch, result.row, result.rows)
            elif isinstance(decision, Replacement):
                self._condemned.condemn(failure, is_replaced=True)
                self._put(batch, result, decision.sample)
            else:
                self._condemned.condemn(failure)
                self._tries.pop((result.seq, result.row), None)
                if not self._leave_out(batch, result.row):
                    self._scheduler.note(result)  # the batch is given up: only its rows are counted
                    return True
        except TooManyBad as error:
            self.fatal = error
        free_block(self._all_words, result.block)
        return True

    def pass_over(self, result: Result, epoch: int, rank: int) -> bool:
        """A sample of an iterable data set failed. False: it is not left out, and the epoch ends with an error."""
        caught: CaughtError = load(self._pool.arena, result.block)
        failure = caught.as_failure(key=None, epoch=epoch, rank=rank)
        try:
            if self._condemned.pass_over(failure):
                return True
            caught.reraise()
        except Exception as error:
            if self.fatal is None:
                self.fatal = error
            return False

    def _failure(
        self, caught: CaughtError, batch: Batch, row: int, plan: PlannedBatch, epoch: int, rank: int
    ) -> SampleFailure:
        dataset = self._pool.plan.dataset
        place = place_sample(dataset, plan.keys[row])
        file = caught.said.file or (place.key if place is not None else name_sample(dataset, plan.keys[row]))
        return caught.as_failure(
            key=plan.keys[row],
            position=plan.positions[row],
            epoch=epoch,
            tries=caught.tries + self._tries.get((batch.seq, row), 0),
            shard=None if place is None else place.shard,
            offset=None if place is None else place.offset,
            file=file,
            rank=rank,
            num_samples=self._condemned.num_samples,
        )

    def _fail_with(self, result: Result, error: Exception) -> None:
        free_block(self._all_words, result.block)
        caught = CaughtError.from_exception(error, result.worker, is_sample=False)
        block, _ = dump(caught, self._pool.region, self._pool.arena)
        self._scheduler.note(result._replace(block=block))

    def _put(self, batch: Batch, result: Result, sample: Any) -> None:
        """Use a sample of the user's instead of the one that failed."""
        if batch.is_whole:
            self._fail_with(result, TypeError("on_error gave a sample for a batch that is fetched in one piece"))
            self._words[Board.entry_at(batch.seq) + Entry.FAILED] = 1
            return
        block, _ = dump([sample], self._pool.region, self._pool.arena)
        mark_told(self._all_words, block)
        entry = Board.entry_at(batch.seq)
        at = self._words[entry + Entry.ROW_WORDS] + result.row
        with self._again.locked():
            batch.rows_left -= 1
            batch.told |= 1 << result.row
            if self._again.is_general(batch):
                self._all_words[at] = block
                batch.shared.append(block)
                batch.shared_rows += 1
            else:
                self._all_words[at] = TOLD
                batch.samples.append((result.row, 1, block))
            self._again.lift_failure(batch)
