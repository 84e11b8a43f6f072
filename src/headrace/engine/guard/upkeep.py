"""Keeps a feed's workers going: who is lost is replaced, who stands still is ended, fewer run while memory is short."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from headrace.errors import BatchTimeout, WorkerHang, WorkerLost
from headrace.forensics import Level
from headrace.model import ErrorText, FailureKind, error_name

from ..epoch import FeedSettings, Figures
from ..losses import Condemned, Guilty, Recovery, Streams, record_loss
from ..memory import Answer, CaughtError, Result, Slots, dump, pickle_error
from ..pool import Loss, Pool
from .guard import Guard

_log = logging.getLogger(__name__)

_WATCH_EVERY_S = 0.25


class Upkeep:
    """What a feed does beside feeding, while it waits and a few times a second."""

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        *,
        guard: Guard,
        recovery: Recovery,
        streams: Streams,
        slots: Slots,
        condemned: Condemned,
        figures: Figures,
        note: Callable[[Result], None],
    ) -> None:
        self._pool, self._settings, self._guard, self._recovery = pool, settings, guard, recovery
        self._streams, self._slots, self._condemned = streams, slots, condemned
        self._figures, self._note = figures, note
        self._explained: tuple[Loss, WorkerLost | WorkerHang] | None = None
        self._borne: tuple[Loss, bool] | None = None
        self._watch_at = 0.0
        self.waiting_since = time.perf_counter()
        self.has_delivered = False
        # a sample that stands still is noticed soon after its time is up
        self.poll_s = min(1.0, settings.timeout_s / 4) if settings.timeout_s else 1.0

    def look_if_due(self) -> None:
        """Look at processes and memory without waiting, so that a loss is noticed where batches are always ready."""
        if not self._guard.is_due:
            return
        self._pool.wait(0)
        if self._pool.losses:
            self.make_good()
        self._guard.look_once()
        if self._pool.arena.used_bytes() > self._pool.plan.budget_bytes:
            self._pool.trim()
        self._yield_to_pressure()

    def wait(self, timeout_s: float) -> None:
        """Sleep until something comes from the workers, and make good what was lost."""
        is_watchful = bool(self._recovery.num_losses)  # look for what nobody has in hand, and for late writers
        self._pool.wait(min(timeout_s, 0.05) if is_watchful else timeout_s)
        if self._pool.losses:
            self.make_good()
        self._watch()
        if is_watchful:
            self._recovery.apart.give_next()
            self._recovery.sweep.look()
            self._pool.pipes.flush()

    def _watch(self) -> None:
        """Look for workers that stand still, and at memory; a few times a second, however often the loop waits."""
        now = time.perf_counter()
        if now < self._watch_at:
            return
        self._watch_at = now + min(_WATCH_EVERY_S, self.poll_s)
        self._guard.look()
        self._guard.give_up_undead()
        if not self.has_delivered and self._guard.is_report_due():
            _log.warning("the first batch has not come for a minute:\n%s", self._guard.where_they_stand())
        if self._settings.timeout_s and self._condemned.policy.raises_at_once:
            return
        for hung in self._guard.find_hung(time.perf_counter() - self.waiting_since):
            self._guard.kill(hung)

    def make_good(self) -> None:
        """Replace lost workers and give out again what they owed."""
        while self._pool.losses:
            loss = self._pool.losses[0]
            error = self._explain(loss)
            if self._settings.is_iterable:
                self._make_good_stream(loss, error)
                continue
            if not self._is_borne(loss):
                error.evidence["lost_before"] = f"{self._recovery.num_losses} workers"
                record_loss(loss.pid)
                raise error
            guilty = self._recovery.take_over(loss)
            if guilty is None:
                return  # the lock is held: try again at the next wait
            self._pool.losses.pop(0)
            record_loss(loss.pid)
            self._pool.replace(loss.workers)
            _log.warning("%s\n  it was replaced, and what it owed is given out again", error)
            for one in guilty:
                self._condemn(one, error)
        self._pool.pipes.flush()

    def _explain(self, loss: Loss) -> WorkerLost | WorkerHang:
        """What happened, found out once: while the lock is held, the same loss comes here again."""
        if self._explained is None or self._explained[0] is not loss:
            self._explained = (loss, self._guard.explain(loss))
        return self._explained[1]

    def _is_borne(self, loss: Loss) -> bool:
        """Whether one more loss is borne; each is charged once."""
        if self._borne is None or self._borne[0] is not loss:
            self._borne = (loss, self._recovery.bears(loss))
        return self._borne[1]

    def _make_good_stream(self, loss: Loss, error: WorkerLost | WorkerHang) -> None:
        """A worker of an iterable data set is gone, and with it where its iterator stood."""
        for result in self._pool.pipes.receive():
            self._note(result)
        if not self._is_borne(loss) or not self._streams.bears(loss):
            record_loss(loss.pid)
            raise error
        self._pool.losses.pop(0)
        record_loss(loss.pid)
        for worker in loss.workers:
            self._pool.region_of(worker).free_untold()
        self._pool.replace(loss.workers)
        self._streams.take_over(loss)
        self._recovery.num_losses += 1
        _log.warning(
            "%s\n  it was replaced: the new one begins the data set again and passes over what was delivered, which "
            "gives the same samples if its iterator does",
            error,
        )

    def _condemn(self, guilty: Guilty, error: WorkerLost | WorkerHang) -> None:
        """What no worker survives fails, as if it had raised: a sample, or the collation of a batch."""
        batch, worker = guilty.batch, guilty.loss.workers[0]
        error.evidence["tries"] = guilty.losses
        caught = CaughtError(
            ErrorText(name=error_name(type(error)), type_name="", message=error.what, traceback=str(error)),
            worker,
            pickle_error(error),
            is_sample=not guilty.is_collation,
            tries=guilty.losses,
            kind=FailureKind.HANG if isinstance(error, WorkerHang) else FailureKind.WORKER_LOST,
        )
        block, _ = dump(caught, self._pool.region, self._pool.arena)
        rows = batch.num_rows if batch.is_whole else guilty.rows
        self._note(Result(batch.seq, block, guilty.row, rows, worker, Answer.FAILED))

    def timed_out(self, timeout_s: float) -> BatchTimeout:
        return BatchTimeout(
            f"DataLoader timed out after {timeout_s:g} seconds",
            workers=self._where_workers_stand(),
            next_step="a larger timeout=, or find out what the samples above wait for",
        )

    def _where_workers_stand(self) -> str:
        doing = "; ".join(
            f"worker {w.worker} is {w.state}"
            if w.current_age_s is None
            else f"worker {w.worker} at {_name_work(w.current_position)} since {w.current_age_s:.1f} s"
            for w in self._figures.workers()
        )
        return doing or "there is no worker"

    def _yield_to_pressure(self) -> None:
        """Hold less while memory is short: fewer batches first, then fewer workers; grow back later."""
        if self._guard.pressure.level is not Level.NONE:
            self._slots.give_back_free()
        step = self._guard.resize_by()
        if step < 0:
            self._pool.shrink(1)
        elif step > 0:
            self._pool.grow(1)
        if step:
            _log.warning(
                "memory: %s, %d workers now",
                "a worker is sent home" if step < 0 else "a worker is back",
                self._pool.num_workers,
            )


def _name_work(position: int | None) -> str:
    return "the collation of a batch" if position is None else f"sample {position}"
