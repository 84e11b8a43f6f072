"""One epoch after another through a pool: sampler to chunks, results to batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InternalError, NotSupported
from ..model import SKIP, EpochAccount, EventKind, SampleFailure
from ..order import EpochOrder
from ..signals import open_lane
from .blocks import mark_told
from .board import Board, Entry, Head, Record
from .carrying import Carrying
from .condemned import Condemned
from .delivery import Delivery
from .feed_settings import FeedSettings
from .figures import Figures
from .guard import Guard
from .homecoming import Homecoming
from .issuing import Issuing
from .judging import Judge
from .known_layouts import KnownLayouts
from .messages import Answer, CaughtError, Result, Task, Work
from .moving_up import MovingUp
from .pacing import Pacing
from .parcels import load
from .payload import read_index
from .pool import Pool
from .recovery import Recovery
from .scheduler import Batch, Scheduler
from .slot_rows import SlotRows
from .slots import Slots
from .streams import Streams
from .thread_trial import ThreadTrial
from .turns import Turns
from .upkeep import Upkeep
from .waits import WaitLog

_log = logging.getLogger(__name__)


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
        self._lane = open_lane(role="trainer")
        self._words = pool.board.words
        self._all_words = pool.arena.bytes.cast("q")
        self.scheduler = Scheduler(in_order=settings.in_order)
        places = pool.arena_plan
        self.slots = Slots(
            pool.arena,
            pool.board,
            pool.lock,
            start=places.slots_start,
            size=places.slots_bytes,
            budget_bytes=pool.plan.budget_bytes,
        )
        self._layouts = KnownLayouts(pool, self.slots)
        self.delivery = Delivery(pool, self.slots, self._layouts, settings.collate)
        self.figures = Figures(pool, earlier)
        self.waits = WaitLog()
        self.recovery = Recovery(pool, self.scheduler, self._note)
        self.streams = Streams(pool, self.scheduler)
        self.condemned = condemned
        self._moving_up = MovingUp(
            pool,
            self.scheduler,
            rows=SlotRows(pool, self.slots, self._layouts, self.delivery),
            delivery=self.delivery,
            again=self.recovery.again,
            claims=self.recovery.claims,
            is_batched=settings.is_batched,
        )
        self._judge = Judge(
            pool,
            self.scheduler,
            self.recovery.again,
            condemned,
            held=self._moving_up.held,
            leave_out=self._leave_out,
        )
        self.guard = Guard(
            pool,
            self.recovery,
            timeout_s=settings.timeout_s,
            key_of=self._key_of,
            worst_sample=self._worst_sample,
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
            slots=self.slots,
            layouts=self._layouts,
            delivery=self.delivery,
            figures=self.figures,
            waits=self.waits,
            guard=self.guard,
        )
        self._carrying = Carrying(pool, self.slots, self._layouts, self.recovery.claims)
        self.trial = ThreadTrial(pool, self.scheduler, self.figures)
        self._turns = Turns()
        self._issuing = Issuing(
            pool,
            settings,
            scheduler=self.scheduler,
            delivery=self.delivery,
            layouts=self._layouts,
            pacing=self.pacing,
            turns=self._turns,
            trial=self.trial,
            carrying=self._carrying,
        )
        self._order: EpochOrder | None = None  # where samples may be left out
        self._epoch_delivered = self._epoch_filled = 0
        self._indices: Iterator[Any] = iter(())
        self._is_exhausted = True
        self._run = 0
        self.replay: list[Any] | None = None  # keeps what the sampler gave, while that may be needed again
        # what stats() tells
        self.epoch = -1
        self.delivered = self.delivered_samples = 0
        self.epoch_started = 0.0

    # ------------------------------------------------------------------------------------ epochs

    def start_epoch(self, indices: Iterator[Any], base_seed: int) -> None:
        """Begin an epoch; whatever is left of the one before is given up."""
        self.scheduler.cancel_all()
        self._run += 1
        self.epoch += 1
        self._words[Head.RUN] = self._run
        self._indices, self._is_exhausted = self._remembered(indices), False
        self._issuing.begin(base_seed)
        self._moving_up.clear()
        self._carrying.clear()
        self.recovery.start_epoch()
        self.streams.start_epoch()
        self._epoch_delivered = self._epoch_filled = 0
        if self.condemned.is_active and not self.settings.is_iterable:
            batches = self._indices if self.settings.is_batched else ([index] for index in self._indices)
            self._order = EpochOrder(batches, self.condemned.is_out)
        self.epoch_started = time.perf_counter()
        self.waits.pause()
        if self.settings.is_iterable:
            self._turns.begin(self.pool.num_workers)
            if self.epoch:
                for worker in self._turns.active:
                    self.pool.pipes.send(Work(-1, 0, 0, Task.RESTART), worker=worker)
        self._collect()
        self._refill()

    def _remembered(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Pass on what the sampler gives, and keep it while it may be needed again."""
        for some in indices:
            if self.replay is not None:
                self.replay.append(some)
            yield some

    @property
    def account(self) -> EpochAccount:
        order = self._order
        return EpochAccount(
            given_out=order.given_out if order is not None else self._issuing.position,
            delivered=self._epoch_delivered - self._epoch_filled,
            quarantined=order.left_out if order is not None else 0,
            filled=self._epoch_filled,
        )

    def _close_account(self) -> None:
        """At the end of an epoch: whatever was given out was delivered, or is named in the quarantine."""
        account = self.account
        if account.in_flight and not self.settings.is_iterable:
            raise InternalError(
                "an epoch ended, and not all of its samples were accounted for",
                given_out=account.given_out,
                delivered=account.delivered,
                quarantined=account.quarantined,
            )
        if account.quarantined:
            _log.warning(
                "epoch %d: %d samples given out = %d delivered + %d quarantined; %d places at the end were filled "
                "with the epoch's first samples",
                *(self.epoch, account.given_out, account.delivered, account.quarantined, account.filled),
            )

    def next(self) -> Any:
        """The next batch; StopIteration at the end of the epoch."""
        self._collect()
        self._refill()
        asked, num_ready = time.perf_counter(), self.scheduler.num_ready if self._lane is not None else 0
        batch = self._await_batch(asked)
        if self._lane is not None:
            waited_ns = int((time.perf_counter() - asked) * 1e9)
            self._lane.write(EventKind.QUEUE_GET, int(asked * 1e9), waited_ns, num_ready)
        plan = self._moving_up.take(batch.seq)
        self._epoch_delivered += batch.num_rows if self.settings.is_batched else 1
        self._epoch_filled += plan.num_filled if plan is not None else 0
        try:
            result = self.delivery.deliver(batch)
        finally:
            self._refill()
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
        scheduler = self.scheduler
        self._upkeep.waiting_since = started
        # torch's timeout is how long the loop waits; where samples may be left out, it is a sample's (`Upkeep`)
        timeout_s = self.settings.timeout_s if self.condemned.policy.raises_at_once else 0.0
        while True:
            if self._judge.fatal is not None:
                raise self._judge.fatal
            batch = scheduler.ready()
            if batch is not None and not self.recovery.claims.is_in_hand(batch.seq) and self._is_as_planned(batch):
                scheduler.take(batch)
                if not batch.is_empty:
                    return batch
                self.delivery.release(batch)
                self._refill()
                continue
            if batch is None and not scheduler.in_flight and self._is_exhausted:
                self._close_account()
                raise StopIteration
            waited = time.perf_counter() - started
            if timeout_s and waited > timeout_s:
                raise self._upkeep.timed_out(timeout_s)
            poll_s = self._upkeep.poll_s
            self._upkeep.wait(min(poll_s, timeout_s - waited + 0.001) if timeout_s else poll_s)
            self._collect()
            self._refill()

    def _is_as_planned(self, batch: Batch) -> bool:
        """Whether a finished batch holds what it is to be delivered with; rows are moved for that."""
        state = self._moving_up.bring_home(batch)
        if state is Homecoming.CANNOT:
            self._plan_anew(batch.seq)
            self._collect()
            self._refill()
        return state is Homecoming.DONE

    def _key_of(self, seq: int, row: int) -> object:
        plan = self._moving_up.held(seq)
        if plan is not None:
            return plan.keys[row]
        block = self.delivery.payload_of(seq)
        return read_index(self.pool.arena, block, row, is_batched=self.settings.is_batched) if block else None

    def _worst_sample(self) -> tuple[int, float]:
        times = self.figures.sample_times()
        return (times.count, times.worst_s) if times is not None else (0, 0.0)

    @property
    def has_ready(self) -> bool:
        """Whether the next batch is there, so that `next` would not wait."""
        self._collect()
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
        at = Board.record_at(0)
        while time.perf_counter() < deadline:
            batch = self.scheduler.ready()
            if batch is not None or self._words[at + Record.CHUNKS_DONE] >= at_least:
                break
            if not self.scheduler.in_flight and self._is_exhausted:
                break
            self._upkeep.wait(0.05)
            self._collect()
            self._refill()
        busy = self._words[at + Record.CPU_OF_NS]
        share = min(1.0, self._words[at + Record.CPU_NS] / busy) if busy else 1.0
        return self._words[at + Record.LEAST_FETCH_NS] / 1e9, share

    # ------------------------------------------------------------------------------------ answers

    def _collect(self) -> None:
        """Take all answers that have come."""
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
        answer = result.answer
        if self.settings.is_iterable:
            self.streams.note(result)
        if answer == Answer.LAYOUT:
            self._layouts.consider(load(self.pool.arena, result.block), result.rows)
            self.pacing.has_answer = True
            return
        if answer == Answer.MEASURED:
            self.trial.note(result)
            return
        if answer == Answer.PASSED_OVER:
            self._pass_over(result)
            return
        self.pacing.has_answer = True
        if (
            answer == Answer.FAILED
            and self._order is not None
            and self._judge.consider(result, self.epoch, self.settings.rank)
        ):
            return
        if answer == Answer.COLLATED:
            size = int.from_bytes(self.pool.arena.view(result.block + 16, 8), "little")
            self.delivery.general_bytes = max(self.delivery.general_bytes, size)
        elif answer == Answer.END:
            batch = self.scheduler.batches.get(result.seq)
            # an end that belongs to an epoch which was given up says nothing of this one
            if batch is not None and not batch.is_cancelled:
                self._turns.retire(result.worker)
        elif answer == Answer.NEEDS_WHOLE and not self._issuing.is_whole:
            self._issuing.is_whole = True
            _log.info("the data set's samples cannot travel one by one: batches are not split from here on")
        if result.block:
            mark_told(self._all_words, result.block)
        for work in self.scheduler.note(result):
            self._issuing.forget_rows(work)
            self.pool.pipes.send(work)

    def _pass_over(self, result: Result) -> None:
        """A sample of an iterable data set failed: it has no key to ask for again, so it can only be left out."""
        caught: CaughtError = load(self.pool.arena, result.block)
        failure = SampleFailure(
            key=None,
            epoch=self.epoch,
            exception=caught.message.partition(":")[0],
            message=caught.message.partition(": ")[2],
            traceback=caught.text,
            worker=caught.worker,
            file=caught.file,
            rank=self.settings.rank,
        )
        try:
            if self.condemned.judge(failure) is not SKIP:
                raise NotSupported(
                    "a sample of an IterableDataset cannot be tried again or replaced", sample=str(failure)
                )
            self.condemned.condemn(failure)
        except Exception as error:
            self._judge.fatal = self._judge.fatal or error

    def _leave_out(self, batch: Batch, row: int) -> bool:
        """Go on without the sample of a row that failed. False: its batch is given up."""
        assert self._order is not None
        if self._moving_up.leave_out(batch, row, self._order):
            return True
        self._plan_anew(batch.seq)
        return False

    def _plan_anew(self, first: int) -> None:
        """Give up all batches from one on: their samples are given out again without those that are left out.

        Rows that are done are carried over; what workers have in hand of them they finish, and it is lost.
        """
        assert self._order is not None
        first = self._moving_up.first_with(first)
        for seq in self.scheduler.order:
            held = self._moving_up.held(seq)
            if seq >= first and held is not None:
                self._carrying.keep(self.scheduler.batches[seq], held)
        cancelled = self.scheduler.cancel_from(first)
        for seq in cancelled:
            self._words[Board.entry_at(seq) + Entry.RUN] = -1
        self._order.give_back(self._moving_up.give_up(cancelled))
        self._is_exhausted = False

    # ------------------------------------------------------------------------------------ issue

    def _refill(self) -> None:
        """Issue batches up to the limit."""
        if self.pacing.is_due(self.delivered):
            self.pacing.take()
        else:
            self._upkeep.look_if_due()
        if not self._is_exhausted:
            limit = self.pacing.limit()
            while self.scheduler.in_flight < limit:
                if self.settings.is_iterable and not self._turns.active:
                    self._is_exhausted = True
                    break
                try:
                    planned = next(self._order) if self._order is not None else None
                    indices = next(self._indices) if planned is None else planned.keys
                except StopIteration:
                    self._is_exhausted = True
                    break
                seq = self._issuing.issue(indices, planned, run=self._run, is_first=self.delivered < 1)
                if planned is not None:
                    self._moving_up.plans[seq] = planned
        if self.trial.some_indices and self.settings.measures_threads:
            self.trial.begin_if_idle(is_at_end=self._is_exhausted and self.settings.measures_at_end)
        self.pool.pipes.flush()

    def finish_measuring(self, patience_s: float = 1.0) -> None:
        """Wait for a measurement under way; called at the end of an epoch."""
        deadline = time.perf_counter() + patience_s
        while self.trial.is_measuring and time.perf_counter() < deadline:
            self._upkeep.wait(0.05)
            self._collect()
