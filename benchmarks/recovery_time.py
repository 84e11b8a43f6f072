"""How long does a killed worker hold up the loop?

Samples take 20 ms, 4 workers fill batches of 8, one batch ahead, so that nothing hides a delay: a batch comes every
40 ms. Now and then a random worker gets SIGKILL, at a moment that has nothing to do with the loop. The delay of a
kill is the time from the last batch before it to the tenth after it, beyond ten usual ones; so it holds the repeated
work, too: at most a worker's share of a batch, shown beside it. With threads the whole process dies, and with it what
all workers had in hand. Under spawn and forkserver a new worker imports everything anew, but the others take over
what it owed.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import threading
import time
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from harness import Bar, Contender, Options, Question, ask

SAMPLE_S, WORKERS, BATCH_SIZE = 0.02, 4, 8
_AFTER = 10
_EVERY_S = 0.8

CONTENDERS = (
    ("processes, fork", "process", "fork"),
    ("processes, forkserver", "process", "forkserver"),
    ("processes, spawn", "process", "spawn"),
    ("threads, fork", "thread", "fork"),
)


class Steady:
    """Samples that take the same time each."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> Any:
        time.sleep(SAMPLE_S)
        return np.full(64, index)


class Killer(threading.Thread):
    """Kills a random worker now and then, at a moment that has nothing to do with the loop."""

    def __init__(self, loader: Any, every_s: float) -> None:
        super().__init__(name="headrace-bench-killer", daemon=True)
        self._loader, self._every_s = loader, every_s
        self.kills: list[float] = []
        self.is_done = threading.Event()

    def run(self) -> None:
        draw = random.Random(1)
        while not self.is_done.wait(self._every_s * draw.uniform(0.7, 1.3)):
            pids = sorted({worker.pid for worker in self._loader.stats().workers if worker.state != "starting"})
            if pids:
                try:
                    os.kill(draw.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills.append(time.perf_counter())


def measure(backend: str, start_method: str, seconds: float) -> dict[str, float]:
    from headrace import DataLoader

    per_batch_s = SAMPLE_S * BATCH_SIZE / WORKERS
    num_samples = BATCH_SIZE * int((seconds + 10) / per_batch_s)
    loader: Any = DataLoader(
        Steady(num_samples),  # type: ignore[arg-type]
        BATCH_SIZE,
        num_workers=WORKERS,
        backend=backend,
        multiprocessing_context=start_method,
    )
    loader.resize(prefetch_batches=1)
    every_s = _EVERY_S if start_method == "fork" else 3.0
    killer = Killer(loader, every_s)
    came: list[float] = []
    seen: list[int] = []
    for batch in loader:
        came.append(time.perf_counter())
        seen += batch[:, 0].tolist()
        if len(came) == 30:
            killer.start()
        if len(came) > 30 and came[-1] - came[29] > seconds and not killer.is_done.is_set():
            killer.is_done.set()
            end = len(came) + 2 * _AFTER
        if killer.is_done.is_set() and len(came) > end:
            break
    assert seen == list(range(len(seen))), "samples were lost, repeated or reordered"
    usual_s = statistics.median(b - a for a, b in pairwise(came[5:30]))
    delays, waits = [], []
    for killed in killer.kills:
        after = [at for at in came if at > killed]
        before = [at for at in came if at <= killed]
        if len(after) > _AFTER:
            delays.append(max(0.0, after[_AFTER - 1] - before[-1] - _AFTER * usual_s))
            waits.append(after[0] - killed)
    return {
        "kills": float(len(delays)),
        "delay_median_ms": 1e3 * statistics.median(delays),
        "delay_worst_ms": 1e3 * max(delays),
        "next_batch_worst_ms": 1e3 * max(waits),
        "usual_batch_ms": 1e3 * usual_s,
        "repeated_most_ms": 1e3 * SAMPLE_S * BATCH_SIZE / WORKERS,
    }


def contenders(options: Options) -> list[Contender]:
    return [
        Contender(name, partial(measure, backend, start_method, options.seconds))
        for name, backend, start_method in CONTENDERS
    ]


def bars(_: Options) -> list[Bar]:
    # 1 s, plus the repeated work: what the lost worker had in hand, and with threads what all of them had
    more_ms = 1e3 * SAMPLE_S * BATCH_SIZE / WORKERS
    return [
        Bar(f"worst delay of a kill, ms: {name}", name, "delay_worst_ms", at_most=1000 + more_ms)
        for name, _, _ in CONTENDERS
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    columns=("kills", "delay_median_ms", "delay_worst_ms", "next_batch_worst_ms", "usual_batch_ms", "repeated_most_ms"),
    rounds=3,
    seconds=12.0,
    quick_seconds=3.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
