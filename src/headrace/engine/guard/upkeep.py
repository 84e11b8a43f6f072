"""Keeps a feed's workers going: who is lost is replaced, who stands still is ended, fewer run while memory is short."""

import logging
import time

from headrace.errors import BatchTimeout, WorkerHang, WorkerLost
from headrace.forensics import Level
from headrace.model import Count, ErrorText, EventKind, FailureKind, error_name

from ..epoch import FeedSettings, Figures, Scheduler
from ..losses import Guilty, Losses, record_incident
from ..memory import BUSY, Answer, Board, CaughtError, Head, Record, Result, Slots, dump, pickle_error
from ..pool import Loss, Pool
from .guard import Guard

_log = logging.getLogger(__name__)

_WATCH_EVERY_S = 0.25
# workers that wait for room, while nobody works on the batch that the loop waits for, are let pass after this
_ROOM_PATIENCE_S = 5.0
# while somebody waits for room, the loop looks this often
LOOK_EVERY_S = 0.1


class Upkeep:
    """What a feed does beside feeding, while it waits and a few times a second."""

    def __init__(self, settings: FeedSettings, guard: Guard, losses: Losses, slots: Slots, figures: Figures) -> None:
        self._pool, self._settings, self._guard, self._losses = figures.pool, settings, guard, losses
        self._slots, self._figures = slots, figures
        self._judged: tuple[Loss, WorkerLost | WorkerHang, bool] | None = None
        self._watch_at = 0.0
        self.waiting_since = time.perf_counter()
        self.has_delivered = False
        # a sample that stands still is noticed soon after its time is up
        self.poll_s = min(1.0, settings.timeout_s / 4) if settings.timeout_s else 1.0

    def look(self) -> None:
        """Look at processes and memory without waiting, so that a loss is noticed where batches are always ready."""
        self._pool.wait(0)
        self._guard.look_once()
        if self._pool.arena.used_bytes() > self._pool.plan.budget_bytes:
            self._pool.trim()
        self._yield_to_pressure()

    def wait(self, timeout_s: float) -> None:
        """Sleep until something comes from the workers, or one of them is lost."""
        is_watchful = bool(self._losses.recovery.num_losses)  # look for what nobody has in hand, and for late writers
        self._pool.wait(min(timeout_s, 0.05) if is_watchful else timeout_s)
        self._watch()
        if is_watchful:
            self._losses.recovery.look_for_work()
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
        if self._settings.timeout_s and self._losses.condemned.policy.raises_at_once:
            return
        for hung in self._guard.find_hung(time.perf_counter() - self.waiting_since):
            self._guard.kill(hung)

    def make_good(self) -> None:
        """Replace lost workers and give out again what they owed; all answers that have come must be noted."""
        while self._pool.losses:
            loss = self._pool.losses[0]
            error, is_borne = self._judge(loss)
            if not is_borne:
                if not self._pool.plan.is_iterable:
                    error.evidence["lost_before"] = f"{Count(self._losses.recovery.num_losses):worker(s)}"
                record_incident(EventKind.WORKER_LOST, loss.pid)
                raise _as_raised(error, loss)
            if self._pool.plan.is_iterable:
                self._make_good_stream(loss, error)
                continue
            guilty = self._losses.take_over(loss)
            if guilty is None:
                return  # the lock is held: try again at the next wait
            self._pool.losses.pop(0)
            record_incident(EventKind.WORKER_LOST, loss.pid)
            said = "it was replaced" if self._pool.replace(loss.workers) else "it could not be replaced"
            _log.warning("%s\n  %s, and what it owed is given out again", error, said)
            for one in guilty:
                self._condemn(one, error)
        self._pool.pipes.flush()

    def _judge(self, loss: Loss) -> tuple[WorkerLost | WorkerHang, bool]:
        """What happened, and whether it is borne: once a loss, though it comes here again while the lock is held."""
        if self._judged is None or self._judged[0] is not loss:
            self._judged = (loss, self._guard.explain(loss), self._losses.bears(loss))
        return self._judged[1:]

    def _make_good_stream(self, loss: Loss, error: WorkerLost | WorkerHang) -> None:
        """A worker of an iterable data set is gone, and with it where its iterator stood."""
        self._pool.losses.pop(0)
        record_incident(EventKind.WORKER_LOST, loss.pid)
        for worker in loss.workers:
            self._pool.region_of(worker).free_untold()
        self._pool.replace(loss.workers)
        self._losses.take_over_stream(loss)
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
            pickle_error(_as_raised(error, guilty.loss)),
            is_sample=not guilty.is_collation,
            tries=guilty.losses,
            kind=FailureKind.HANG if isinstance(error, WorkerHang) else FailureKind.WORKER_LOST,
        )
        block, _ = dump(caught, self._pool.region, self._pool.arena)
        rows = batch.num_rows if batch.is_whole else guilty.rows
        self._losses.fail(Result(batch.seq, block, guilty.row, rows, worker, Answer.FAILED))

    def timed_out(self, timeout_s: float) -> BatchTimeout:
        doing = []
        for w in self._figures.workers():
            work = "the collation of a batch" if w.current_position is None else f"sample {w.current_position}"
            is_at = f"is {w.state}" if w.current_age_s is None else f"at {work} since {w.current_age_s:.1f} s"
            doing.append(f"worker {w.worker} {is_at}")
        return BatchTimeout(
            f"DataLoader timed out after {timeout_s:g} seconds",
            workers="; ".join(doing) or "there is no worker",
            next_step="a larger timeout=, or find out what the samples above wait for",
        )

    def _yield_to_pressure(self) -> None:
        """Hold less while memory is short: fewer batches first, then fewer workers; grow back later."""
        if self._guard.pressure.level is not Level.NONE:
            self._slots.give_back_free()
        step = self._guard.resize_by()
        if step < 0:
            self._pool.shrink(1)
        elif step > 0 and not self._pool.grow(1, is_spare=True):
            self._guard.retired += 1  # to be tried again
            return
        if step:
            said = "a worker is sent home" if step < 0 else "a worker is back"
            _log.warning("memory: %s, %s now", said, f"{Count(self._pool.num_workers):worker(s)}")


