"""How far ahead a feed runs, and in how large chunks: taken anew from what is measured; how long the loop waited."""

import time
from collections import deque
from statistics import median

from headrace.model import WaitStats

from ..memory import Record, batches_that_fit
from .delivery import Delivery
from .depth import MOST_AHEAD, Pace, batches_ahead, chunk_samples
from .figures import Figures
from .plan import FeedSettings
from .scheduler import Scheduler

# chunks that all workers have in hand together take no more than this part of the budget, if a sample does not
_IN_HAND_PART = 8
# how often the pace is taken anew: often enough to follow a change, rarely enough to cost nothing
_PACE_EVERY_BATCHES, _EARLY_BATCHES, _PACE_EVERY_S = 8, 64, 0.25
_RECENT_WAITS, _RECENT_STEPS = 512, 64


class WaitLog:
    """How long the training loop waited for its batches. The first batch counts apart: it pays for starting up."""

    def __init__(self) -> None:
        self.count = 0
        self.first_batch_s = 0.0
        self._total_s = self._worst_s = 0.0
        self._waits: deque[float] = deque(maxlen=_RECENT_WAITS)
        self._steps: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._returned_at = 0.0

    def ask(self, now: float) -> None:
        """The loop asks for a batch: what lies behind it was a step."""
        if self._returned_at:
            self._steps.append(now - self._returned_at)

    def give(self, wait_s: float, now: float, *, since_start_s: float) -> None:
        self._returned_at = now
        self.count += 1
        self._total_s += wait_s
        if self.count == 1:
            self.first_batch_s = since_start_s
        else:
            self._waits.append(wait_s)
            self._worst_s = max(self._worst_s, wait_s)

    def pause(self) -> None:
        """An epoch ended: the time until the next one begins is no step."""
        self._returned_at = 0.0

    def steps_of(self, batches: int) -> tuple[float, float]:
        """The usual step, and the longest of the last so many."""
        steps = list(self._steps) or [0.0]
        return median(steps), max(steps[-max(1, batches) :])

    def typical_interval_s(self) -> float:
        """Time from one batch to the next, the loop's own step plus its wait; 0 while too few are known."""
        if min(len(self._steps), len(self._waits)) < 4:
            return 0.0
        recent = list(self._waits)[-_RECENT_STEPS:]
        return sum(self._steps) / len(self._steps) + sum(recent) / len(recent)

    def stats(self) -> WaitStats:
        waits, steps = sorted(self._waits) or [0.0], sorted(self._steps) or [0.0]
        return WaitStats(
            count=self.count,
            total_s=self._total_s,
            median_s=waits[len(waits) // 2],
            p95_s=waits[min(len(waits) - 1, int(len(waits) * 0.95))],
            worst_s=self._worst_s,
            first_batch_s=self.first_batch_s,
            recent_s=tuple(self._waits),
            step_median_s=steps[len(steps) // 2],
        )


class Pacing:
    """Batches in flight and samples a chunk, as the figures and the slots allow."""

    def __init__(
        self, settings: FeedSettings, scheduler: Scheduler, delivery: Delivery, figures: Figures, waits: WaitLog
    ) -> None:
        self._pool, self._slots, self._scheduler = figures.pool, delivery.slots, scheduler
        self._delivery, self._figures, self._waits = delivery, figures, waits
        self.asked_ahead = settings.batches_ahead
        self._ahead, self._ahead_reason, self.chunk = 1, "until the first sample has come", 1
        self._taken_at, self._taken_batches = 0.0, 0
        self.has_answer = False  # something has come from a worker

    def is_due(self, delivered: int) -> bool:
        """Whether to take the pace anew; `delivered` batches have been so far."""
        if not self.has_answer:
            return False
        now = time.perf_counter()
        is_early = self._taken_batches + _PACE_EVERY_BATCHES <= delivered < _EARLY_BATCHES
        if not is_early and now < self._taken_at + _PACE_EVERY_S:
            return False
        self._taken_at, self._taken_batches = now, delivered
        return True

    def take(self) -> None:
        """Follow what was measured: samples a chunk, batches ahead."""
        pace = self.pace()
        self.chunk = chunk_samples(pace)
        if self._pool.plan.is_iterable:
            self._ahead, self._ahead_reason = 2 * self._pool.num_workers, "2 x workers, each fills its own batches"
        else:
            self._ahead, self._ahead_reason = batches_ahead(pace)
        self._figures.mark_faults()

    def pace(self) -> Pace:
        times = self._figures.sample_times()
        seen = times.count if times else self._figures.total(Record.SAMPLES_DONE)
        return Pace(
            # the median, for a mean of tiny samples is made of the moments when a worker was off the processor
            sample_s=times.median_s if times else self._figures.mean_cost_s(),
            worst_sample_s=max(times.worst_s, self._figures.oldest_sample_s()) if times else 0.0,
            samples_seen=seen,
            step_s=self._waits.typical_interval_s(),
            batch_rows=self._delivery.layouts.rows,
            num_workers=max(1, self._pool.num_workers),
            batch_bytes=max(self._slots.largest_bytes, self._delivery.general_bytes),
        )

    def limit(self, wanted: int | None = None) -> int:
        """How many batches may be in flight now; `wanted`: if so many were asked for."""
        general_bytes = self._delivery.expected_bytes(max(1, self._delivery.layouts.rows))
        if not self._delivery.layouts.known and not general_bytes:
            # nobody knows yet how large a batch is: just enough to keep every worker busy
            rows = 1 if self._pool.plan.is_iterable else max(1, self._delivery.layouts.rows)
            return max(1, -(-self._pool.num_workers // rows))
        limit = self.ahead[0] if wanted is None else wanted
        if self._delivery.layouts.known:
            total, leased = self._slots.counts()
            limit = min(limit, total - leased)
        else:
            limit = self._general_limit(limit, general_bytes)
        return max(1, min(limit, MOST_AHEAD))

    def _general_limit(self, limit: int, batch_bytes: int) -> int:
        """How many of `limit` batches may be in flight on the general path, by what they take of the budget."""
        budget, delivery, in_flight = self._pool.plan.budget_bytes, self._delivery, self._scheduler.in_flight
        held = delivery.held_bytes
        if held + 2 * batch_bytes * max(limit, len(self._scheduler.batches)) <= budget:
            return limit
        queued = held + sum(delivery.queued_bytes(b, batch_bytes) for b in self._scheduler.batches.values())
        fits = batches_that_fit(budget_bytes=budget, queued_bytes=queued, batch_bytes=batch_bytes)
        return min(limit, in_flight + fits)

    def chunk_for(self, num_rows: int) -> int:
        if not self.has_answer:
            return max(1, num_rows // (4 * max(1, self._pool.num_workers)))
        chunk = min(self.chunk, num_rows)
        # on the general path a chunk is in a worker's hands until its last sample is there
        if sample_bytes := self._delivery.expected_bytes(num_rows) // max(1, num_rows):
            in_hand_bytes = self._pool.plan.budget_bytes // (_IN_HAND_PART * max(1, self._pool.num_workers))
            chunk = min(chunk, in_hand_bytes // sample_bytes)
        return max(1, chunk)

    @property
    def ahead(self) -> tuple[int, str]:
        if self.asked_ahead is not None:
            return self.asked_ahead, "as asked for"
        return self._ahead, self._ahead_reason
