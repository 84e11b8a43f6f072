"""Trainings drawn at random, as timelines of steps: the truth that a log is then printed from.

Waits come from a model of torch's rule (each worker makes a whole batch, round-robin, delivered in order, at most
`prefetch_factor` batches a worker ahead), not from the shapes that the analysis looks for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass
class Step:
    """One step: how long it waited, how long it worked, and what the loop did before it."""

    epoch: int
    step: int  # in its epoch, from 1
    total: int  # over all epochs, from 1
    wait_s: float
    work_s: float
    pause_s: float = 0.0  # before the step, outside of it
    doing: str = ""  # what that pause was; empty: nothing that a log would speak of


@dataclass
class Run:
    """A drawn training with its truth."""

    cause: str  # injected; empty: healthy
    steps: list[Step]
    num_workers: int
    batch_size: int
    prefetch_factor: int
    per_epoch: int
    num_epochs: int
    interval: int = 0  # of what is done every so many steps
    facts: dict[str, float] = field(default_factory=dict)


CAUSES = (
    "",
    "compute",
    "batch_lockstep",
    "straggler_sample",
    "loader_throughput",
    "checkpoint",
    "evaluation",
    "logging",
    "epoch_start",
    "hidden_periodic",
    "hidden_irregular",
    "drift",
)


def draw_run(rng: random.Random, cause: str) -> Run:
    """Return a training with one injected cause."""
    workers = rng.choice([2, 3, 4, 6, 8, 12, 16, 24, 32])
    prefetch = rng.choice([2, 2, 4, 8])
    step_s = rng.choice([0.08, 0.12, 0.2, 0.35, 0.6, 1.1]) * rng.uniform(0.9, 1.1)
    noise = rng.choice([0.01, 0.03, 0.08, 0.15])
    epochs = rng.choice([1, 1, 2, 3])
    per_epoch = rng.randint(90, 400)
    if cause == "loader_throughput":
        workers = 1  # one worker: every step waits, and none more than the others
    if cause == "batch_lockstep":
        per_epoch = max(per_epoch, 9 * workers)
    if cause == "straggler_sample":
        per_epoch = max(per_epoch, 260)
    if cause == "epoch_start":
        epochs, per_epoch = rng.randint(4, 8), rng.randint(40, 120)
    total = epochs * per_epoch
    services = _services(rng, cause, total, workers, step_s)
    work = [step_s * max(0.3, rng.gauss(1, noise)) for _ in range(total)]
    if cause == "drift":
        begin = int(total * rng.uniform(0.3, 0.6))
        factor = rng.uniform(1.9, 3.5)
        work = [seconds * (factor if index >= begin else 1) for index, seconds in enumerate(work)]
    interval = rng.choice([20, 25, 30, 37, 40, 50, 60, 75, 100]) if total >= 500 else rng.choice([20, 25, 30, 37])
    pauses = _pauses(rng, cause, total, per_epoch, step_s, interval)
    start_s = _slow_start(rng, cause, step_s, per_epoch)
    waits = _torch_waits(services, work, pauses, workers, prefetch, per_epoch, slow_start_s=start_s)
    steps = [
        Step(index // per_epoch, index % per_epoch + 1, index + 1, waits[index], work[index], *pauses[index])
        for index in range(total)
    ]
    return Run(cause, steps, workers, rng.choice([4, 16, 24, 32]), prefetch, per_epoch, epochs, interval)


def _services(rng: random.Random, cause: str, total: int, workers: int, step_s: float) -> list[float]:
    """How long a worker needs for each batch."""
    if cause == "batch_lockstep":
        deficit, spread = rng.uniform(2.0, 8.0), rng.choice([0.02, 0.05, 0.1])
        return [workers * step_s * deficit * max(0.2, rng.gauss(1, spread)) for _ in range(total)]
    # A pool with time to spare; in a healthy run the first batch of an epoch, made while all wait, is short too.
    batch_steps = min(0.4 * workers, 2.0) if cause in {"", "compute"} else 0.4 * workers
    services = [batch_steps * step_s * max(0.2, rng.gauss(1, 0.2)) for _ in range(total)]
    if cause == "loader_throughput":
        slow = rng.uniform(1.5, 6.0)
        return [step_s * slow * max(0.2, rng.gauss(1, 0.1)) for _ in range(total)]
    if cause == "straggler_sample":
        at = rng.randint(10, 30)
        while at < total:
            services[at] += step_s * workers * 8 + rng.uniform(15, 40) * step_s
            at += rng.randint(25, 70)
    return services


def _slow_start(rng: random.Random, cause: str, step_s: float, per_epoch: int) -> float:
    return step_s * per_epoch * rng.uniform(0.15, 0.5) if cause == "epoch_start" else rng.uniform(0.0, 2.0) * step_s


def _pauses(
    rng: random.Random, cause: str, total: int, per_epoch: int, step_s: float, interval: int
) -> list[tuple[float, str]]:
    pauses = [(0.0, "")] * total
    long_s = step_s * interval * rng.uniform(0.2, 0.9)
    if cause in {"checkpoint", "evaluation", "logging"}:
        for index in range(interval, total, interval):
            pauses[index] = (long_s * rng.uniform(0.8, 1.2), cause)
    elif cause == "hidden_periodic":
        for index in range(interval, total, interval):
            pauses[index] = (long_s * rng.uniform(0.9, 1.1), "")
    elif cause == "hidden_irregular":
        at = rng.randint(8, 20)
        while at < total:
            pauses[at] = (step_s * rng.uniform(6, 25), "")
            at += rng.randint(12, 50)
    else:
        # What healthy trainings do, too: a short save now and then, with a line about it.
        if rng.random() < 0.5 and cause != "epoch_start":
            for index in range(per_epoch, total, per_epoch):
                pauses[index] = (step_s * rng.uniform(0.2, 1.5), "checkpoint")
    return pauses


def _torch_waits(
    services: list[float],
    work: list[float],
    pauses: list[tuple[float, str]],
    workers: int,
    prefetch: int,
    per_epoch: int,
    *,
    slow_start_s: float,
) -> list[float]:
    """Return the wait of each step under torch's rule; a new pool is started for every epoch."""
    waits: list[float] = []
    now = 0.0
    for first in range(0, len(services), per_epoch):
        count = min(per_epoch, len(services) - first)
        free_at = [now + slow_start_s] * workers
        done: list[float] = [0.0] * count
        sent = 0
        for index in range(count):
            while sent < count and sent - index < workers * prefetch:
                worker = sent % workers
                begun = max(free_at[worker], now)
                free_at[worker] = done[sent] = begun + services[first + sent]
                sent += 1
            now += pauses[first + index][0]
            wait_s = max(0.0005, done[index] - now)
            waits.append(wait_s)
            now += wait_s + work[first + index]
    return waits