def _as_raised(error: WorkerLost | WorkerHang, loss: Loss) -> WorkerLost | WorkerHang:
    """What ends an epoch begins with torch's words; one that stood still, torch would have waited for."""
    if isinstance(error, WorkerHang):
        return error
    return WorkerLost(f"{loss.as_torch_says}. {error.what}", next_step=error.next_step, **error.evidence)


class Valve:
    """Lets workers go on that wait for room in the budget, where nothing else would ever make any.

    It should never be needed: batches are delivered in order, and the next one always has room. But what is given out
    again, after a loss or an error, may stand in the pipe behind workers that wait. To exceed the budget by a few
    samples is bad; to stand still is worse.
    """

    def __init__(self, pool: Pool, scheduler: Scheduler) -> None:
        self._pool, self._scheduler, self._words = pool, scheduler, pool.board.words
        self._seen: tuple[int, int, int] | None = None
        self._since_s = 0.0
        self._trimmed_for = -1

    @property
    def is_watching(self) -> bool:
        """Whether any worker waits for room."""
        return any(self._words[at + Record.WAITS] for at in self._records())

    def _records(self) -> list[int]:
        return [Board.record_at(worker) for worker in range(self._pool.most_workers)]

    def look(self) -> None:
        """The loop waits: if workers wait for room and nobody works on its batch, let them pass."""
        if not self._scheduler.order or not self.is_watching:
            self._seen = None
            return
        words, head = self._words, self._scheduler.batches[self._scheduler.order[0]]
        if self._trimmed_for != head.seq:
            self._trimmed_for = head.seq
            self._pool.trim()  # what others keep for reuse is room too
        works = any(
            words[at + Record.STATE] == BUSY and words[at + Record.SEQ] == head.seq and not words[at + Record.WAITS]
            for at in self._records()
        )
        seen = (head.seq, head.rows_left, sum(words[at + Record.SAMPLES_DONE] for at in self._records()))
        now = time.monotonic()
        if works or seen != self._seen:
            self._seen, self._since_s = seen, now
        elif now > self._since_s + _ROOM_PATIENCE_S:
            _log.debug("workers wait for room in the budget, and nobody works on batch %d: they go on", head.seq)
            words[Head.OPEN] = 1

    def shut(self) -> None:
        """A batch was delivered: the budget holds again."""
        self._words[Head.OPEN] = 0
