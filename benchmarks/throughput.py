"""How many samples a second reach the loop, with 2 workers on 2 cores?

W1 to W4, the same data set object and so the same decode for every contender. "decode only" is the limit: two
processes that decode bytes in memory and do nothing else; "pages kept" is the same with malloc told to keep its pages,
as our workers do; "read, decode, copy once" also reads the files and copies each sample into shared memory that is
there already, which no loader with processes can do without. The loop asks at once; `--paced` adds a loop that asks for
about two thirds of the limit. `--peers` adds other loaders, where they are installed. On W3, `__getitems__` fetches a
batch at a time: as a list of samples for `default_collate`, or as a block that is collated already (`collate_fn` keeps
it).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import KEEP_PAGES, MODULES, decode_limit, feed
from loop import Plan
from peers import PEERS, feed_peer
from workloads import DATASETS, ENDLESS, WORKLOADS, FileSet, SmallBatched, SmallBlock, keep_batch

LIMIT, LIMIT_KEPT, HANDED_OVER = "decode only", "decode only, pages kept", "read, decode, copy once"
TORCH, TORCH_HERE = "torch 2 workers", "torch in-process"
OURS, OURS_THREADS, OURS_AUTO = "headrace 2 workers", "headrace 2 threads", "headrace, auto"

OVER_TORCH = {"sa1b": 1.33, "ct": 1.1, "small": 3.5, "lidar": 1.9}
OVER_LIMIT = {"sa1b": 0.95, "ct": 0.95}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", help=f"which, by comma ({','.join(WORKLOADS)}; quick: small,lidar)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--peers", action="store_true", help="also run the peers that are installed")
    parser.add_argument("--paced", action="store_true", help="also with a loop that asks for two thirds of the limit")
    parser.add_argument("--more", action="store_true", help="also torch with malloc told to keep its pages")


def contenders(options: Options) -> list[Contender]:
    found = []
    for name in options.workloads.split(","):
        found += limits(name, options)
        found += loaders(name, name, plan_of(options), options)
        if options.paced:
            found += loaders(f"{name}, paced", name, plan_of(options, WORKLOADS[name].paced_step_s), options)
    return found


def plan_of(options: Options, step_s: float = 0.0) -> Plan:
    warmup_s = 0.1 if options.quick else 2.5
    return Plan(warmup_s=warmup_s, seconds=options.seconds, step_s=step_s, align=options.workers)


def limits(workload: str, options: Options) -> list[Contender]:
    def run(*, hands_over: bool = False) -> Result:
        plan = plan_of(options)
        return decode_limit(
            DATASETS[workload](options.size),
            seconds=plan.seconds,
            warmup_s=plan.warmup_s,
            num_processes=options.workers,
            hands_over=hands_over,
        )

    return [
        Contender(LIMIT, run, workload),
        Contender(LIMIT_KEPT, run, workload, env=KEEP_PAGES),
        Contender(HANDED_OVER, partial(run, hands_over=True), workload, env=KEEP_PAGES),
    ]


def loaders(group: str, workload: str, plan: Plan, options: Options) -> list[Contender]:
    kind, batch_size, num_workers = DATASETS[workload], WORKLOADS[workload].batch_size, options.workers

    def loader(
        name: str, library: str, kind: type[FileSet] = kind, env: dict[str, str] | None = None, **settings: Any
    ) -> Contender:
        def run() -> Result:
            return feed(library, kind(options.size, length=ENDLESS), plan, batch_size=batch_size, **settings)

        return Contender(name, run, group, needs=MODULES[library], env=env or {})

    found = [
        loader(TORCH, "torch", num_workers=num_workers),
        loader(OURS, "headrace", num_workers=num_workers, backend="process"),
        loader(OURS_THREADS, "headrace", num_workers=num_workers, backend="thread"),
        loader(OURS_AUTO, "headrace", num_workers="auto"),
    ]
    if options.more:
        found.append(loader(f"{TORCH}, pages kept", "torch", env=KEEP_PAGES, num_workers=num_workers))
    if workload == "small":
        as_list: dict[str, Any] = {"kind": SmallBatched}
        as_block: dict[str, Any] = {"kind": SmallBlock, "collate_fn": keep_batch}
        found += [
            loader(TORCH_HERE, "torch", num_workers=0),
            loader("headrace in-process", "headrace", num_workers=0),
            loader(f"{TORCH_HERE}, list", "torch", num_workers=0, **as_list),
            loader(f"{OURS_AUTO}, list", "headrace", num_workers="auto", **as_list),
            loader(f"{TORCH_HERE}, block", "torch", num_workers=0, **as_block),
            loader(f"{OURS_AUTO}, block", "headrace", num_workers="auto", **as_block),
            loader(f"{TORCH}, block", "torch", num_workers=num_workers, **as_block),
            loader(f"{OURS}, block", "headrace", num_workers=num_workers, **as_block),
        ]
    if options.peers:
        found += [
            Contender(name, peer_run(name, kind, batch_size, plan, options), group, needs=peer.needs, exits_hard=True)
            for name, peer in PEERS.items()
        ]
    return found


def peer_run(name: str, kind: type[FileSet], batch_size: int, plan: Plan, options: Options) -> Callable[[], Result]:
    def run() -> Result:
        return feed_peer(name, kind(options.size, length=ENDLESS), batch_size, plan, options.workers)

    return run


def bars(options: Options) -> list[Bar]:
    found = []
    for name in options.workloads.split(","):
        key = partial("{}/{}".format, name)
        rate = partial(Bar, measure="samples_per_s")
        of_limit, over_torch = OVER_LIMIT.get(name), OVER_TORCH[name]
        found += [
            rate(f"{name}: {OURS} / {LIMIT}", key(OURS), over=(key(LIMIT),), at_least=of_limit),
            rate(f"{name}: {OURS} / {LIMIT_KEPT}", key(OURS), over=(key(LIMIT_KEPT),)),
            rate(f"{name}: {OURS} / {HANDED_OVER}", key(OURS), over=(key(HANDED_OVER),)),
            rate(f"{name}: {HANDED_OVER} / {LIMIT}", key(HANDED_OVER), over=(key(LIMIT),)),
            rate(f"{name}: {TORCH} / {LIMIT}", key(TORCH), over=(key(LIMIT),)),
            rate(f"{name}: {OURS} / {TORCH}", key(OURS), over=(key(TORCH),), at_least=over_torch),
            rate(f"{name}: {OURS_THREADS} / {TORCH}", key(OURS_THREADS), over=(key(TORCH),)),
            rate(f"{name}: {OURS_AUTO} / {TORCH}", key(OURS_AUTO), over=(key(TORCH),)),
        ]
        if name == "small":
            block, block_torch = key(f"{OURS_AUTO}, block"), key(f"{TORCH_HERE}, block")
            samples, samples_torch = key(f"{OURS_AUTO}, list"), key(f"{TORCH_HERE}, list")
            found += [
                Bar("small: processes with auto", key(OURS_AUTO), "num_processes", at_most=1),
                rate(f"small: {OURS_AUTO} / {TORCH_HERE}", key(OURS_AUTO), over=(key(TORCH_HERE),), at_least=0.98),
                rate("small: samples/s with __getitems__, block", block, at_least=1_000_000),
                rate("small: samples/s with __getitems__, list", samples),
                rate(f"small: __getitems__, block, {OURS_AUTO} / {TORCH_HERE}", block, over=(block_torch,)),
                rate(f"small: __getitems__, list, {OURS_AUTO} / {TORCH_HERE}", samples, over=(samples_torch,)),
            ]
        if options.peers:
            peers = tuple(key(peer) for peer in PEERS)
            found.append(rate(f"{name}: {OURS} / best peer", key(OURS), over=peers, at_least=1.0))
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    workloads=tuple(WORKLOADS),
    quick_workloads=("small", "lidar"),
    files=lambda options: [(name, options.size) for name in options.workloads.split(",")],
    columns=(
        "samples_per_s",
        "first_batch_s",
        "wait_median_ms",
        "wait_p99_ms",
        "wait_worst_ms",
        "user_ms_per_sample",
        "system_ms_per_sample",
        "cores_used",
        "faults_per_sample",
        "num_processes",
    ),
    rounds=3,
    quick_seconds=0.3,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
