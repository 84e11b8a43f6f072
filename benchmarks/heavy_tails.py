"""Does one slow sample in 400 hold up the loop?

One sample in 400 takes a second, the others 20 to 40 ms; 8 workers, batch 24, and a step that the workers can just keep
up with. In order, a slow sample is hidden only by batches that are ready before it: slow time / step time, here nine
of them. (a) With torch's bytes in flight (`prefetch_factor=2`: 16 batches) ours must do at least as well. (b) With no
depth given ours chooses one, from the spread it measures and the memory it may use.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from harness import Bar, Contender, Options, Question, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import HeavyTail

NUM_WORKERS, BATCH_SIZE = 8, 24
TORCH, SAME_BYTES, CHOSEN = "torch, prefetch 2", "headrace, prefetch 2", "headrace, depth chosen"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--one-in", type=int, default=400, help="how rare a slow sample is (%(default)s)")
    parser.add_argument("--slow-s", type=float, default=1.0, help="how long it takes (%(default)s)")
    parser.add_argument(
        "--slack", type=float, default=0.13, help="by how much a step is longer than the workers need (%(default)s)"
    )
    parser.add_argument("--batches", type=int, help="measured batches (176, about 20 s and ten slow samples)")


def step_s(dataset: HeavyTail, slack: float) -> float:
    """Return a step for which supply is just above demand: the workers' time for a batch, and some slack."""
    return dataset.mean_s * BATCH_SIZE / NUM_WORKERS * (1 + slack)


def contenders(options: Options) -> list[Contender]:
    dataset = HeavyTail(one_in=options.one_in, slow_s=options.slow_s)
    plan = Plan(
        warmup_batches=16 if options.quick else 48,  # two or three slow samples: a depth can follow only what it saw
        batches=options.batches or (24 if options.quick else 176),
        step_s=step_s(dataset, options.slack),
        align=NUM_WORKERS,
    )
    settings: dict[str, Any] = {"batch_size": BATCH_SIZE, "num_workers": NUM_WORKERS}
    return [
        Contender(TORCH, partial(feed, "torch", dataset, plan, prefetch_factor=2, **settings)),
        Contender(
            SAME_BYTES,
            partial(feed, "headrace", dataset, plan, prefetch_factor=2, **settings),
            needs=MODULES["headrace"],
        ),
        Contender(CHOSEN, partial(feed, "headrace", dataset, plan, **settings), needs=MODULES["headrace"]),
    ]


def bars(_: Options) -> list[Bar]:
    return [
        Bar("(a) throughput, headrace / torch, same bytes", SAME_BYTES, "samples_per_s", (TORCH,), at_least=1.0),
        Bar("(a) worst wait, headrace / torch, same bytes", SAME_BYTES, "wait_worst_ms", (TORCH,), at_most=1.0),
        Bar("(b) throughput, headrace / torch, depth chosen", CHOSEN, "samples_per_s", (TORCH,)),
        Bar("(b) worst wait, headrace / torch, depth chosen", CHOSEN, "wait_worst_ms", (TORCH,)),
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    columns=(
        "batches_per_s",
        "first_batch_s",
        "wait_median_ms",
        "wait_p95_ms",
        "wait_p99_ms",
        "wait_worst_ms",
        "wait_share",
    ),
    show_waits=True,
    rounds=3,
    seconds=0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
