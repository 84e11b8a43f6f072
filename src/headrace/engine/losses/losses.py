"""Bad samples and lost workers of one feed, and what is done about each."""

from dataclasses import dataclass
from typing import Any

from headrace.errors import TooManyBad
from headrace.model import RAISE, RETRY, Replacement, SampleFailure, is_from_signal
from headrace.order import PlannedBatch

from ..epoch import Batch, EpochPlan, Issuing
from ..memory import (
    QUIET,
    UNBOUND,
    Answer,
    CaughtError,
    Result,
    Task,
    Work,
    dump,
    free_block,
    join_place,
    load,
    mark_told,
    peek,
    split_place,
)
from ..pool import Loss
from .condemned import Condemned
from .recovery import MOST_LOSSES, Guilty, Recovery
from .rows_again import LOCK_PATIENCE_S, Claims
from .sample_names import name_sample, place_sample

# copies of rows lie outside of the budget until the next batches go out: no more than this, and than a quarter of it
_MOST_BYTES = 512 << 20


class Streams:
    """How far each worker's iterator has come, and what to do when one is lost with it."""

    def __init__(self, issuing: Issuing) -> None:
        self._pool, self._scheduler = issuing.pool, issuing.scheduler
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


@dataclass(frozen=True)
class _Copy:
    """The slot of a batch that was given up, as it was."""

    layout: int
    num_rows: int
    memory: bytes


