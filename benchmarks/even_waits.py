"""Do all batches wait alike when the workers are slower than the training loop?

A sample blocks for 20 to 40 ms, 8 workers share the work, a batch has 24 samples, and the loop asks as fast as it can.
torch gives each worker a whole batch: 8 batches become ready at about the same time, so there are seven short waits
and a long one, for ever. When all workers fill the same batch, every wait is the same.

Throughput is that of a whole epoch, from the making of the loader to its last batch, so that all work lies between the
two clocks. A window that begins and ends inside an epoch counts what torch's workers had half done when it began, and
not what they have half done when it ends: with 8 batches under way, luck of the draw then decides by up to a percent
either way. At an epoch's end torch's workers end at different times, and that is part of what an epoch takes. Each
round draws its delays anew, the same for all contenders.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import SlowDisk

NUM_WORKERS = 8
WARMUP_BATCHES = 16  # two groups of torch's: the window begins where a group does, and the epoch ends where one does


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, help="measured batches, a multiple of 8 (240)")
    parser.add_argument("--start-method", choices=["fork", "spawn", "forkserver"])


def contenders(options: Options) -> list[Contender]:
    batch_size, num_batches = batch_size_of(options), num_batches_of(options)
    dataset = SlowDisk(seed=options.round, length=(WARMUP_BATCHES + num_batches) * batch_size)
    found = []
    for group, step_s in (("the loop asks at once", 0.0), ("a step takes 20 ms", 0.020)):
        # the first batch comes before the warm-up
        plan = Plan(warmup_batches=WARMUP_BATCHES - 1, batches=num_batches, step_s=step_s, align=NUM_WORKERS)
        for library in ("torch", "headrace"):
            run = partial(
                epoch,
                library,
                dataset,
                plan,
                batch_size=batch_size,
                num_workers=NUM_WORKERS,
                multiprocessing_context=options.start_method,
            )
            found.append(Contender(library, run, group, needs=MODULES[library]))
    return found


def epoch(library: str, dataset: SlowDisk, plan: Plan, **settings: Any) -> Result:
    result = feed(library, dataset, plan, **settings)
    result["epoch_samples_per_s"] = len(dataset) / result["whole_s"]
    return result


def batch_size_of(options: Options) -> int:
    return 8 if options.quick else 24


def num_batches_of(options: Options) -> int:
    return options.batches or (32 if options.quick else 240)


def remarks(options: Options, rounds: Sequence[Mapping[str, Result]]) -> Iterable[str]:
    """Say what workers that never rest would reach: throughput is bounded by the disk, for every loader."""
    batch_size, num_batches = batch_size_of(options), num_batches_of(options)
    num_samples = (WARMUP_BATCHES + num_batches) * batch_size
    shares: dict[str, list[float]] = {}
    for number, results in enumerate(rounds, 1):
        dataset = SlowDisk(seed=number)
        limit = NUM_WORKERS * num_samples / sum(map(dataset.delay_s, range(num_samples)))
        for key, result in results.items():
            shares.setdefault(key, []).append(result["epoch_samples_per_s"] / limit)
    reached = ", ".join(f"{key} {100 * statistics.median(values):.1f} %" for key, values in shares.items())
    yield f"of what {NUM_WORKERS} workers that never rest would give in an epoch: {reached}"


def bars(_: Options) -> list[Bar]:
    ours, torchs = "the loop asks at once/headrace", "the loop asks at once/torch"
    paced, paced_torchs = "a step takes 20 ms/headrace", "a step takes 20 ms/torch"
    return [
        Bar("worst wait / median wait, headrace", ours, "wait_worst_over_median", at_most=2.0),
        Bar("worst wait / median wait, torch", torchs, "wait_worst_over_median"),
        Bar("throughput of an epoch, headrace / torch", ours, "epoch_samples_per_s", (torchs,), at_least=1.0),
        Bar("throughput of the window, headrace / torch", ours, "samples_per_s", (torchs,)),
        Bar("worst wait, headrace / torch", ours, "wait_worst_ms", (torchs,)),
        Bar("worst wait / median wait, headrace, step 20 ms", paced, "wait_worst_over_median"),
        Bar("throughput of an epoch, headrace / torch, step 20 ms", paced, "epoch_samples_per_s", (paced_torchs,)),
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    remarks=remarks,
    columns=(
        "epoch_samples_per_s",
        "batches_per_s",
        "first_batch_s",
        "wait_median_ms",
        "wait_p95_ms",
        "wait_p99_ms",
        "wait_worst_ms",
        "wait_worst_over_median",
        "cores_used",
    ),
    show_waits=True,
    rounds=7,
    seconds=0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
