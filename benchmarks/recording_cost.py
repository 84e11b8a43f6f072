"""What do the engine's statistics cost?

One loader, one run: recording is switched on and off every tenth of a second (W1: every second) while the loop goes on,
and each window with it is compared with the mean of the windows before and after it without. Two processes with the
same code differ by up to 10 % in throughput here (where their memory lies, what else the machine does), which hides
what is asked for; neighbouring windows of one process differ by chance alone, and there are many. W3, where a sample
takes a few microseconds and any bookkeeping shows, and W1. "neither" switches nothing: it shows the method's error.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES
from loop import batch_len
from workloads import DATASETS, ENDLESS, WORKLOADS

CASES = {"small, 2 workers": ("small", 0.1), "sa1b, 2 workers": ("sa1b", 1.0)}  # workload, seconds of a window
SWITCHED, NEITHER = "switched on and off", "neither"


def contenders(options: Options) -> list[Contender]:
    return [
        Contender(name, case(group, name == SWITCHED, options), group, needs=MODULES["headrace"])
        for group in CASES
        for name in (SWITCHED, NEITHER)
    ]


def case(group: str, switches: bool, options: Options) -> Callable[[], Result]:
    workload, window_s = CASES[group]
    if options.quick:
        window_s = 0.1

    def run() -> Result:
        from headrace import DataLoader

        dataset = DATASETS[workload](options.size, length=ENDLESS)
        loader: Any = DataLoader(dataset, batch_size=WORKLOADS[workload].batch_size, num_workers=2, backend="process")
        batches = iter(loader)
        count_for(batches, 0.1 if options.quick else 2.0)
        rates = []
        for number in range(2 * max(2, int(options.seconds / window_s / 2)) + 1):
            loader.keep_stats = not (switches and number % 2 == 0)
            rates.append(count_for(batches, window_s))
        return summary(rates)

    return run


def count_for(batches: Any, seconds: float) -> float:
    """Samples a second over a window."""
    begin, num_samples = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        num_samples += batch_len(next(batches))
    return num_samples / elapsed


def summary(rates: list[float]) -> Result:
    """Compare each odd window, in which recording is on, with the two beside it."""
    ratios = [2 * rates[i] / (rates[i - 1] + rates[i + 1]) for i in range(1, len(rates) - 1, 2)]
    spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    return {
        "samples_per_s": statistics.median(rates),
        "ratio": statistics.median(ratios),
        "standard_error": 1.25 * spread / len(ratios) ** 0.5,  # of a median
        "num_windows": len(rates),
    }


def bars(_: Options) -> list[Bar]:
    found = []
    for group in CASES:
        found += [
            Bar(f"{group}: rate while recording / rate while not", f"{group}/{SWITCHED}", "ratio", at_least=0.98),
            Bar(f"{group}: its standard error", f"{group}/{SWITCHED}", "standard_error"),
            Bar(f"{group}: the same where nothing is switched", f"{group}/{NEITHER}", "ratio"),
        ]
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    files=lambda options: [("small", options.size), ("sa1b", options.size)],
    columns=("samples_per_s", "ratio", "standard_error", "num_windows"),
    rounds=3,
    seconds=40.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
