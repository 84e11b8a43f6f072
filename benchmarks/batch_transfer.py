"""How fast does a 120 MiB batch get from a worker into the loop?

The samples exist already (24 of 5 MiB: 3x1024x1024 uint8 and 256x64x64 float16), so what is measured is the loader's
own copying: torch collates into a fresh shared-memory segment for each batch, whose pages the kernel must find and
clear first; a slot that is kept is written at the speed of memory.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import torch

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES, feed
from loop import Plan
from workloads import Prepared

SAMPLE_BYTES = 3 * 1024 * 1024 + 256 * 64 * 64 * 2


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", default="1,2", help="numbers of workers, by comma (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=24)


def contenders(options: Options) -> list[Contender]:
    found = []
    for num_workers in map(int, options.workers.split(",")):
        for is_read in (False, True):
            for library in ("torch", "headrace"):
                run = partial(transfer, library, num_workers, is_read, options)
                found.append(Contender(library, run, group_of(num_workers, is_read), needs=MODULES[library]))
    return found


def group_of(num_workers: int, is_read: bool) -> str:
    return f"{num_workers} worker{'s' if num_workers > 1 else ''}" + (", loop reads each batch" if is_read else "")


def read_through(batch: Any) -> None:
    """Read every byte of a batch once, as a copy to a device would."""
    for tensor in batch:
        tensor.view(torch.uint8).view(-1).view(torch.int64).sum()


def transfer(library: str, num_workers: int, is_read: bool, options: Options) -> Result:
    plan = Plan(
        warmup_batches=4 * num_workers,
        warmup_s=0.5 if options.quick else 2.0,
        seconds=options.seconds,
        align=num_workers,
    )
    result = feed(
        library,
        Prepared(),
        plan,
        use=read_through if is_read else None,
        batch_size=options.batch_size,
        num_workers=num_workers,
    )
    return result | {"gb_per_s": result["samples_per_s"] * SAMPLE_BYTES / 1e9}


def bars(options: Options) -> list[Bar]:
    found = []
    for num_workers in map(int, options.workers.split(",")):
        for is_read in (False, True):
            group = group_of(num_workers, is_read)
            found.append(
                Bar(
                    f"GB/s, headrace / torch: {group}",
                    f"{group}/headrace",
                    "gb_per_s",
                    (f"{group}/torch",),
                    at_least=None if is_read else 5.0,
                )
            )
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    columns=(
        "gb_per_s",
        "batches_per_s",
        "wait_median_ms",
        "wait_worst_ms",
        "user_ms_per_sample",
        "system_ms_per_sample",
        "faults_per_sample",
    ),
    seconds=6.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
