"""What workers answer, taken into account by whom it concerns."""

from __future__ import annotations

import logging

from .epoch import Delivery, FeedSettings, KnownLayouts, Scheduler, ThreadTrial, Turns
from .epoch_plan import EpochPlan
from .issuing import Issuing
from .losses import Judge, Streams
from .memory import Answer, Head, Result, free_block, load, mark_told
from .pacing import Pacing
from .pool import Pool
from .worker import say_doubt

_log = logging.getLogger(__name__)


class Answers:
    """Passes each answer on: to the scheduler, and to the part that knows what to make of it."""

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        *,
        scheduler: Scheduler,
        plan: EpochPlan,
        judge: Judge,
        issuing: Issuing,
        pacing: Pacing,
        delivery: Delivery,
        layouts: KnownLayouts,
        streams: Streams,
        turns: Turns,
        trial: ThreadTrial,
    ) -> None:
        self._pool, self._settings, self._scheduler, self._plan = pool, settings, scheduler, plan
        self._judge, self._issuing, self._pacing, self._delivery = judge, issuing, pacing, delivery
        self._layouts, self._streams, self._turns, self._trial = layouts, streams, turns, trial
        self._all_words = pool.arena.bytes.cast("q")

    def collect(self) -> None:
        """Take all answers that have come, and give back what the batches they end no longer need."""
        for result in self._pool.pipes.receive():
            self.note(result)
        scheduler = self._scheduler
        if scheduler.dropped:
            for batch in scheduler.dropped:
                self._delivery.release(batch)
            scheduler.dropped.clear()
        if scheduler.to_free:
            self._delivery.free(scheduler.to_free)
            scheduler.to_free.clear()

    def note(self, result: Result) -> None:
        """Take one answer into account."""
        answer = result.answer
        num_new = 0
        if self._settings.is_iterable:
            num_new = self._streams.note(result)
            self._plan.note_brought(num_new)
        if answer == Answer.LAYOUT:
            self._layouts.consider(load(self._pool.arena, result.block), result.rows)
            self._pacing.has_answer = True
            return
        if answer == Answer.MEASURED:
            self._trial.note(result)
            return
        if answer == Answer.PASSED_OVER:
            if not num_new:  # told already by a worker that is lost, or of an epoch that was given up
                free_block(self._all_words, result.block)
            elif self._judge.pass_over(result, self._plan.epoch, self._settings.rank):
                self._plan.note_passed_over()
            return
        self._pacing.has_answer = True
        if answer == Answer.FAILED and self._judge.consider(result, self._plan.epoch, self._settings.rank):
            return
        if answer == Answer.COLLATED:
            self._delivery.note_collated(self._scheduler.batches.get(result.seq), result.block)
        elif answer == Answer.SHARED and result.block:
            self._delivery.note_samples(result.block, result.rows)
        elif answer == Answer.END:
            batch = self._scheduler.batches.get(result.seq)
            # an end that belongs to an epoch which was given up says nothing of this one
            if batch is not None and not batch.is_cancelled and self._turns.retire(result.worker) and result.row:
                say_doubt(f"the iterator of worker {result.worker}")
        elif answer == Answer.NEEDS_WHOLE and not self._issuing.is_whole:
            self._issuing.is_whole = True
            _log.info("the data set's samples cannot travel one by one: batches are not split from here on")
        if result.block:
            mark_told(self._all_words, result.block)
        for work in self._scheduler.note(result):
            self._pool.board.words[Head.REISSUED] = 1
            self._issuing.forget_rows(work)
            self._pool.pipes.send(work)