class Replanning:
    """Gives batches up when a sample is left out, and keeps their finished rows for the batches that follow.

    Each later sample moves up by a place. What workers did for them is still right: a sample depends on its key and on
    its position alone. So a row that is done is copied out of the slot of the batch that is given up, and into the slot
    of the batch that takes its sample. What workers have in hand at that moment is fetched once more.
    """

    def __init__(self, issuing: Issuing, plan: EpochPlan, claims: Claims) -> None:
        self._pool, self._scheduler, self._plan, self._claims = issuing.pool, issuing.scheduler, plan, claims
        self._slots, self._layouts, self._ledger = issuing.delivery.slots, issuing.delivery.layouts, self._pool.ledger
        self._most_bytes = min(_MOST_BYTES, self._pool.plan.budget_bytes // 4)
        self._kept: dict[int, tuple[Any, _Copy, int]] = {}  # position: key, where its row is

    def clear(self) -> None:
        self._kept.clear()

    def give_up_from(self, first: int) -> None:
        """Give up all batches from one on: their samples are given out again without those that are left out."""
        for seq in self._scheduler.order:
            planned = self._plan.planned(seq)
            if seq >= first and planned is not None:
                self._keep(self._scheduler.batches[seq], planned)
        cancelled = self._scheduler.cancel_from(first)
        for seq in cancelled:
            self._ledger.cancel(seq)
        self._plan.give_back(cancelled)

    def _keep(self, batch: Batch, planned: PlannedBatch) -> None:
        """Copy the rows of a batch that are done; it is about to be given up."""
        place = self._ledger.place_of(batch.seq)
        if batch.is_whole or place < 0 or self._claims.is_in_hand(batch.seq):
            return
        number, slot = split_place(place)
        layout = self._layouts.known[number]
        size = layout.places(batch.num_rows)[1]
        held = {id(copy): len(copy.memory) for _, copy, _ in self._kept.values()}
        if layout.has_objects or sum(held.values()) + size > self._most_bytes:
            return
        # a row that was told of may have failed
        state = self._ledger.row_words(batch.seq)
        rows = [row for row, word in enumerate(state) if word == QUIET or batch.is_carried(row)]
        if rows:
            copy = _Copy(number, batch.num_rows, bytes(self._slots.memory(slot)[:size]))
            self._kept.update({planned.positions[row]: (planned.keys[row], copy, row) for row in rows})

    def fill(self, planned: PlannedBatch) -> tuple[int, list[int]]:
        """Give a planned batch a slot with the rows that are kept for it; returns its place, and those rows."""
        found: list[tuple[int, _Copy, int]] = []
        if self._kept:
            for row, (position, key) in enumerate(zip(planned.positions, planned.keys, strict=True)):
                kept = self._kept.pop(position, None)
                # what fills the end of an epoch may be another sample than it was
                if kept is not None and kept[0] is key and (not found or kept[1].layout == found[0][1].layout):
                    found.append((row, kept[1], kept[2]))
        if not found:
            return UNBOUND, []
        number = found[0][1].layout
        layout, num_rows = self._layouts.known[number], len(planned.keys)
        with self._pool.lock.within(LOCK_PATIENCE_S) as is_held:
            slot = self._pool.board.bind_slot(layout.places(num_rows)[1]) if is_held else -1
        if slot < 0:
            return UNBOUND, []
        into = layout.row_views(self._slots.memory(slot), num_rows)
        for copy in {id(copy): copy for _, copy, _ in found}.values():
            rows = [(row, source) for row, of, source in found if of is copy]
            for to, values in zip(into, layout.row_views(memoryview(copy.memory), copy.num_rows), strict=True):
                for row, source in rows:
                    to[row] = values[source]
        return join_place(number, slot), [row for row, _, _ in found]


class Losses:
    """What a feed asks when something fails or is lost; a healthy batch does not come by here.

    `are_any` says whether anything ever did: until then the feed asks nothing.
    """

    def __init__(self, issuing: Issuing, plan: EpochPlan, condemned: Condemned) -> None:
        pool, self._scheduler, self._rank = issuing.pool, issuing.scheduler, issuing.settings.rank
        self._pool, self._plan, self._issuing, self.condemned = pool, plan, issuing, condemned
        self._all_words = pool.arena.bytes.cast("q")
        self.are_any = False
        self._counted = plan.progress.total_samples  # delivered samples that the tally of good and bad ones knows of
        self.recovery = Recovery(issuing)
        self._streams = Streams(issuing) if pool.plan.is_iterable else None
        self.replanning = Replanning(issuing, plan, self.recovery.claims)
        self._tries: dict[tuple[int, int], int] = {}  # (batch, row): how often it was tried again
        # what ends the epoch, and its workers: too many bad samples, or what `on_error` raised for a stream
        self.fatal: Exception | None = None

    def start_epoch(self) -> None:
        self.recovery.start_epoch()
        self.replanning.clear()
        if self._streams is not None:
            self._streams.start_epoch()

    # ------------------------------------------------------------------------------------ samples that fail

    def count_good(self) -> None:
        """Let the tally of good and bad samples know what was delivered: before one is judged, and at the end."""
        delivered = self._plan.progress.total_samples
        self.condemned.good(delivered - self._counted)
        self._counted = delivered

    def fail(self, result: Result) -> None:
        """A sample failed, or a batch as a whole."""
        self.are_any = True
        self.count_good()
        if not self._consider(result):
            self._issuing.note(result)

    def _consider(self, result: Result) -> bool:
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
            decision = self.condemned.policy.judge(failure)
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
                self.recovery.again.retry(batch, result.row, result.rows)
            elif isinstance(decision, Replacement):
                self.condemned.condemn(failure, is_replaced=True)
                self._put(batch, result, decision.sample)
            else:
                self.condemned.condemn(failure)
                self._tries.pop((result.seq, result.row), None)
                self.replanning.give_up_from(batch.seq)
                self._issuing.note(result)  # of a batch that is given up: only its rows are counted
                return True
        except TooManyBad as error:
            self.fatal = error
        free_block(self._all_words, result.block)
        return True

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
            num_samples=self.condemned.num_samples,
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
        self.recovery.again.put(batch, result.row, block)

    def note_stream(self, result: Result) -> bool:
        """Take an answer of an iterable data set into account, before the others do. True: it concerns nobody else."""
        assert self._streams is not None
        num_new = self._streams.note(result)
        self._plan.note_brought(num_new)
        if result.answer != Answer.PASSED_OVER:
            return False
        if not num_new:  # told already by a worker that is lost, or of an epoch that was given up
            free_block(self._all_words, result.block)
            return True
        self.are_any = True
        self.count_good()
        if self._pass_over(result):
            self._plan.note_passed_over()
        return True

    def _pass_over(self, result: Result) -> bool:
        """A sample of an iterable data set failed. False: it is not left out, and the epoch ends with an error."""
        caught: CaughtError = load(self._pool.arena, result.block)
        failure = caught.as_failure(key=None, epoch=self._plan.progress.epoch, rank=self._rank)
        try:
            if self.condemned.pass_over(failure):
                return True
            raise caught.as_exception()
        except Exception as error:
            if is_from_signal(error):
                raise
            self.fatal = self.fatal or error
            return False

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
