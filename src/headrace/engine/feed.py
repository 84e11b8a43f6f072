"""One epoch after another through a pool: plan, issue, collect, deliver."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import NotSupported
from headrace.model import EventKind
from headrace.signals.recording import open_lane

from .epoch import Batch, Delivery, EpochPlan, FeedSettings, Figures, Issuing, Pacing, Scheduler, WaitLog
from .guard import LOOK_EVERY_S, Guard, Upkeep, Valve
from .losses import Condemned, Losses
from .memory import UNBOUND, Answer, CaughtError, Head, Record, Result, Slots, Task, Work, load, mark_told
from .online import OnlineTuner
from .pool import Pool
from .worker import say_doubt

_log = logging.getLogger(__name__)

# what is measured of the first samples to choose workers: so many of quick ones, whatever there is of slow ones
_SLOW_SAMPLE_S, _PAST_TRIAL = 0.001, 48


class Feed:
    """Drives a pool through epochs and hands out batches."""

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        condemned: Condemned,
        *,
        earlier: npt.NDArray[np.int64] | None = None,
        before: "Feed | None" = None,
    ) -> None:
        """`before`: one that an exception left in the middle of its work, and whose epoch this one goes on with."""
        self.pool, self.settings, self._condemned = pool, settings, condemned
        # torch's timeout is how long the loop waits; where samples may be left out, it is a sample's (`Upkeep`)
        raises_at_once = condemned.policy.raises_at_once
        self._timeout_s = settings.timeout_s if raises_at_once else 0.0
        self._words, self._all_words = pool.board.words, pool.arena.bytes.cast("q")
        self._lane = open_lane(role="trainer")
        # what is measured
        self.figures = figures = Figures(pool, earlier)
        self.waits: WaitLog = WaitLog() if before is None else before.waits
        # plan, issue, collect, deliver; where samples may be left out, they are kept until their batch leaves
        is_out = condemned.is_out if condemned.is_active else None
        self.plan: EpochPlan = EpochPlan(pool, is_out) if before is None else before.plan
        self.scheduler = scheduler = Scheduler(in_order=settings.in_order, keeps_samples=not raises_at_once)
        start, size, budget = pool.arena_plan.slots_start, pool.arena_plan.slots_bytes, pool.plan.budget_bytes
        self.slots = slots = Slots(pool.arena, pool.board, pool.lock, start=start, size=size, budget_bytes=budget)
        self.delivery = delivery = Delivery(pool, slots, settings.collate)
        self.pacing = Pacing(settings, scheduler, delivery, figures, self.waits)
        self._issuing = Issuing(pool, settings, scheduler, delivery, self.pacing)
        # beside it: what is asked when something fails, is lost, or stands still
        self.losses = Losses(self._issuing, self.plan, condemned)
        self.guard = Guard(self.losses.recovery, figures, delivery, settings.timeout_s)
        self._upkeep = Upkeep(settings, self.guard, self.losses, slots, figures)
        self._valve = Valve(pool, scheduler)
        self.tuner: OnlineTuner | None = None  # of `tune="online"`
        self.epoch_started = 0.0
        self.delivering = -1  # the batch that is on its last way to the loop
        self.raised: Exception | None = None  # what `next` raised last where all is in order: the error of a batch
        if before is not None:
            self.plan.move_to(pool)
            self.losses.recovery.num_losses = before.losses.recovery.num_losses
            self.guard.retired, self.figures.earlier_bytes = before.guard.retired, before.figures.bytes_written()
            for count in ("slot_batches", "general_batches", "copied_batches"):
                setattr(self.delivery, count, getattr(before.delivery, count))

    def start_epoch(self, indices: Iterator[Any], base_seed: int) -> None:
        """Begin an epoch; whatever is left of the one before is given up."""
        self.scheduler.cancel_from(0)
        self._words[Head.NEXT] = self.scheduler.next_seq - 1
        self._words[Head.REISSUED] = 0
        self.plan.begin(indices)
        self._start(base_seed)
        self._collect()
        self._refill()

    def go_on(self, base_seed: int) -> None:
        """Go on with the epoch that another feed was left in, behind what the loop has got of it: `next` issues it."""
        self.plan.go_on()
        self._start(base_seed)

    def _start(self, base_seed: int) -> None:
        self._issuing.base_seed = base_seed
        self.losses.start_epoch()
        self.epoch_started = time.perf_counter()
        self.waits.pause()
        if self.tuner is not None:
            self.tuner.begin_epoch()
        if self.pool.plan.is_iterable:
            self._issuing.turns.begin(self.pool.num_workers)
            if self.plan.progress.epoch:
                for worker in self._issuing.turns.active:
                    self.pool.pipes.send(Work(-1, 0, 0, Task.RESTART), worker=worker)

    def next(self) -> Any:
        """The next batch; StopIteration at the end of the epoch."""
        self.delivering, self.pool.is_at_rest = -1, False
        self._collect()
        self._refill()
        asked, num_ready = time.perf_counter(), self.scheduler.num_ready if self._lane is not None else 0
        batch = self._await_batch(asked)
        if self._lane is not None:
            waited_ns = int((time.perf_counter() - asked) * 1e9)
            self._lane.write(EventKind.QUEUE_GET, int(asked * 1e9), waited_ns, num_ready)
        if self._words[Head.OPEN]:
            self._valve.shut()
        self.delivering = batch.seq
        result = self.delivery.deliver(batch)
        self.plan.note_left(batch)
        self.delivering = -1  # what the sampler raises is not this batch's error
        if isinstance(result, CaughtError):
            self.raised = result.as_exception()
            if type(self.raised) is not NotSupported:  # with that it ends
                self.plan.note_failed(batch.seq)
                self._refill()
            raise self.raised
        self._refill()
        self.delivering = batch.seq
        if self.slots.on_first_lease is not None:
            # some for the batches ahead, some for those that are being used or copied
            self.slots.make_one_ready(self.pacing.limit() + 4)
        self._upkeep.has_delivered = True
        return result

    def _refill(self) -> None:
        if self.pacing.is_due(self.plan.progress.total_batches):
            self.pacing.take()
        else:
            if time.monotonic() >= self.guard.due_at_s:
                self._upkeep.look()
            if self.pool.losses:
                self._make_good()
        if self.tuner is not None and time.perf_counter() >= self.tuner.due_at_s:
            self.tuner.look()
        if not self.plan.is_exhausted:
            limit = min(self.guard.most_ahead, self.pacing.limit())
            while self.scheduler.in_flight < limit and self._issue_next():
                pass
            # within the limit there is a slot for each
            self._words[Head.PLENTY] = self.scheduler.in_flight <= limit and self.slots.largest_bytes > 0
        self.pool.pipes.flush()

    def _issue_next(self) -> bool:
        """Issue one batch; False where there is none."""
        if self.pool.plan.is_iterable and not self._issuing.turns.active:
            self.plan.is_exhausted = True
            return False
        taken = self.plan.take()
        if taken is None:
            return False
        if taken.planned is None:
            self.plan.note_issued(self._issuing.issue(taken, run=self.plan.run))
            return True
        carries = self.losses.are_any and self.pool.plan.uses_slots and not self._issuing.is_whole
        place, done = self.losses.replanning.fill(taken.planned) if carries else (UNBOUND, [])
        # the rows of a chunk count when all are done, and what is in hand when another sample fails is fetched again
        chunk_part = 8 if self._condemned.failures else 1
        seq = self._issuing.issue(taken, run=self.plan.run, place=place, done=done, chunk_part=chunk_part)
        self.plan.note_issued(seq)
        return True

    def _collect(self) -> None:
        """Take all answers that have come, and give back what the batches they end no longer need."""
        for result in self.pool.pipes.receive():
            self._note(result)
        scheduler = self.scheduler
        if scheduler.dropped:
            for batch in scheduler.dropped:
                self.delivery.release(batch)
            scheduler.dropped.clear()
        if scheduler.to_free:
            self.delivery.free(scheduler.to_free)
            scheduler.to_free.clear()

    def _note(self, result: Result) -> None:
        if self.pool.plan.is_iterable and self.losses.note_stream(result):
            return
        answer, batches = result.answer, self.scheduler.batches
        self.pacing.has_answer = True
        if answer == Answer.LAYOUT:
            self.delivery.layouts.consider(load(self.pool.arena, result.block), result.rows)
            return
        if answer == Answer.FAILED:
            mark_told(self._all_words, result.block)
            self.losses.fail(result)
            return
        if answer == Answer.COLLATED:
            self.delivery.note_collated(batches.get(result.seq), result.block)
        elif answer == Answer.SHARED and result.block:
            self.delivery.note_samples(result.block, result.rows)
        elif answer == Answer.END:
            batch = batches.get(result.seq)
            # an end that belongs to an epoch which was given up says nothing of this one
            if batch is not None and not batch.is_cancelled:
                is_new = self._issuing.turns.retire(result.worker)
                if is_new and result.row:
                    say_doubt(f"the iterator of worker {result.worker}")
        elif answer == Answer.NEEDS_WHOLE and not self._issuing.is_whole:
            self._issuing.is_whole = True
            _log.info("the data set's samples cannot travel one by one: batches are not split from here on")
        if result.block:
            mark_told(self._all_words, result.block)
        self._issuing.note(result)

    def _make_good(self) -> None:
        """Replace lost workers; what they had answered before counts."""
        self._collect()
        self._upkeep.make_good()

    def _await_batch(self, started: float) -> Batch:
        scheduler, losses, timeout_s, is_refilled = self.scheduler, self.losses, self._timeout_s, True
        self._upkeep.waiting_since, lets_go_s = started, 0.001
        while True:
            if losses.are_any and losses.fatal is not None:
                raise losses.fatal
            batch = scheduler.ready()
            if batch is not None and not (losses.are_any and losses.recovery.claims.is_in_hand(batch.seq)):
                scheduler.take(batch)
                if not batch.is_empty:
                    return batch
                self.delivery.release(batch)
                self.plan.note_left(batch)
                self._refill()
                continue
            if batch is None and not scheduler.in_flight and self.plan.is_exhausted:
                self.plan.close_account()
                raise StopIteration
            if not is_refilled:  # where the batch is there, the next ones go out when it has left
                self._refill()
                is_refilled = True
                continue
            waited = time.perf_counter() - started
            if timeout_s and waited > timeout_s:
                self.raised = self._upkeep.timed_out(timeout_s)
                raise self.raised
            if scheduler.order:
                # from here on it has room in any case: the loop has let go of what it does not keep
                self._words[Head.NEXT] = scheduler.order[0]
                self.delivery.make_way(scheduler.batches[scheduler.order[0]])
            is_long = waited > LOOK_EVERY_S
            poll_s = LOOK_EVERY_S if is_long and self._valve.is_watching else self._upkeep.poll_s
            if batch is not None:  # whole, and still in a worker's hand: nobody tells when it lets go
                poll_s, lets_go_s = lets_go_s, min(2 * lets_go_s, poll_s)
            self._wait(min(poll_s, timeout_s - waited + 0.001) if timeout_s else poll_s)
            is_refilled = False
            if is_long:
                self._valve.look()

    def _wait(self, timeout_s: float) -> None:
        self._upkeep.wait(timeout_s)
        self._collect()
        if self.pool.losses:
            self._make_good()

    @property
    def has_ready(self) -> bool:
        """Whether the next batch is there, so that `next` would not wait."""
        self._collect()
        batch = self.scheduler.ready()
        # one that will raise waits for its turn
        return batch is not None and not batch.is_empty and batch.failure is None and not batch.samples

    def measure_first_samples(self, *, at_least: int = 4, patience_s: float = 10.0) -> tuple[float, float]:
        """Wait until the only worker has run a few chunks; returns a sample's time and its share of processor time.

        The time is that of the quickest: the first ones pay for imports, opened files and cold caches.
        """
        self._upkeep.waiting_since = time.perf_counter()
        deadline = time.perf_counter() + patience_s
        while time.perf_counter() < deadline:
            num_ready, in_flight = self.scheduler.num_ready, self.scheduler.in_flight
            # the first samples are seeded on trial, which costs more than a quick sample itself
            is_slow = self.figures.quickest_sample(worker=0)[0] > _SLOW_SAMPLE_S
            is_many = self.figures.total(Record.CHUNKS_DONE) >= at_least
            if (is_slow and num_ready) or (is_many and self.figures.total(Record.SAMPLES_DONE) >= _PAST_TRIAL):
                break
            if num_ready == in_flight and (in_flight or self.plan.is_exhausted):
                break  # nothing more comes before the loop takes a batch
            self._wait(0.05)
            self._refill()
        return self.figures.quickest_sample(worker=0)
