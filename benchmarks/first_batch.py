"""How long does it take from making the loader to the first batch?

On a slow disk (a sample blocks for 20 to 40 ms, 8 workers, batch 24) one torch worker fetches the whole first batch
while seven fetch the next ones; when all fetch the first one together it comes as many times sooner. On W1 to W4
(2 workers) the cost of starting must not eat that up. The start method is the same on both sides.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from harness import Bar, Contender, Options, Question, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import DATASETS, ENDLESS, WORKLOADS, SlowDisk

SLOW_DISK = "slow disk"
GROUPS = (SLOW_DISK, *WORKLOADS)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start-method", choices=["fork", "spawn", "forkserver"], default="fork")
    parser.add_argument("--workloads", help=f"which, by comma ({','.join(GROUPS)}; quick: slow disk,small,lidar)")


def contenders(options: Options) -> list[Contender]:
    found = []
    for group in options.workloads.split(","):
        if group == SLOW_DISK:
            settings = {"batch_size": 24, "num_workers": 8}
        else:
            settings = {"batch_size": WORKLOADS[group].batch_size, "num_workers": 2}
        for library in ("torch", "headrace"):
            run = partial(first_batch, library, group, options, settings)
            found.append(Contender(library, run, group, needs=MODULES[library]))
    return found


def first_batch(library: str, group: str, options: Options, settings: dict[str, Any]) -> dict[str, object]:
    dataset = SlowDisk() if group == SLOW_DISK else DATASETS[group](options.size, length=ENDLESS)
    return feed(library, dataset, Plan(), multiprocessing_context=options.start_method, **settings)


def bars(options: Options) -> list[Bar]:
    return [
        Bar(
            f"first batch, headrace / torch: {group}",
            f"{group}/headrace",
            "first_batch_s",
            (f"{group}/torch",),
            at_most=0.25 if group == SLOW_DISK else 1.0,
        )
        for group in options.workloads.split(",")
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    workloads=GROUPS,
    quick_workloads=(SLOW_DISK, "small", "lidar"),
    files=lambda options: [(name, options.size) for name in options.workloads.split(",") if name in WORKLOADS],
    columns=("first_batch_s", "close_s"),
    rounds=7,
    seconds=0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
