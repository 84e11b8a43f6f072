"""How much memory does the process tree need at its peak, at the same throughput?

8 workers, torch's prefetch of 2, batches of 24 samples of W1's layout (5 MiB each, 120 MiB a batch), evenly slow
samples. (i) The loop asks at once: what lies in memory is what is in work. (ii) The loop is paced just below
what the workers supply: what is ahead piles up too. Peak PSS is summed over the tree four times a second, from outside.

PSS misses torch's queue: a batch on its way lies in shared memory that no process maps. "Peak held" counts that too,
from the growth of the machine's shared memory; it is right when nothing else runs.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from harness import Bar, Contender, Options, Question, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import SlowDisk

FAST, PACED = "(i) the loop asks at once", "(ii) the loop is paced just below supply"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch-size", type=int, help="samples a batch (24)")
    # long enough that the workers' writing, 5 MiB a sample, does not make the CPU the limit on 2 cores
    parser.add_argument("--min-ms", type=float, default=60.0, help="a sample blocks at least so long (%(default)s)")
    parser.add_argument("--max-ms", type=float, default=120.0, help="and at most so long (%(default)s)")
    parser.add_argument(
        "--slack", type=float, default=0.08, help="how far demand is below supply in (ii) (%(default)s)"
    )


def contenders(options: Options) -> list[Contender]:
    batch_size = options.batch_size or (4 if options.quick else 24)
    dataset = SlowDisk(min_s=options.min_ms / 1e3, max_s=options.max_ms / 1e3, payload=True)
    supply_s = (dataset.min_s + dataset.max_s) / 2 * batch_size / options.workers
    settings: dict[str, Any] = {"batch_size": batch_size, "num_workers": options.workers}
    num_warm = 2 * options.workers
    found = []
    for group, step_s in ((FAST, 0.0), (PACED, supply_s * (1 + options.slack))):
        plan = Plan(warmup_batches=num_warm, seconds=options.seconds, step_s=step_s, align=options.workers)
        ways: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("torch, prefetch 2", "torch", {"prefetch_factor": 2}),
            ("headrace", "headrace", {}),
            ("headrace, prefetch 2", "headrace", {"prefetch_factor": 2}),
        )
        for name, library, more in ways:
            run = partial(feed, library, dataset, plan, **settings, **more)
            found.append(Contender(name, run, group, needs=MODULES[library]))
    return found


def bars(_: Options) -> list[Bar]:
    found = []
    for group in (FAST, PACED):
        ours, torchs = f"{group}/headrace", (f"{group}/torch, prefetch 2",)
        found += [
            Bar(f"peak PSS, headrace / torch: {group}", ours, "peak_pss_bytes", torchs, at_most=0.5),
            Bar(f"throughput, headrace / torch: {group}", ours, "samples_per_s", torchs, at_least=0.99),
            Bar(f"peak held, headrace / torch: {group}", ours, "peak_held_bytes", torchs),
        ]
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    columns=(
        "peak_pss_bytes",
        "peak_held_bytes",
        "peak_shmem_growth_bytes",
        "samples_per_s",
        "wait_median_ms",
        "wait_worst_ms",
        "cores_used",
        "faults_per_sample",
    ),
    watch_memory=True,
    rounds=3,
    seconds=15.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
