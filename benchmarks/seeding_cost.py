"""What does it cost that each sample has its own random state?

Ours seeds by (seed, epoch, position of the sample), so augmentation does not depend on the number of workers; torch
seeds each worker once. A tiny sample that draws one number, from `random`, numpy or torch, is compared with one that
draws nothing. The price is the CPU time a sample takes more than without the draw, in microseconds, the draw itself
included: what ours pays beyond torch's price is the seeding.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import Drawing

DRAWS = ("nothing", "random", "numpy", "torch")
LIBRARIES = ("torch", "headrace")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)


def contenders(options: Options) -> list[Contender]:
    plan = Plan(warmup_s=0.3 if options.quick else 1.5, seconds=options.seconds, align=max(1, options.workers))
    settings = {"batch_size": options.batch_size, "num_workers": options.workers}
    return [
        Contender(
            f"{library}, draws {draws}",
            partial(feed, library, Drawing(draws), plan, **settings),
            needs=MODULES[library],
        )
        for draws in DRAWS
        for library in LIBRARIES
    ]


def price_us(results: Mapping[str, Result], library: str, draws: str) -> float | None:
    """Return the CPU time, in microseconds a sample, that a draw costs in one library."""
    with_draw, without = results.get(f"{library}, draws {draws}"), results.get(f"{library}, draws nothing")
    if with_draw is None or without is None:
        return None
    return 1e3 * float(with_draw["cpu_ms_per_sample"] - without["cpu_ms_per_sample"])


def remarks(_: Options, rounds: Sequence[Mapping[str, Result]]) -> Iterable[str]:
    for draws in DRAWS[1:]:
        prices = {}
        for library in LIBRARIES:
            values = [value for results in rounds if (value := price_us(results, library, draws)) is not None]
            if values:
                prices[library] = f"{library} {statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"
        yield f"a draw from {draws} costs, us of CPU a sample: {'; '.join(prices.values()) or 'not measured'}"


def bars(_: Options) -> list[Bar]:
    return [
        Bar(
            f"samples/s, headrace / torch, draws {draws}",
            f"headrace, draws {draws}",
            "samples_per_s",
            (f"torch, draws {draws}",),
        )
        for draws in DRAWS
    ] + [
        Bar(
            f"samples/s, headrace, draws {draws} / draws nothing",
            f"headrace, draws {draws}",
            "samples_per_s",
            ("headrace, draws nothing",),
        )
        for draws in DRAWS[1:]
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    remarks=remarks,
    columns=("samples_per_s", "cpu_ms_per_sample", "cores_used", "wait_median_ms", "wait_worst_ms"),
    seconds=5.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
