"""Watches a loader's processes while it runs: why one died, whether one stands still, whether memory gets short."""

import contextlib
import logging
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import WorkerHang, WorkerLost
from headrace.forensics import (
    DeathFacts,
    DeathWatch,
    Level,
    MemoryWatch,
    Pressure,
    PressureLimits,
    SampleInHand,
    WorkerMemory,
    assess,
    describe_death,
    find_growth,
    look_at,
    recognise,
)
from headrace.model import EventKind, language
from headrace.signals.system import PressureSample, read_pressures, read_stat, read_swapped_in

from ..epoch import Delivery, Figures
from ..losses import Claim, Recovery, name_sample, record_incident
from ..memory import COLLATING, NO_SAMPLE, STARTING, Board, Record
from ..pool import Loss
from ..worker import ask_to_weigh, read_weight

_log = logging.getLogger(__name__)

# a sample is not suspected before this, whatever the others took: a cold cache or a busy file server may take a minute
_LEAST_PATIENCE_S = 60.0
_TIMES_THE_WORST = 20.0
_ENOUGH_SAMPLES = 16
# before the data set has shown anything: it may build an index or download a file at its first sample
_FIRST_PATIENCE_S = 600.0
_STOPPED_PATIENCE_S = 10.0
_REPORT_AFTER_S = 60.0
# a process that was killed is gone within milliseconds, unless it sleeps where no signal reaches it
_KILL_PATIENCE_S = 3.0
_PSI_EVERY_S = _DEATHS_EVERY_S = 1.0
_STEP_EVERY_S = 1.0
_HOLDINGS_EVERY_S = 10.0
# a worker's own memory beyond this is given back by starting it anew, where it grows steadily after its first while
_RECYCLE_BYTES = 512 << 20
_WARM_UP_S = 30.0
_LEAST_WORKER_BYTES = 32 << 20  # an interpreter and what it touches of the data set
# where the kernel's files are, and when memory is short: tests replay recorded files, and do not wait for minutes
_ROOT = Path("/")
_PRESSURE_LIMITS = PressureLimits()
_NO_LIMIT = sys.maxsize
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Hung:
    """A worker that stands still."""

    worker: int
    pid: int
    age_s: float
    limit_s: float
    state: str  # the letter of /proc/<pid>/stat


@dataclass(frozen=True)
class _Ended:
    """A worker that stood still, and that we ended."""

    at_s: float
    why: str
    next_step: str


