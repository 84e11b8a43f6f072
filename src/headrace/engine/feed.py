"""One epoch after another through a pool: sampler to chunks, results to batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model import EventKind
from headrace.signals.recording import open_lane

from .answers import Answers
from .epoch import Batch, Delivery, FeedSettings, Figures, KnownLayouts, Scheduler, ThreadTrial, Turns, WaitLog
from .epoch_plan import EpochPlan
from .guard import LOOK_EVERY_S, Guard, Upkeep, Valve
from .issuing import Issuing
from .losses import Carrying, Condemned, Homecoming, Judge, MovingUp, Recovery, SlotRows, Streams
from .memory import Head, Record, Result, Slots, Task, Work, read_index
from .pacing import Pacing
from .pool import Pool


class Feed:
    """Drives a pool through epochs and hands out batches."""

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        condemned: Condemned,
        *,
        earlier: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.pool, self.settings = pool, settings
        self._words = pool.board.words
        self._lane = open_lane(role="trainer")
        # where samples may be left out, or tried again, a batch's samples may be needed once more
        self.scheduler = Scheduler(in_order=settings.in_order, keeps_samples=not condemned.policy.raises_at_once)
        self._valve = Valve(pool, self.scheduler)
        places = pool.arena_plan
        self.slots = Slots(
            pool.arena,
            pool.board,
            pool.lock,
            start=places.slots_start,
            size=places.slots_bytes,
            budget_bytes=pool.plan.budget_bytes,
        )
        layouts = KnownLayouts(pool, self.slots)
        self.delivery = Delivery(pool, self.slots, layouts, settings.collate)
        self.figures = Figures(pool, earlier)
        self.waits = WaitLog()
        self.recovery = Recovery(pool, self.scheduler, self._note)
        self.streams = Streams(pool, self.scheduler)
        self.condemned = condemned
        moving_up = MovingUp(
            pool,
            self.scheduler,
            rows=SlotRows(pool, self.slots, layouts, self.delivery),
            delivery=self.delivery,
            again=self.recovery.again,
            claims=self.recovery.claims,
            is_batched=settings.is_batched,
        )
        carrying = Carrying(pool, self.slots, layouts, self.recovery.claims)
        self.plan = EpochPlan(pool, settings, self.scheduler, condemned, moving_up=moving_up, carrying=carrying)
        self._judge = Judge(
            pool,
            self.scheduler,
            self.recovery.again,
            condemned,
            held=self.plan.held,
            leave_out=self.plan.leave_out,
        )
        self.guard = Guard(
            pool,
            self.recovery,
            timeout_s=settings.timeout_s,
            key_of=self._key_of,
            worst_sample=self.figures.worst_sample,
            is_forked=pool.plan.context.get_start_method() == "fork",
        )
        self._upkeep = Upkeep(
            pool,
            settings,
            guard=self.guard,
            recovery=self.recovery,
            streams=self.streams,
            slots=self.slots,
            condemned=condemned,
            figures=self.figures,
            note=self._note,
        )
        self.pacing = Pacing(
            pool,
            settings,
            scheduler=self.scheduler,
            slots=self.slots,
            layouts=layouts,
            delivery=self.delivery,
            figures=self.figures,
            waits=self.waits,
            guard=self.guard,
        )
        self.trial = ThreadTrial(pool, self.scheduler, self.figures)
        self._turns = Turns()
        self._issuing = Issuing(
            pool,
            settings,
            scheduler=self.scheduler,
            delivery=self.delivery,
            layouts=layouts,
            pacing=self.pacing,
            turns=self._turns,
            trial=self.trial,
            carrying=carrying,
        )
        self._answers = Answers(
            pool,
            settings,
            scheduler=self.scheduler,
            plan=self.plan,
            judge=self._judge,
            issuing=self._issuing,
            pacing=self.pacing,
            delivery=self.delivery,
            layouts=layouts,
            streams=self.streams,
            turns=self._turns,
            trial=self.trial,
        )
        # what stats() tells
        self.delivered = self.delivered_samples = 0
        self.epoch_started = 0.0

    # ------------------------------------------------------------------------------------ epochs

    def start_epoch(self, indices: Iterator[Any], base_seed: int) -> None:
        """Begin an epoch; whatever is left of the one before is given up."""
        self.scheduler.cancel_all()
        self._words[Head.NEXT] = self.scheduler.next_seq - 1
        self._words[Head.REISSUED] = 0
        self.plan.begin(indices)
        self._issuing.begin(base_seed)
        self.recovery.start_epoch()
        self.streams.start_epoch()
        self.epoch_started = time.perf_counter()
        self.waits.pause()
        if self.settings.is_iterable:
            self._turns.begin(self.pool.num_workers)
            if self.plan.epoch:
                for worker in self._turns.active:
                    self.pool.pipes.send(Work(-1, 0, 0, Task.RESTART), worker=worker)
        self._answers.collect()
        self._refill()

    def next(self) -> Any:
        """The next batch; StopIteration at the end of the epoch."""
        self._answers.collect()
        self._refill()
        asked, num_ready = time.perf_counter(), self.scheduler.num_ready if self._lane is not None else 0
        batch = self._await_batch(asked)
        if self._lane is not None:
            waited_ns = int((time.perf_counter() - asked) * 1e9)
            self._lane.write(EventKind.QUEUE_GET, int(asked * 1e9), waited_ns, num_ready)
        self._valve.shut()
        self.plan.note_delivered(batch)
        try:
            result = self.delivery.deliver(batch)
        finally:
            self._refill()
        if self.slots.on_first_lease is not None:
            # some for the batches ahead, some for those that are being used or copied
            self.slots.make_one_ready(self.pacing.limit() + 4)
        num_samples = batch.count_rows if self.settings.is_batched else 1
        self.condemned.good(num_samples)
        self.count(num_samples)
        return result

    def count(self, num_samples: int) -> None:
        """Count a batch that the loop gets."""
        self.delivered += 1
        self._upkeep.has_delivered = True
        self.delivered_samples += num_samples

    def _await_batch(self, started: float) -> Batch:
        scheduler, is_refilled = self.scheduler, True
        self._upkeep.waiting_since = started
        # torch's timeout is how long the loop waits; where samples may be left out, it is a sample's (`Upkeep`)
        timeout_s = self.settings.timeout_s if self.condemned.policy.raises_at_once else 0.0
        while True:
            if self.fatal is not None:
                raise self.fatal
            batch = scheduler.ready()
            if batch is not None and not self.recovery.claims.is_in_hand(batch.seq) and self._is_as_planned(batch):
                scheduler.take(batch)
                if not batch.is_empty:
                    return batch
                self.delivery.release(batch)
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
                raise self._upkeep.timed_out(timeout_s)
            if scheduler.order:
                # from here on it has room in any case: the loop has let go of what it does not keep
                self._words[Head.NEXT] = scheduler.order[0]
                self.delivery.make_way(scheduler.batches[scheduler.order[0]], self.pool.lock)
            is_long = waited > LOOK_EVERY_S
            poll_s = LOOK_EVERY_S if is_long and self._valve.is_watching else self._upkeep.poll_s
            self._upkeep.wait(min(poll_s, timeout_s - waited + 0.001) if timeout_s else poll_s)
            self._answers.collect()
            is_refilled = False
            if is_long:
                self._valve.look()

    def _is_as_planned(self, batch: Batch) -> bool:
        """Whether a finished batch holds what it is to be delivered with; rows are moved for that."""
        state = self.plan.bring_home(batch)
        if state is Homecoming.CANNOT:
            self._answers.collect()
            self._refill()
        return state is Homecoming.DONE

    def _key_of(self, seq: int, row: int) -> object:
        held = self.plan.held(seq)
        if held is not None:
            return held.keys[row]
        block = self.delivery.payload_of(seq)
        return read_index(self.pool.arena, block, row, is_batched=self.settings.is_batched) if block else None

    def _note(self, result: Result) -> None:
        """Take an answer into account; for the parts that `Answers` itself is made of."""
        self._answers.note(result)

    @property
    def fatal(self) -> Exception | None:
        """What ends the epoch and its workers: too many bad samples, or one of a stream that is to be raised."""
        return self._judge.fatal

    @property
    def has_ready(self) -> bool:
        """Whether the next batch is there, so that `next` would not wait."""
        self._answers.collect()
        batch = self.scheduler.ready()
        # one that will raise waits for its turn
        is_there = batch is not None and not batch.is_empty and batch.failure is None and not batch.samples
        return is_there and batch is not None and self._is_as_planned(batch)

    def measure_first_samples(self, *, at_least: int = 4, patience_s: float = 10.0) -> tuple[float, float]:
        """Wait until the only worker has run a few chunks; returns a sample's time and its share of processor time.

        The time is that of the quickest: the first ones pay for imports, opened files and cold caches.
        """
        self._upkeep.waiting_since = time.perf_counter()
        deadline = time.perf_counter() + patience_s
        while time.perf_counter() < deadline:
            if self.scheduler.ready() is not None or self.figures.total(Record.CHUNKS_DONE) >= at_least:
                break
            if not self.scheduler.in_flight and self.plan.is_exhausted:
                break
            self._upkeep.wait(0.05)
            self._answers.collect()
            self._refill()
        return self.figures.quickest_sample(worker=0)

    # ------------------------------------------------------------------------------------ issue

    def _refill(self) -> None:
        """Issue batches up to the limit."""
        if self.pacing.is_due(self.delivered):
            self.pacing.take()
        else:
            self._upkeep.look_if_due()
        if not self.plan.is_exhausted:
            limit = self.pacing.limit()
            while self.scheduler.in_flight < limit:
                if self.settings.is_iterable and not self._turns.active:
                    self.plan.is_exhausted = True
                    break
                taken = self.plan.take()
                if taken is None:
                    break
                seq = self._issuing.issue(*taken, run=self.plan.run, is_first=self.delivered < 1)
                self.plan.note_issued(seq, taken[1])
            # within the limit there is a slot for each
            self._words[Head.PLENTY] = self.scheduler.in_flight <= limit and self.slots.largest_bytes > 0
        if self.trial.some_indices and self.settings.measures_threads:
            self.trial.begin_if_idle(is_at_end=self.plan.is_exhausted and self.settings.measures_at_end)
        self.pool.pipes.flush()

    def finish_measuring(self, patience_s: float = 1.0) -> None:
        """Wait for a measurement under way; called at the end of an epoch."""
        deadline = time.perf_counter() + patience_s
        while self.trial.is_measuring and time.perf_counter() < deadline:
            self._upkeep.wait(0.05)
            self._answers.collect()
