"""A sample failed: ask the loader's policy, and do what it says."""

from typing import Any

from headrace.errors import TooManyBad
from headrace.model import RAISE, RETRY, Replacement, SampleFailure, is_from_signal
from headrace.order import PlannedBatch

from ..epoch import Batch, EpochPlan, Issuing, Scheduler
from ..memory import CaughtError, Result, dump, free_block, load, mark_told, peek
from ..pool import Pool
from .condemned import Condemned
from .replanning import Replanning
from .rows_again import RowsAgain
from .sample_names import name_sample, place_sample


class Judge:
    """Decides about samples that failed while batches are in flight."""

    def __init__(
        self,
        pool: Pool,
        condemned: Condemned,
        *,
        scheduler: Scheduler,
        issuing: Issuing,
        plan: EpochPlan,
        again: RowsAgain,
        replanning: Replanning,
        rank: int,
    ) -> None:
        self._pool, self._condemned, self._rank = pool, condemned, rank
        self._scheduler, self._issuing, self._plan = scheduler, issuing, plan
        self._again, self._replanning = again, replanning
        self._all_words = pool.arena.bytes.cast("q")
        self._tries: dict[tuple[int, int], int] = {}  # (batch, row): how often it was tried again
        self.fatal: Exception | None = None

    def consider(self, result: Result) -> bool:
        """Deal with the failure of a sample. False: the batch fails, as torch's would."""
        batch = self._scheduler.batches.get(result.seq)
        plan = self._plan.planned(result.seq)
        if batch is None or batch.is_cancelled or plan is None or self.fatal is not None:
            return False
        caught: CaughtError = peek(self._pool.arena, result.block)
        if not caught.is_sample:
            return False
        failure = self._failure(caught, batch, result.row, plan)
        try:
            decision = self._condemned.policy.judge(failure)
        except Exception as error:  # the user's function raised: the batch fails with that
            if is_from_signal(error):
                raise
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
                self._replanning.give_up_from(batch.seq)
                self._issuing.note(result)  # of a batch that is given up: only its rows are counted
                return True
        except TooManyBad as error:
            self.fatal = error
        free_block(self._all_words, result.block)
        return True

    def pass_over(self, result: Result) -> bool:
        """A sample of an iterable data set failed. False: it is not left out, and the epoch ends with an error."""
        caught: CaughtError = load(self._pool.arena, result.block)
        failure = caught.as_failure(key=None, epoch=self._plan.progress.epoch, rank=self._rank)
        try:
            if self._condemned.pass_over(failure):
                return True
            raise caught.as_exception()
        except Exception as error:
            if is_from_signal(error):
                raise
            self.fatal = self.fatal or error
            return False

    def _failure(self, caught: CaughtError, batch: Batch, row: int, plan: PlannedBatch) -> SampleFailure:
        dataset = self._pool.plan.dataset
        place = place_sample(dataset, plan.keys[row])
        file = caught.said.file or (place.key if place is not None else name_sample(dataset, plan.keys[row]))
        return caught.as_failure(
            key=plan.keys[row],
            position=plan.positions[row],
            epoch=self._plan.progress.epoch,
            tries=caught.tries + self._tries.get((batch.seq, row), 0),
            shard=None if place is None else place.shard,
            offset=None if place is None else place.offset,
            file=file,
            rank=self._rank,
            num_samples=self._condemned.num_samples,
        )

    def _fail_with(self, result: Result, error: Exception) -> None:
        free_block(self._all_words, result.block)
        caught = CaughtError.from_exception(error, -1, is_sample=False)
        block, _ = dump(caught, self._pool.region, self._pool.arena)
        self._issuing.note(result._replace(block=block))

    def _put(self, batch: Batch, result: Result, sample: Any) -> None:
        """Use a sample of the user's instead of the one that failed."""
        if batch.is_whole:
            self._fail_with(result, TypeError("on_error gave a sample for a batch that is fetched in one piece"))
            self._pool.ledger.fail(batch.seq)
            return
        block, _ = dump([sample], self._pool.region, self._pool.arena)
        mark_told(self._all_words, block)
        self._again.put(batch, result.row, block)
