"""What do the engine's statistics cost?

The same loader with recording on (the default) and off (`record=False`), on W3, where a sample takes a few microseconds
and any bookkeeping shows, and on W1. The bar: less than 2 % of the throughput. The difference is small, so the rounds
are many; read the spread before the median.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import DATASETS, ENDLESS, WORKLOADS

CASES = {"small, 2 workers": ("small", 2), "small, in-process": ("small", 0), "sa1b, 2 workers": ("sa1b", 2)}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by-environment", action="store_true", help="switch it off by HEADRACE_STATS=0 instead")


def contenders(options: Options) -> list[Contender]:
    found = []
    for group in CASES:
        for name, is_on in (("recording", True), ("not recording", False)):
            env = {"HEADRACE_STATS": str(int(is_on))} if options.by_environment else {}
            run = case(group, is_on, options)
            found.append(Contender(name, run, group, needs=MODULES["headrace"], env=env))
    return found


def case(group: str, is_on: bool, options: Options) -> Callable[[], Result]:
    workload, num_workers = CASES[group]
    switch = {} if options.by_environment else {"record": is_on}
    plan = Plan(warmup_s=0.3 if options.quick else 2.0, seconds=options.seconds, align=2)

    def run() -> Result:
        dataset = DATASETS[workload](options.size, length=ENDLESS)
        batch_size = WORKLOADS[workload].batch_size
        return feed("headrace", dataset, plan, batch_size=batch_size, num_workers=num_workers, **switch)

    return run


def bars(_: Options) -> list[Bar]:
    found = []
    for group in CASES:
        on, off = f"{group}/recording", (f"{group}/not recording",)
        found += [
            Bar(f"throughput, recording / not: {group}", on, "samples_per_s", off, at_least=0.98),
            Bar(f"CPU a sample, recording / not: {group}", on, "cpu_ms_per_sample", off),
        ]
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    files=lambda options: [("small", options.size), ("sa1b", options.size)],
    columns=("samples_per_s", "user_ms_per_sample", "system_ms_per_sample", "wait_median_ms", "wait_worst_ms"),
    rounds=9,
    seconds=5.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
