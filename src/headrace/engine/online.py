"""Looks at a feed inside `next`, a few times a second, asks the controller, and does what it says."""

import logging
import time

from headrace.forensics import Level
from headrace.model import Adjustment, AdjustmentReason, EventKind, Lever, language
from headrace.signals.recording import open_lane
from headrace.signals.system import read_schedule
from headrace.storage.reading import BlockReader

from .controller import Controller, TuningWindow
from .epoch import Pacing, WaitLog
from .guard import Guard
from .limits import usable_processors
from .memory import STARTING, Board, Record
from .pool import Pool

_log = logging.getLogger(__name__)

# a window is as long as it takes to see so many samples, times the root of the workers: who ends just before its end,
# and who just behind it, is then a few percent of it
_LEAST_S, _MOST_S, _SAMPLES = 0.5, 4.0, 10
_START_PART = 5  # times as long as starting one took, until the next one
_MOST_LOOKED_AT = 16  # workers whose time on cores is read: 10 us each
_MOST_WORKERS, _WORKERS_A_CORE = 64, 8
# a step as long as so many usual ones is none, and neither are these windows: a checkpoint, an evaluation
_PAUSE_STEPS, _PAUSE_S = 5, 0.25
_PLENTY_AHEAD = 256


class OnlineTuner:
    """The driver of one feed. It acts where the guard does: between two batches, and while the loop waits."""

    def __init__(
        self,
        controller: Controller,
        pool: Pool,
        waits: WaitLog,
        pacing: Pacing,
        guard: Guard,
        reader: BlockReader | None,
    ) -> None:
        self.controller = controller
        self._pool, self._waits, self._pacing, self._guard, self._reader = pool, waits, pacing, guard, reader
        self._words, self._processors, self._lane = pool.board.words, usable_processors(), open_lane()
        self._most_workers = max(pool.num_workers, _MOST_WORKERS, _WORKERS_A_CORE * self._processors)
        self.asked_ahead = pacing.asked_ahead  # by the user or by what was found to help; None: the engine's own figure
        self.has_moved = False  # since somebody asked
        self._target = 0  # workers that are to be there; 0: they are
        self._depth = 0  # of the reader, as last seen
        self.due_at_s, self._ended_at = 0.0, time.perf_counter()
        self.begin_epoch()

    @property
    def num_workers(self) -> int:
        """How many there are, or are being started."""
        return self._target or self._pool.num_workers

    def begin_epoch(self) -> None:
        """What lies before its first batch is no part of a window."""
        self._first_count, self._began_at = self._waits.count, 0.0
        self.controller.pause()

    def look(self) -> None:
        """Close a window if it is long enough, and do what it leads to."""
        now = time.perf_counter()
        self.due_at_s = now + _LEAST_S / 2
        if self._waits.count == self._first_count:
            return
        if self._target:
            self._start_one()
            return
        if not self._began_at:
            self._begin(now)
            return
        window = self._window(now - self._began_at)
        is_short = window.elapsed_s < _MOST_S and window.samples < _SAMPLES * window.num_workers**0.5
        if window.elapsed_s < _LEAST_S or is_short:
            return
        if (told := self.controller.observe(window)) is not None:
            self._do(told)
        self._note_depth()
        self._ended_at, self._began_at = now, 0.0
        self.due_at_s = 0.0  # the next one begins at once, where no workers are to be started

    # ------------------------------------------------------------------------------------ seeing

    def _begin(self, now: float) -> None:
        self._began_at, self._asleep_s, self._count = now, self._pool.asleep_s, self._waits.count
        self._work_before = self._work()
        self._bytes_wait_s = self._reader.stats().wait_s if self._reader is not None else 0.0

    def _work(self) -> dict[int, tuple[float, ...]]:
        """Of each worker: samples done, seconds busy; of some also those on a core, and ready to run without one."""
        words, found, running = self._words, {}, self._pool.running()
        for worker in range(self._pool.most_workers):
            at, schedule = Board.record_at(worker), None
            if worker in list(running)[:_MOST_LOOKED_AT]:
                tids = self._pool.thread_ids(worker)
                schedule = read_schedule(running[worker], tid=tids[0] if tids else None)
            found[worker] = words[at + Record.SAMPLES_DONE], words[at + Record.BUSY_NS] / 1e9, *(schedule or ())
        return found

    def _window(self, elapsed: float) -> TuningWindow:
        # seen: busy, on a core, ready to run without one; of those whose time on cores is read
        done, busy_s, seen = 0.0, 0.0, [0.0, 0.0, 0.0]
        for worker, now in self._work().items():
            before = self._work_before.get(worker, (0, 0))
            is_new = now[0] < before[0]  # another one has its number
            grown = [max(0, a - b) for a, b in zip(now, (0,) * len(now) if is_new else before, strict=False)]
            done, busy_s = done + grown[0], busy_s + grown[1]
            if len(grown) == 4:
                seen = [a + b for a, b in zip(seen, grown[1:], strict=True)]
        looked_at_s = max(seen[0], seen[1] + seen[2], 1e-9)
        usual_s, longest_s = self._waits.steps_of(self._waits.count - self._count)
        states = (self._words[Board.record_at(worker) + Record.STATE] for worker in self._pool.running())
        room = self._guard.room_for_workers()
        most = self._pool.num_workers + (self._pool.num_free if room is None else min(room, self._pool.num_free))
        bytes_wait_s = self._reader.stats().wait_s - self._bytes_wait_s if self._reader is not None else 0.0
        return TuningWindow(
            elapsed_s=elapsed,
            passed_s=max(0.0, self._began_at - self._ended_at),
            samples=done,
            # without what it takes to hand out a batch that is ready, which no worker can change
            wait_s=min(self._pool.asleep_s - self._asleep_s, elapsed),
            busy_s=busy_s,
            num_workers=self._pool.num_workers,
            most_workers=min(self._most_workers, most),
            ahead=self._pacing.ahead[0],
            most_ahead=self._pacing.limit(_PLENTY_AHEAD),
            processors=self._processors,
            cpu_share=seen[1] / looked_at_s,
            no_core_share=seen[2] / looked_at_s,
            bytes_share=min(1.0, bytes_wait_s / busy_s) if busy_s else 0.0,
            is_short=self._guard.pressure.level is not Level.NONE,
            is_steady=STARTING not in states and longest_s <= max(_PAUSE_S, _PAUSE_STEPS * usual_s),
        )

    # ------------------------------------------------------------------------------------ doing

    def _do(self, told: Adjustment) -> None:
        self._tell(told)
        self.has_moved = True
        if told.before == told.after:
            if told.lever is Lever.AHEAD:  # it is kept
                self.asked_ahead = self._pacing.asked_ahead
        elif told.lever is Lever.AHEAD:
            is_back = told.reason in (AdjustmentReason.NO_GAIN, AdjustmentReason.MEMORY)
            self._pacing.asked_ahead = self.asked_ahead if is_back else told.after
        else:
            if told.after > self._pool.num_workers:
                self._target = told.after
            elif told.after < self._pool.num_workers:
                self._pool.shrink(self._pool.num_workers - told.after)
                self._pool.pipes.flush()
            if self._pacing.asked_ahead is not None:  # so many for each worker, as torch means it
                ahead = max(2, round(self._pacing.asked_ahead * told.after / told.before))
                self.asked_ahead = self._pacing.asked_ahead = ahead

    def _start_one(self) -> None:
        """Start one, and soon another: a fork of a large process takes a while, and the loop's batch may be ready."""
        pool, began = self._pool, time.perf_counter()
        missing = self._target - pool.num_workers  # none where resize() has started as many meanwhile
        count = missing if pool.plan.in_threads else 1  # threads share one process
        if missing > 0 and not pool.grow(count, is_spare=True):
            self._target = self._most_workers = pool.num_workers  # there may be no more processes
        if pool.num_workers >= self._target or self._guard.pressure.level is not Level.NONE:
            self._target, self._began_at, self.has_moved = 0, 0.0, True
        else:
            self.due_at_s = began + _START_PART * (time.perf_counter() - began)

    def _note_depth(self) -> None:
        """The reader finds its depth by itself, beside the storage: here it is only told of."""
        if self._reader is None:
            return
        before, self._depth = self._depth, self._reader.stats().depth
        if before and before != self._depth:
            reason, now_s = AdjustmentReason.BYTES, self.controller.now_s
            told = Adjustment(lever=Lever.DEPTH, before=before, after=self._depth, reason=reason, at_s=now_s)
            self.controller.told.append(told)
            self._tell(told)

    def _tell(self, told: Adjustment) -> None:
        _log.info('tune="online": %s', told.said().of(language()))
        if self._lane is not None:
            value, name = told.as_event()
            self._lane.write(EventKind.TUNED, time.perf_counter_ns(), 0, value, self._lane.name(name))
