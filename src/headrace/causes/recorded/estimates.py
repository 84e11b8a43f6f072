"""What more workers would bring, estimated from measured service times; withheld where noise is larger. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headrace.model import Bottleneck

from .data_waits import DataVerdict

_FEWEST_TASKS = 12
_WORTH = 1.05
_PER_DOUBLING = 0.1  # of the gain: how unsure each doubling of the workers makes it


@dataclass(frozen=True)
class MoreWorkers:
    """So many workers would make the loop so many times as fast, give or take."""

    workers: int
    gain: float
    error: float
    is_short_of_cores: bool  # as many as would be needed do not fit the machine


def estimate_more_workers(verdict: DataVerdict, cores: float, train_s: float) -> MoreWorkers | None:
    """Estimate the least number of workers that feed the loop: demand times the time of a task.

    A task costs the same whatever the number of workers, as long as cores are free for its CPU time; a disk that is
    at its limit is not in this model, so nothing is said where tasks wait for bytes at a high rate.
    """
    pool, resources = verdict.pool, verdict.resources
    current = verdict.loader.settings.get("num_workers", 0)
    if pool is None or resources is None or current < 1 or len(pool.task_s) < _FEWEST_TASKS:
        return None
    if verdict.bottleneck in {Bottleneck.IO_BANDWIDTH, Bottleneck.IPC_COPY, None} and resources.bytes_per_s > 0:
        return None
    # Without a core to run on, a task takes longer than it would: that part goes away with fewer tasks, not more.
    task_s = float(pool.task_s.mean()) * (1 - resources.no_core)
    error = float(pool.task_s.std()) / math.sqrt(len(pool.task_s)) / float(pool.task_s.mean())
    needed = math.ceil(verdict.demand_per_s * task_s * 1.05)
    on_core = min(1.0, max(resources.cpu, 0.01))
    most = math.floor(max(1.0, cores - 1) / on_core)  # one core is the training's own
    workers = min(needed, most)
    if workers <= current:
        return None
    supply = min(verdict.demand_per_s, workers / task_s)
    loop_s = len(verdict.wait_s) / verdict.supply_per_s
    saved_s = min(verdict.lost_s, loop_s - len(verdict.wait_s) / supply)
    gain = train_s / max(train_s - saved_s, 0.01 * train_s)
    # The further from what was measured, the less sure: tasks get in each other's way as there are more of them.
    error = float(np.hypot(error, _PER_DOUBLING * math.log2(workers / current)))
    if gain - 1 < max(_WORTH - 1, 2 * error * (gain - 1)):
        return None
    return MoreWorkers(workers, gain, error * (gain - 1), needed > most)
