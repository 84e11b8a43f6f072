"""Workers that hung: one that the run was waiting for when it was ended, and those that our loader replaced. Pure.

A heavy sample and a hung one look alike as long as both last. What decides: the run was ended while the loop waited,
and a worker was in one task all that time, far longer than any task took before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.model import EventKind

from .processes import ProcessEvents, covering, ends_of, starts_of
from .trainer import LoaderWaits, Trainer

_STUCK_FROM_S = 5.0
_TIMES_LONGEST = 3.0  # of what any task took before
_MOSTLY = 0.8  # of the loop's last wait


@dataclass(frozen=True, kw_only=True)
class StuckWorker:
    """A worker in a task that did not end, and the wait of the loop for it."""

    pid: int
    stuck_s: float
    waited_s: float
    longest_s: float  # of the tasks that did end, in any worker; 0: none did
    sample_index: int  # the last sample that it is known to have done, -1: not known
    num_workers: int


def find_stuck_worker(
    trainer: Trainer, workers: Sequence[ProcessEvents], exit_code: int | None, end_ns: int
) -> StuckWorker | None:
    """Return the worker that a run was waiting for when it was ended; None for a run that ended by itself."""
    if not exit_code or not workers:
        return None
    wait = _last_wait(trainer, end_ns)
    if wait is None or wait[1] - wait[0] < _STUCK_FROM_S * 1e9:
        return None
    longest_ns = 0
    epoch_ns = int(starts_of(trainer.process.of(EventKind.EPOCH)).max(initial=0))
    open_tasks: list[tuple[int, ProcessEvents]] = []  # since when
    for worker in workers:
        fetches = worker.of(EventKind.FETCH)
        is_last = ends_of(fetches) >= wait[1] - 0.02 * (wait[1] - wait[0])  # ended by what ended the run
        longest_ns = max(longest_ns, int(fetches["duration_ns"][~is_last].max(initial=0)))
        since = _in_task_since(worker) if not is_last.any() else int(starts_of(fetches)[is_last].min())
        if since is not None and since >= epoch_ns:  # workers of earlier epochs were told to end
            open_tasks.append((since, worker))
    if not open_tasks:
        return None
    since, worker = min(open_tasks, key=lambda one: one[0])
    stuck_ns = wait[1] - since
    if stuck_ns < max(_STUCK_FROM_S * 1e9, _TIMES_LONGEST * longest_ns):
        return None
    if wait[1] - max(since, wait[0]) < _MOSTLY * (wait[1] - wait[0]):
        return None
    samples = worker.of(EventKind.SAMPLE)
    samples = samples[starts_of(samples) >= since]
    return StuckWorker(
        pid=worker.pid,
        stuck_s=stuck_ns / 1e9,
        waited_s=(wait[1] - wait[0]) / 1e9,
        longest_s=longest_ns / 1e9,
        sample_index=int(samples["value"][-1]) if len(samples) else -1,
        num_workers=len(workers),
    )


@dataclass(frozen=True, kw_only=True)
class ReplacedWorkers:
    """Workers that stood still until our loader ended and replaced them."""

    count: int
    lost_s: float  # for which the loop waited meanwhile
    worst_s: float


def find_replaced_workers(trainer: Trainer, loader: LoaderWaits) -> ReplacedWorkers | None:
    """Return the hangs that a loader got over; None where there was none."""
    hangs = trainer.process.of(EventKind.WORKER_HANG)
    if not len(hangs):
        return None
    covered = covering(hangs).between(loader.start_ns, loader.end_ns)
    return ReplacedWorkers(
        count=len(hangs), lost_s=float(covered.sum()) / 1e9, worst_s=float(hangs["duration_ns"].max()) / 1e9
    )


def _last_wait(trainer: Trainer, end_ns: int) -> tuple[int, int] | None:
    """Return the wait with which the run ended: recorded where the interpreter could, else seen by its looks."""
    process = trainer.process
    others = process.of(EventKind.FORWARD, EventKind.BACKWARD, EventKind.OPTIMIZER, EventKind.EPOCH)
    waits, looks = process.of(EventKind.WAIT), process.of(EventKind.QUEUE_GET)
    last_work = int(ends_of(others).max(initial=0))
    open_looks = starts_of(looks)[starts_of(looks) >= max(last_work, int(ends_of(waits).max(initial=0)))]
    if len(open_looks):
        return int(open_looks[0]), end_ns
    if not len(waits):
        return None
    place = int(np.argmax(ends_of(waits)))
    if int(waits["value"][place]) < 0 or int(ends_of(waits)[place]) < last_work:
        return None
    return int(starts_of(waits)[place]), int(ends_of(waits)[place])


def _in_task_since(worker: ProcessEvents) -> int | None:
    """Return since when a worker is in a task that has not ended; None for one that waits for work."""
    idle = worker.of(EventKind.IDLE)
    fetches = worker.of(EventKind.FETCH)
    if not len(idle):
        return None
    taken = int(ends_of(idle).max())
    return taken if not len(fetches) or int(starts_of(fetches).max()) < taken - 1_000_000 else None
