"""One epoch after another through a pool: sampler to chunks, results to batches."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BatchTimeout, InternalError, NotSupported, WorkerHang, WorkerLost
from ..model import SKIP, EpochAccount, SampleFailure
from ..order import EpochOrder, PlannedBatch
from .blocks import mark_told
from .board import (
    GENERAL,
    MAX_ENTRIES,
    MAX_LAYOUTS,
    UNBOUND,
    Board,
    Entry,
    Head,
    Record,
)
from .condemned import Condemned
from .delivery import Delivery
from .depth import Pace, batches_ahead, chunk_samples
from .figures import Figures
from .guard import Guard
from .judging import Judge
from .layout import Layout
from .messages import Answer, CaughtError, Result, Task, Work
from .parcels import dump, load
from .payload import payload_bytes, read_index, write_payload
from .pool import Loss, Pool
from .pressure import Level
from .recovery import Guilty, Recovery
from .scheduler import Batch, Scheduler
from .slots import Slots
from .streams import Streams
from .waits import WaitLog
from .worker import measure_task

_log = logging.getLogger(__name__)

_MOST_AHEAD = MAX_ENTRIES // 4
# how often the pace is taken anew: often enough to follow a change, rarely enough to cost nothing
_PACE_EVERY_BATCHES, _EARLY_BATCHES, _PACE_EVERY_S = 8, 64, 0.25
_WATCH_EVERY_S = 0.25


@dataclass(frozen=True, kw_only=True)
class FeedSettings:
    """How a feed runs its epochs."""

    is_iterable: bool
    is_batched: bool
    uses_slots: bool
    whole_batches: bool  # never split a batch: no batching, or a custom collation over `__getitems__`
    in_order: bool
    timeout_s: float
    batches_ahead: int | None  # given by the user; None: follow what is measured
    collate: Callable[[Any], Any]
    measures_threads: bool  # find out, when workers are idle, what a second thread brings
    measures_at_end: bool  # and at the end of the epoch, if they never were
    rank: int = 0


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
        self._board, self._words = pool.board, pool.board.words
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
        self.delivery = Delivery(pool, self.slots, settings.collate)
        self.figures = Figures(pool, earlier)
        self.waits = WaitLog()
        self.recovery = Recovery(pool, self.scheduler, self._note)
        self.streams = Streams(pool, self.scheduler)
        self.condemned = condemned
        self._judge = Judge(pool, self.scheduler, self.recovery, condemned, plan_anew=self._plan_anew)
        self.guard = Guard(
            pool,
            self.recovery,
            timeout_s=settings.timeout_s,
            key_of=self._key_of,
            worst_sample=self._worst_sample,
            is_forked=pool.plan.context.get_start_method() == "fork",
        )
        self._order: EpochOrder | None = None  # where samples may be left out
        self._plans: dict[int, PlannedBatch] = {}
        self._epoch_delivered = self._epoch_filled = 0
        self._waiting_since = time.perf_counter()
        self._watch_at = 0.0
        # a sample that stands still is noticed soon after its time is up
        self._poll_s = min(1.0, settings.timeout_s / 4) if settings.timeout_s else 1.0
        self._indices: Iterator[Any] = iter(())
        self._is_exhausted = True
        self._position = self._base_seed = self._run = 0
        self._rows = 1
        self._is_whole = settings.whole_batches
        self._active: list[int] = []  # workers whose iterators have more, in turn
        self._turn = 0
        self.asked_ahead = settings.batches_ahead
        self._ahead, self._ahead_reason, self._chunk = 1, "until the first sample has come", 1
        self._pace_at, self._pace_batches = 0.0, 0
        self._has_answer = False
        self._some_indices: list[Any] = []
        self._is_measuring = False
        self.thread_gain: float | None = None  # rate of two threads over that of one
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
        self._position, self._base_seed = 0, base_seed
        self._plans.clear()
        self.recovery.start_epoch()
        self.streams.start_epoch()
        self._epoch_delivered = self._epoch_filled = 0
        if self.condemned.is_active and not self.settings.is_iterable:
            batches = self._indices if self.settings.is_batched else ([index] for index in self._indices)
            self._order = EpochOrder(batches, self.condemned.is_out)
        self.epoch_started = time.perf_counter()
        self.waits.pause()
        if self.settings.is_iterable:
            self._active, self._turn = list(range(self.pool.num_workers)), 0
            if self.epoch:
                for worker in self._active:
                    self.pool.send(Work(-1, 0, 0, Task.RESTART), worker=worker)
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
            given_out=order.given_out if order is not None else self._position,
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
        batch = self._await_batch(time.perf_counter())
        plan = self._plans.pop(batch.seq, None)
        self._epoch_delivered += batch.num_rows if self.settings.is_batched else 1
        self._epoch_filled += plan.num_filled if plan is not None else 0
        try:
            result = self.delivery.deliver(batch)
        finally:
            self._refill()
        # some for the batches ahead, some for those that are being used or copied
        self.slots.make_one_ready(self._limit() + 4)
        num_samples = batch.count_rows if self.settings.is_batched else 1
        self.condemned.good(num_samples)
        self.count(num_samples)
        return result

    def count(self, num_samples: int) -> None:
        """Count a batch that the loop gets."""
        self.delivered += 1
        self.delivered_samples += num_samples

    def _await_batch(self, started: float) -> Batch:
        scheduler = self.scheduler
        self._waiting_since = started
        # torch's timeout is how long the loop waits; where samples may be left out, it is a sample's (`_watch`)
        timeout_s = self.settings.timeout_s if self.condemned.policy.raises_at_once else 0.0
        while True:
            if self._judge.fatal is not None:
                raise self._judge.fatal
            batch = scheduler.ready()
            if batch is not None and not self.recovery.is_in_hand(batch.seq):
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
                raise self._timed_out(timeout_s)
            self._wait(min(self._poll_s, timeout_s - waited + 0.001) if timeout_s else self._poll_s)
            self._collect()
            self._refill()

    def _wait(self, timeout_s: float) -> None:
        """Sleep until something comes from the workers, and make good what was lost."""
        is_watchful = bool(self.recovery.num_losses)  # look for what nobody has in hand, and for late writers
        self.pool.wait(min(timeout_s, 0.05) if is_watchful else timeout_s)
        if self.pool.losses:
            self._make_good()
        self._watch()
        if is_watchful:
            self.recovery.give_next_apart()
            self.recovery.sweep()
            self.pool.flush()

    def _watch(self) -> None:
        """Look for workers that stand still, and at memory; a few times a second, however often the loop waits."""
        now = time.perf_counter()
        if now < self._watch_at:
            return
        self._watch_at = now + min(_WATCH_EVERY_S, self._poll_s)
        self.guard.look()
        self.guard.give_up_undead()
        if not self.delivered and self.guard.is_report_due():
            _log.warning("the first batch has not come for a minute:\n%s", self.guard.where_they_stand())
        if self.settings.timeout_s and self.condemned.policy.raises_at_once:
            return
        for hung in self.guard.find_hung(time.perf_counter() - self._waiting_since):
            self.guard.kill(hung)

    def _key_of(self, seq: int, row: int) -> object:
        plan = self._plans.get(seq)
        if plan is not None:
            return plan.keys[row]
        block = self.delivery.payload_of(seq)
        return read_index(self.pool.arena, block, row, is_batched=self.settings.is_batched) if block else None

    def _worst_sample(self) -> tuple[int, float]:
        times = self.figures.sample_times()
        return (times.count, times.worst_s) if times is not None else (0, 0.0)

    def _where_workers_stand(self) -> str:
        doing = "; ".join(
            f"worker {w.worker} at sample {w.current_position} since {w.current_age_s:.1f} s"
            if w.current_age_s is not None
            else f"worker {w.worker} is {w.state}"
            for w in self.figures.workers()
        )
        return doing or "there is no worker"

    def _make_good(self) -> None:
        """Replace lost workers and give out again what they owed."""
        while self.pool.losses:
            loss = self.pool.losses[0]
            error = self.guard.explain(loss)
            if self.settings.is_iterable:
                self._make_good_stream(loss, error)
                continue
            if not self.recovery.bears(loss):
                error.evidence["lost_before"] = f"{self.recovery.num_losses} workers"
                raise error
            guilty = self.recovery.take_over(loss)
            if guilty is None:
                return  # the lock is held: try again at the next wait
            self.pool.losses.pop(0)
            self.pool.replace(loss.workers)
            _log.warning("%s\n  it was replaced, and what it owed is given out again", error)
            for one in guilty:
                self._condemn(one, error)
        self.pool.flush()

    def _make_good_stream(self, loss: Loss, error: WorkerLost | WorkerHang) -> None:
        """A worker of an iterable data set is gone, and with it where its iterator stood."""
        for result in self.pool.receive():
            self._note(result)
        if not self.recovery.bears(loss) or not self.streams.bears(loss):
            raise error
        self.pool.losses.pop(0)
        for worker in loss.workers:
            self.pool.region_of(worker).free_untold()
        self.pool.replace(loss.workers)
        self.streams.take_over(loss)
        self.recovery.num_losses += 1
        _log.warning(
            "%s\n  it was replaced: the new one begins the data set again and passes over what was delivered, which "
            "gives the same samples if its iterator does",
            error,
        )

    def _condemn(self, guilty: Guilty, error: WorkerLost | WorkerHang) -> None:
        """A sample that no worker survives fails, as if it had raised."""
        batch, worker = guilty.batch, guilty.loss.workers[0]
        error.evidence["tries"] = guilty.losses
        caught = CaughtError(type(error), str(error), worker, error, tries=guilty.losses, message=error.what)
        block, _ = dump(caught, self.pool.region, self.pool.arena)
        rows = batch.num_rows if batch.is_whole else 1
        self._note(Result(batch.seq, block, guilty.row, rows, worker, Answer.FAILED))

    def _timed_out(self, timeout_s: float) -> BatchTimeout:
        return BatchTimeout(
            f"DataLoader timed out after {timeout_s:g} seconds",
            workers=self._where_workers_stand(),
            next_step="a larger timeout=, or find out what the samples above wait for",
        )

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
        self._waiting_since = time.perf_counter()
        deadline = time.perf_counter() + patience_s
        at = Board.record_at(0)
        while time.perf_counter() < deadline:
            batch = self.scheduler.ready()
            if batch is not None or self._words[at + Record.CHUNKS_DONE] >= at_least:
                break
            if not self.scheduler.in_flight and self._is_exhausted:
                break
            self._wait(0.05)
            self._collect()
            self._refill()
        busy = self._words[at + Record.CPU_OF_NS]
        share = min(1.0, self._words[at + Record.CPU_NS] / busy) if busy else 1.0
        return self._words[at + Record.LEAST_FETCH_NS] / 1e9, share

    # ------------------------------------------------------------------------------------ answers

    def _collect(self) -> None:
        """Take all answers that have come."""
        for result in self.pool.receive():
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
            self._consider_layout(load(self.pool.arena, result.block), result.rows)
            self._has_answer = True
            return
        if answer == Answer.MEASURED:
            self._is_measuring = False
            self.thread_gain = load(self.pool.arena, result.block) if result.block else None
            return
        if answer == Answer.PASSED_OVER:
            self._pass_over(result)
            return
        self._has_answer = True
        if (
            answer == Answer.FAILED
            and self._order is not None
            and self._judge.consider(result, self._plans, self.epoch, self.settings.rank)
        ):
            return
        if answer == Answer.COLLATED:
            size = int.from_bytes(self.pool.arena.view(result.block + 16, 8), "little")
            self.delivery.general_bytes = max(self.delivery.general_bytes, size)
        elif answer == Answer.END:
            batch = self.scheduler.batches.get(result.seq)
            # an end that belongs to an epoch which was given up says nothing of this one
            if batch is not None and not batch.is_cancelled and result.worker in self._active:
                self._retire_iterator(result.worker)
        elif answer == Answer.NEEDS_WHOLE and not self._is_whole:
            self._is_whole = True
            _log.info("the data set's samples cannot travel one by one: batches are not split from here on")
        if result.block:
            mark_told(self._all_words, result.block)
        for work in self.scheduler.note(result):
            self._forget_rows(work)
            self.pool.send(work)

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

    def _plan_anew(self, first: int) -> None:
        """Give up all batches from one on: their samples are given out again without those that are left out.

        What workers did for them is lost, but for the chunk that each has in hand they stop at once.
        """
        assert self._order is not None
        cancelled = self.scheduler.cancel_from(first)
        for seq in cancelled:
            self._words[Board.entry_at(seq) + Entry.RUN] = -1
        self._order.give_back([self._plans.pop(seq) for seq in cancelled])
        self._is_exhausted = False

    def _forget_rows(self, work: Work) -> None:
        """A batch is fetched anew in one piece: what its chunks left does not count."""
        at = self._words[Board.entry_at(work.seq) + Entry.ROW_WORDS]
        self._all_words[at : at + work.rows] = memoryview(bytes(8 * work.rows)).cast("q")

    def _retire_iterator(self, worker: int) -> None:
        """A worker's iterable data set is exhausted: take it out of the turns."""
        place = self._active.index(worker)
        self._active.remove(worker)
        if place < self._turn:
            self._turn -= 1

    def _consider_layout(self, layout: Layout, num_rows: int) -> None:
        if layout in self.delivery.layouts or len(self.delivery.layouts) >= MAX_LAYOUTS:
            return
        rows = max(num_rows, self._rows)
        if not self.slots.provide(layout.places(rows)[1], num_rows=rows):
            return
        block, size = dump(layout, self.pool.region, self.pool.arena)
        self.delivery.layouts.append(layout)
        self._board.publish_layout(block, size)

    # ------------------------------------------------------------------------------------ issue

    def _limit(self) -> int:
        """How many batches may be in flight now."""
        if not self.delivery.layouts and not self.delivery.general_bytes:
            # nobody knows yet how large a batch is: just enough to keep every worker busy
            rows = 1 if self.settings.is_iterable else max(1, self._rows)
            return max(1, -(-self.pool.num_workers // rows))
        limit = self._ahead if self.asked_ahead is None else self.asked_ahead
        if self.delivery.layouts:
            total, leased = self.slots.counts()
            limit = min(limit, total - leased)
        elif self.delivery.general_bytes:
            limit = min(limit, self.pool.plan.budget_bytes // (2 * self.delivery.general_bytes))
        return max(1, min(self.guard.most_ahead(limit), _MOST_AHEAD))

    def _refill(self) -> None:
        """Issue batches up to the limit."""
        self._take_pace()
        if not self._is_exhausted:
            limit = self._limit()
            while self.scheduler.in_flight < limit:
                if self.settings.is_iterable and not self._active:
                    self._is_exhausted = True
                    break
                try:
                    planned = next(self._order) if self._order is not None else None
                    indices = next(self._indices) if planned is None else planned.keys
                except StopIteration:
                    self._is_exhausted = True
                    break
                self._issue(indices, planned)
        if self._some_indices and self.settings.measures_threads:
            self._measure_threads()
        self.pool.flush()

    def _measure_threads(self) -> None:
        """Once, when there is nothing else to do for a worker, let it time samples alone and in two threads."""
        scheduler = self.scheduler
        is_idle = scheduler.in_flight > 1 and scheduler.num_ready == scheduler.in_flight
        is_at_end = self._is_exhausted and self.settings.measures_at_end
        if not (is_idle or is_at_end) or len(self._some_indices) < 3:
            return
        times = self.figures.sample_times()
        if times is None:
            return
        # three parts of a twentieth of a second, at least one sample each
        count = 3 * max(1, min(len(self._some_indices) // 3, int(0.05 / max(times.median_s, 1e-6))))
        block, _ = dump(self._some_indices[:count], self.pool.region, self.pool.arena)
        self.pool.send(measure_task(block))
        self._some_indices, self._is_measuring = [], True

    def finish_measuring(self, patience_s: float = 1.0) -> None:
        """Wait for a measurement under way; called at the end of an epoch."""
        deadline = time.perf_counter() + patience_s
        while self._is_measuring and time.perf_counter() < deadline:
            self._wait(0.05)
            self._collect()

    def _issue(self, indices: Any, planned: PlannedBatch | None) -> None:
        if planned is not None and not self.settings.is_batched:
            (indices,) = indices
        elif self.settings.is_batched and isinstance(indices, (Set, Mapping)):
            indices = list(indices)  # it has an order, but no rows to point at
        if planned is not None:
            self._position = planned.first_position
        num_rows = len(indices) if self.settings.is_batched else 1
        if num_rows > self._rows:
            self._rows = num_rows
            for layout in self.delivery.layouts:
                self.slots.provide(layout.places(num_rows)[1], num_rows=num_rows)
        worker = -1
        if self.settings.is_iterable:
            worker = self._active[self._turn % len(self._active)]
            self._turn = (self._turn + 1) % len(self._active)
            works = [self.scheduler.issue_whole(num_rows, self._position, worker=worker)]
        elif self._is_whole:
            works = [self.scheduler.issue_whole(num_rows, self._position)]
        else:
            gaps = planned.gaps if planned is not None else ()
            works = self.scheduler.issue(num_rows, self._position, self._chunk_for(num_rows), gaps=gaps)
        if planned is not None:
            self._plans[works[0].seq] = planned
        seq = works[0].seq
        payload, row_words = (0, 0) if self.settings.is_iterable else self._write_indices(seq, indices, num_rows)
        self._board.open_entry(
            seq,
            run=self._run,
            num_rows=num_rows,
            first_position=self._position,
            base_seed=self._base_seed,
            payload=payload,
            row_words=row_words,
            place=UNBOUND if self.settings.uses_slots else GENERAL,
        )
        if self.settings.measures_threads and self.settings.is_batched and self.delivered < 1:
            self._some_indices = [*self._some_indices, *indices][:48]
        self._position += num_rows
        for work in works:
            self.pool.send(work, worker=worker)

    def _chunk_for(self, num_rows: int) -> int:
        if not self._has_answer:
            return max(1, num_rows // (4 * max(1, self.pool.num_workers)))
        return max(1, min(self._chunk, num_rows))

    def _write_indices(self, seq: int, indices: Any, num_rows: int) -> tuple[int, int]:
        """Put a batch's indices into shared memory; returns their block, and where the words of its rows begin."""
        pickled = None
        if not self.settings.is_batched or type(indices) is not list or set(map(type, indices)) != {int}:
            pickled = pickle.dumps(indices, 5)
        else:
            try:
                indices = np.array(indices, np.int64)
            except OverflowError:
                pickled = pickle.dumps(indices, 5)
        size = payload_bytes(num_rows, pickled)
        block = self.pool.region.take(size)
        end = write_payload(self.pool.arena.view(block, size), num_rows, indices, pickled)
        self.delivery.keep_payload(seq, block)
        return block, (block + end) >> 3

    # ------------------------------------------------------------------------------------ pace

    def _take_pace(self) -> None:
        """Follow what was measured: samples a chunk, batches ahead."""
        if not self._has_answer:
            return
        now = time.perf_counter()
        is_early = self.delivered < _EARLY_BATCHES and self.delivered >= self._pace_batches + _PACE_EVERY_BATCHES
        if not is_early and now < self._pace_at + _PACE_EVERY_S:
            return
        self._pace_at, self._pace_batches = now, self.delivered
        self.pool.wait(0)  # a loss is noticed soon, even where batches are always ready
        if self.pool.losses:
            self._make_good()
        self.guard.look()
        self._yield_to_pressure()
        pace = self.pace()
        self._chunk = chunk_samples(pace)
        if self.settings.is_iterable:
            self._ahead, self._ahead_reason = 2 * self.pool.num_workers, "2 x workers, each fills its own batches"
        else:
            self._ahead, self._ahead_reason = batches_ahead(pace, most=_MOST_AHEAD)
        self.figures.mark_faults()

    def _yield_to_pressure(self) -> None:
        """Hold less while memory is short: fewer batches first, then fewer workers; grow back later."""
        if self.guard.pressure.level is not Level.NONE:
            self.slots.give_back_free()
        step = self.guard.resize_by()
        if step < 0:
            self.pool.shrink(1)
        elif step > 0:
            self.pool.grow(1)
        if step:
            _log.warning(
                "memory: %s, %d workers now",
                "a worker is sent home" if step < 0 else "a worker is back",
                self.pool.num_workers,
            )

    def pace(self) -> Pace:
        times = self.figures.sample_times()
        seen = times.count if times else self.figures.total(Record.SAMPLES_DONE)
        return Pace(
            # the median, for a mean of tiny samples is made of the moments when a worker was off the processor
            sample_s=times.median_s if times else self.figures.mean_cost_s(),
            worst_sample_s=max(times.worst_s, self.figures.oldest_sample_s()) if times else 0.0,
            samples_seen=seen,
            step_s=self.waits.typical_interval_s(),
            batch_rows=self._rows,
            num_workers=max(1, self.pool.num_workers),
            batch_bytes=max(self.slots.largest_bytes, self.delivery.general_bytes),
        )

    # ------------------------------------------------------------------------------------ figures

    @property
    def ahead(self) -> tuple[int, str]:
        if self.asked_ahead is not None:
            return self.asked_ahead, "as asked for"
        return self._ahead, self._ahead_reason

    @property
    def chunk(self) -> int:
        return self._chunk
