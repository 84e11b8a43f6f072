"""A lost worker of an iterable data set: another one begins anew and passes over what is delivered."""

from ..epoch import Scheduler
from ..memory import Answer, Result, Task, Work
from ..pool import Loss, Pool
from .recovery import MOST_LOSSES


class Streams:
    """How far each worker's iterator has come, and what to do when one is lost with it."""

    def __init__(self, pool: Pool, scheduler: Scheduler) -> None:
        self._pool, self._scheduler = pool, scheduler
        self._taken: dict[int, int] = {}  # worker: samples of settled batches, and those that failed before them
        self._aside: dict[int, int] = {}  # worker: samples that failed in the batch that it is at
        self._known: dict[int, int] = {}  # worker: of these, told by one that is lost: they fail again in the next one
        self._losses: dict[tuple[int, int], int] = {}

    def start_epoch(self) -> None:
        self._taken, self._aside, self._known, self._losses = {}, {}, {}, {}

    def note(self, result: Result) -> int:
        """Take an answer into account, before the scheduler does; returns the samples that it is the first to tell of.

        A batch that fails counts as whole, as it does when the loop gets its error.
        """
        batch = self._scheduler.batches.get(result.seq)
        worker = result.worker
        if batch is None or batch.is_cancelled:
            return 0  # of an epoch that was given up
        if result.answer == Answer.PASSED_OVER:
            self._aside[worker] = self._aside.get(worker, 0) + 1
            return int(self._aside[worker] > self._known.get(worker, 0))
        if result.answer not in (Answer.ROWS, Answer.COLLATED, Answer.FAILED):
            return 0
        rows = result.rows if result.answer == Answer.ROWS else batch.count_rows
        has_raised = result.answer == Answer.FAILED and result.rows > 0  # the iterator did; otherwise the collation
        taken = result.row + 1 if has_raised else rows
        self._taken[worker] = self._taken.get(worker, 0) + taken + self._aside.pop(worker, 0)
        self._known.pop(worker, None)
        return rows

    def bears(self, loss: Loss) -> bool:
        """Whether another worker may try: False where several were lost at the same place."""
        for worker in loss.workers:
            place = (worker, self._taken.get(worker, 0))
            self._losses[place] = self._losses.get(place, 0) + 1
            if self._losses[place] >= MOST_LOSSES:
                return False
        return True

    def take_over(self, loss: Loss) -> None:
        """Begin again in place of dead workers, and ask for the batches that they owed. They must be replaced first."""
        for worker in loss.workers:
            self._known[worker] = max(self._known.get(worker, 0), self._aside.pop(worker, 0))
            self._pool.pipes.send(Work(-1, 0, self._taken.get(worker, 0), Task.SKIP), worker=worker)
            for batch in [*self._scheduler.batches.values()]:
                if batch.worker != worker or batch.is_settled:
                    continue
                if batch.is_cancelled:
                    self._scheduler.note(Result(batch.seq, 0, 0, batch.num_rows, worker, Answer.END))
                else:
                    self._pool.pipes.send(self._scheduler.begin_again(batch), worker=worker)