class Guard:
    """The watch over one pool. Costs a fraction of a millisecond, four times a second."""

    def __init__(self, recovery: Recovery, figures: Figures, delivery: Delivery, timeout_s: float) -> None:
        now, pool = time.monotonic(), figures.pool
        self._pool, self._recovery, self._timeout_s = pool, recovery, timeout_s
        self._figures, self._delivery = figures, delivery
        self._words = pool.board.words
        self._deaths = DeathWatch(now, root=_ROOT)
        is_forked, groups = pool.plan.context.get_start_method() == "fork", self._deaths.groups
        self._memory = MemoryWatch(os.getpid(), is_forked=is_forked, groups=groups, root=_ROOT)
        self._killed: dict[int, _Ended] = {}  # by pid
        self._psi_due = self._deaths_due = 0.0
        self._psi: tuple[PressureSample, ...] = ()  # read, and not judged yet
        self._swap: tuple[float, int] | None = None  # when, and pages swapped in so far
        self._swap_in_bytes_per_s = 0.0
        self.pressure = Pressure()
        self.most_ahead = _NO_LIMIT  # batches that may be in flight while memory is short
        self.due_at_s = 0.0  # when to look again
        self._step_due = 0.0
        self.retired = 0  # workers that were sent home because memory was short
        self._holdings: dict[int, deque[WorkerMemory]] = {}
        self._holdings_due = now + _HOLDINGS_EVERY_S
        self._next_looked_at = 0
        self._has_reported = False
        self._started_at = now

    # ------------------------------------------------------------------------------------ deaths

    def explain(self, loss: Loss) -> WorkerLost | WorkerHang:
        """Say in one sentence what happened to a lost worker, with the evidence."""
        claims = [c for worker in loss.workers if (c := self._recovery.claims.of(worker)) is not None]
        has_begun = any(self._words[Board.record_at(w) + Record.STATE] != STARTING for w in loss.workers)
        killed = self._killed.pop(loss.pid, None)
        facts = DeathFacts(
            workers=loss.workers,
            pid=loss.pid,
            exit_code=loss.exit_code,
            died_at_s=time.monotonic(),
            memory=self._memory.recent(),
            samples=tuple(self._in_hand(claim) for claim in claims if claim.position != NO_SAMPLE),
            has_begun=has_begun,
            stack=loss.stack,
            sent_by_guard=killed.why if killed is not None else None,
        )
        death = describe_death(self._deaths.complete(facts), language=language())
        kind = WorkerHang if killed is not None else WorkerLost
        evidence: dict[str, object] = {"pid": loss.pid, **death.evidence}
        next_step = killed.next_step if killed is not None and killed.next_step else death.next_step
        return kind(f"DataLoader {death.sentence}", next_step=next_step, **evidence)

    def _in_hand(self, claim: Claim) -> SampleInHand:
        started = self._words[Board.record_at(claim.worker) + Record.SAMPLE_START_NS]
        age_s = (time.perf_counter_ns() - started) / 1e9
        if claim.position == COLLATING:
            return SampleInHand(is_collation=True, age_s=age_s)
        batch = self._recovery.batch_of(claim.seq)
        row = batch.row_of(claim.position) if batch is not None else None
        key = self._delivery.key_of(claim.seq, row) if row is not None else None
        return SampleInHand(
            position=claim.position, index=key, age_s=age_s, file=name_sample(self._pool.plan.dataset, key)
        )

    # ------------------------------------------------------------------------------------ hangs

    def find_hung(self, waited_s: float) -> list[Hung]:
        """Workers that stand still at a sample, that never came to one, or that are stopped while the loop waits."""
        times, limit = self._figures.sample_times(), self._timeout_s
        if not limit:
            limit = _FIRST_PATIENCE_S if times is None or times.count < _ENOUGH_SAMPLES else _LEAST_PATIENCE_S
            limit = max(limit, _TIMES_THE_WORST * times.worst_s if times is not None else 0.0)
        hung = []
        for worker, pid in self._pool.running().items():
            if pid in self._killed:
                continue
            own_age = self._age_s(worker)
            age = waited_s if own_age is None else own_age
            if age < min(limit, _STOPPED_PATIENCE_S):
                continue
            stat = read_stat(pid)
            state = stat.state if stat is not None else ""
            if own_age is None and state not in ("T", "t"):
                continue  # it waits for work
            # a sample's time does not bound that of a start, which may import for seconds
            is_starting = self._words[Board.record_at(worker) + Record.STATE] == STARTING
            longest = max(limit, _LEAST_PATIENCE_S) if is_starting else limit
            bound = min(limit, _STOPPED_PATIENCE_S) if state in ("T", "t") else longest
            if age > bound:
                hung.append(Hung(worker, pid, age, bound, state))
        stopped = [one for one in hung if one.state in ("T", "t")]
        # one that is stopped may hold a lock that the others wait for
        return stopped or hung

    def _age_s(self, worker: int) -> float | None:
        """How long a worker has been at its sample, or on the way to its first one; None where it rests."""
        w, at = self._words, Board.record_at(worker)
        if w[at + Record.STATE] == STARTING:
            return (time.perf_counter_ns() - w[at + Record.START_NS]) / 1e9
        if self._recovery.claims.of(worker) is None or w[at + Record.POSITION] == NO_SAMPLE:
            return None
        return (time.perf_counter_ns() - w[at + Record.SAMPLE_START_NS]) / 1e9

    def kill(self, hung: Hung) -> None:
        """End a worker that stands still; its sample is judged when the loss is noticed."""
        held, next_step, report = self._look_into(hung.worker, hung.pid)
        why = f"it stood still for {hung.age_s:.1f} s (limit {hung.limit_s:.1f} s) and {held}"
        _log.warning("worker %d (pid %d): %s; it is ended and replaced\n%s", hung.worker, hung.pid, why, report)
        self._killed[hung.pid] = _Ended(time.monotonic(), why, next_step)
        record_incident(EventKind.WORKER_HANG, hung.pid, lasted_s=hung.age_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(hung.pid, signal.SIGKILL)

    def give_up_undead(self) -> None:
        """Go on without processes that do not die of SIGKILL: they sleep in the kernel, waiting for a disk."""
        now = time.monotonic()
        for pid, ended in self._killed.items():
            if now - ended.at_s > _KILL_PATIENCE_S and self._pool.abandon(pid):
                _log.warning("pid %d does not even end by SIGKILL (%s): going on without it", pid, ended.why)

    def where_they_stand(self) -> str:
        """What each worker is held by, with its stacks: for a loop that waits and waits."""
        texts = []
        for worker, pid in self._pool.running().items():
            held, _, report = self._look_into(worker, pid)
            texts.append(f"worker {worker} (pid {pid}) {held}\n{report}")
        return "\n".join(texts)

    def _look_into(self, worker: int, pid: int) -> tuple[str, str, str]:
        """What holds a worker, what to do about it, and the report with its stacks."""
        tids = self._pool.thread_ids(worker)
        report = look_at(pid, tids, stack_file=self._pool.stacks_of(pid))
        diagnosis, words = recognise(report, tids[0] if tids else None), language()
        return diagnosis.said(words), diagnosis.next_step(words), str(report)

    def is_report_due(self) -> bool:
        """Whether it is time, once, to say where each worker stands: the first batch has not come for a minute."""
        if self._has_reported or time.monotonic() - self._started_at < _REPORT_AFTER_S:
            return False
        self._has_reported = True
        return True

    # ------------------------------------------------------------------------------------ memory

    def look(self) -> None:
        """Take a look at all counters and memory that are due."""
        while time.monotonic() >= self.due_at_s:
            self.look_once()

    def look_once(self) -> None:
        """Take one of the looks that are due: a loop whose batch is ready waits for that, and for no more."""
        now = time.monotonic()
        if now >= self._deaths_due:
            self._deaths_due = now + _DEATHS_EVERY_S
            self._deaths.note(now)
        elif now >= self._psi_due:
            self._psi_due = now + _PSI_EVERY_S
            self._psi = read_pressures(("memory",), self._deaths.groups, _ROOT)
            self._note_swap(now)
        else:
            self._look_at_memory(now)
        self.due_at_s = min(self._memory.due_s, self._psi_due, self._deaths_due)

    def _look_at_memory(self, now: float) -> None:
        pids = list(self._pool.running().values())
        if self._memory.sample(now, pids, queued_bytes=self._pool.arena.used_bytes()) is None:
            return
        before, recent, swap_in = self.pressure, self._memory.recent(), self._swap_in_bytes_per_s
        self.pressure = assess(recent, before, psi=self._psi, swap_in_bytes_per_s=swap_in, limits=_PRESSURE_LIMITS)
        self._psi = ()
        if self.pressure.level != before.level:
            self.most_ahead = {Level.NONE: _NO_LIMIT, Level.TIGHT: 2, Level.CRITICAL: 1}[self.pressure.level]
            words = {Level.NONE: "is no longer short", Level.TIGHT: "gets short", Level.CRITICAL: "is very short"}
            _log.warning("memory %s: %s", words[self.pressure.level], self.pressure.said(language()))
        if now >= self._holdings_due:
            self._holdings_due = now + _HOLDINGS_EVERY_S
            self._look_at_heaps()

    def room_for_workers(self) -> int | None:
        """How many more workers memory has room for, by what the largest one holds; None where that is not known.

        They may take half of what is free beside the rest of the budget.
        """
        sample = next(iter(self._memory.recent()[-1:]), None)
        held = [] if sample is None else [size for pid, size in sample.own_bytes.items() if pid != os.getpid()]
        if sample is None or not held:
            return None
        free = [group.limit_bytes - group.working_set_bytes for group in sample.groups if group.limit_bytes is not None]
        free += [] if sample.available_bytes is None else [sample.available_bytes]
        rest = max(0, self._pool.plan.budget_bytes - sample.queued_bytes)
        return max(0, (min(free) - rest) // (2 * max(_LEAST_WORKER_BYTES, *held))) if free else None

    def _note_swap(self, now: float) -> None:
        pages = read_swapped_in(_ROOT)
        if pages is not None and self._swap is not None and now > self._swap[0]:
            self._swap_in_bytes_per_s = (pages - self._swap[1]) * _PAGE_BYTES / (now - self._swap[0])
        self._swap = (now, pages) if pages is not None else None

    def resize_by(self) -> int:
        """-1: send a worker home, memory is very short. 1: take one back. 0: as it is. A step a second at most."""
        now = time.monotonic()
        if now < self._step_due or self._pool.plan.is_iterable or self._pool.plan.in_threads:
            return 0
        if self.pressure.level is Level.CRITICAL and self._pool.num_workers > 1:
            self.retired += 1
        elif self.pressure.level is Level.NONE and self.retired:
            self.retired -= 1
        else:
            return 0
        self._step_due = now + _STEP_EVERY_S
        return -1 if self.pressure.level is Level.CRITICAL else 1

    def _look_at_heaps(self) -> None:
        """Take what one worker says of its memory, in turn; start it anew where it grows steadily and is large."""
        running = list(self._pool.running().items())
        if not running or self._pool.plan.is_iterable or self._pool.plan.in_threads:
            return
        worker, pid = running[self._next_looked_at % len(running)]
        self._next_looked_at += 1
        ask_to_weigh(self._words, running[self._next_looked_at % len(running)][0])  # for the next look
        held, history = read_weight(self._words, worker), self._holdings.setdefault(pid, deque(maxlen=64))
        if held is None or (history and history[-1].at_s == held.at_s):
            return
        history.append(held)
        own = find_growth(tuple(history), skip_s=_WARM_UP_S)
        if own and held.heap_bytes > _RECYCLE_BYTES:
            del self._holdings[pid]
            _log.warning(
                "worker %d (pid %d) keeps growing: %s by %.1f MiB/s, %.0f MiB now; it is started anew between chunks",
                *(worker, pid, own[0].kind.value, own[0].bytes_per_s / (1 << 20), held.heap_bytes / (1 << 20)),
            )
            self._pool.recycle(worker)
