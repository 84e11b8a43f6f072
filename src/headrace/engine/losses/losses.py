"""Bad samples and lost workers of one feed, and what is done about each."""

from headrace.order import PlannedBatch

from ..epoch import EpochPlan, FeedSettings, Issuing, KnownLayouts, Scheduler
from ..memory import Answer, Result, Slots, Task, Work, free_block
from ..pool import Loss, Pool
from .condemned import Condemned
from .judging import Judge
from .recovery import MOST_LOSSES, Guilty, Recovery
from .replanning import Replanning


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


class Losses:
    """What a feed asks when something fails or is lost; a healthy batch does not come by here.

    `are_any` says whether anything ever did: until then the feed asks nothing.
    """

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        condemned: Condemned,
        *,
        scheduler: Scheduler,
        issuing: Issuing,
        plan: EpochPlan,
        slots: Slots,
        layouts: KnownLayouts,
    ) -> None:
        self._pool, self._plan, self._issuing, self.condemned = pool, plan, issuing, condemned
        self.are_any = False
        self._counted = plan.progress.total_samples  # delivered samples that the tally of good and bad ones knows of
        self.recovery = Recovery(pool, scheduler, issuing)
        self._streams = Streams(pool, scheduler) if pool.plan.is_iterable else None
        self._replanning = Replanning(pool, scheduler, plan, slots, layouts, self.recovery.claims)
        self._judge = Judge(
            pool,
            condemned,
            scheduler=scheduler,
            issuing=issuing,
            plan=plan,
            again=self.recovery.again,
            replanning=self._replanning,
            rank=settings.rank,
        )

    def start_epoch(self) -> None:
        self.recovery.start_epoch()
        self._replanning.clear()
        if self._streams is not None:
            self._streams.start_epoch()

    @property
    def fatal(self) -> Exception | None:
        """What ends the epoch, and its workers: too many bad samples, or what `on_error` raised for a stream."""
        return self._judge.fatal

    # ------------------------------------------------------------------------------------ samples that fail

    def count_good(self) -> None:
        """Let the tally of good and bad samples know what was delivered: before one is judged, and at the end."""
        delivered = self._plan.progress.total_samples
        self.condemned.good(delivered - self._counted)
        self._counted = delivered

    def is_in_hand(self, seq: int) -> bool:
        """Whether a worker may still write into a batch: one whose chunk was given out twice."""
        return self.recovery.claims.is_in_hand(seq)

    def fail(self, result: Result) -> None:
        """A sample failed, or a batch as a whole."""
        self.are_any = True
        self.count_good()
        if not self._judge.consider(result):
            self._issuing.note(result)

    def carried_over(self, planned: PlannedBatch) -> tuple[int, list[int]]:
        """The slot of a batch that is planned anew, and the rows of it that are done already."""
        return self._replanning.fill(planned)

    def note_stream(self, result: Result) -> bool:
        """Take an answer of an iterable data set into account, before the others do. True: it concerns nobody else."""
        assert self._streams is not None
        num_new = self._streams.note(result)
        self._plan.note_brought(num_new)
        if result.answer != Answer.PASSED_OVER:
            return False
        if not num_new:  # told already by a worker that is lost, or of an epoch that was given up
            free_block(self._pool.arena.bytes.cast("q"), result.block)
            return True
        self.are_any = True
        self.count_good()
        if self._judge.pass_over(result):
            self._plan.note_passed_over()
        return True

    # ------------------------------------------------------------------------------------ workers that are lost

    def bears(self, loss: Loss) -> bool:
        """Whether this loss may be made good."""
        return self.recovery.bears(loss) and (self._streams is None or self._streams.bears(loss))

    def take_over(self, loss: Loss) -> list[Guilty] | None:
        """Give out again what a lost worker owed, for a map-style data set; it must be replaced after it."""
        self.are_any = True
        return self.recovery.take_over(loss)

    def take_over_stream(self, loss: Loss) -> None:
        """Begin again in place of a worker of an iterable data set; it must be replaced before it."""
        assert self._streams is not None
        self.are_any = True
        self.recovery.note_loss()
        self._streams.take_over(loss)
        self.recovery.num_losses += 1
