"""Is the peak memory that `headrace plan` predicts what a loader takes?

Configurations are drawn: samples of 0.1 to 40 MB, 1 to 6 workers, batches of 1 to 16, prefetch 1 to 4 (for ours also
none), decode peaks above the sample's own size, data sets whose Python objects every worker copies by counting
references, a `collate_fn` of the user's own for some of them. `ProbeHost.measure` measures the data set as `headrace
plan` does, `peak_memory` predicts, then a loop takes batches from torch's loader or ours and stands still each time
until nothing grows any more: everything ahead is full, as in a training that is slower than its loader. Peak memory is
that of the process tree, shared memory that nobody maps included, looked at from outside without a pause.

One thing is helped along: the training process and every worker run one garbage collection over everything, with their
first batch and sample. In a long training that comes by itself; here a case takes seconds.

With `--hungry` the loop never stands still (a training that waits for data): the prediction must not be too low then.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np

from headrace.model import format_bytes
from headrace.signals.system import read_tree_memory, walk_tree
from headrace.tuning import Configuration, ProbeHost, SampleCost, peak_memory
from probes import machine_facts

_MB, _GIB = 1_000_000, 1 << 30
_SPEC = "HEADRACE_PLAN_CHECK"  # what to make, for the processes that make it
_STILL_S, _LONGEST_S = 0.6, 120.0
_ALLOWED = 0.15
_has_collected: set[int] = set()


class Drawn:
    """Samples of one size that take more to make, beside a list of names that each sample goes through."""

    def __init__(self, sample_bytes: int, peak_bytes: int, num_names: int, **_: Any) -> None:
        self.sample_bytes, self.peak_bytes = sample_bytes, peak_bytes
        self.names = [f"sequence/{number:09}/image.jpg" for number in range(num_names)]

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        import torch

        if os.getpid() not in _has_collected:
            _has_collected.add(os.getpid())
            gc.collect()
        for _ in self.names:
            pass
        scratch = np.full(max(0, self.peak_bytes - self.sample_bytes), 1, np.uint8)
        sample = np.full(self.sample_bytes, index % 251, np.uint8)
        sample[: len(scratch) and 1] += scratch[:1]
        return torch.from_numpy(sample)


def stack(samples: list[Any]) -> Any:
    """A collation of the user's own."""
    import torch

    return torch.stack(samples)


def drawn() -> Any:
    """The target that is measured."""
    import torch.utils.data

    case = json.loads(os.environ[_SPEC])
    collate = stack if case.get("collates") else None
    return torch.utils.data.DataLoader(Drawn(**case), collate_fn=collate)  # type: ignore[arg-type]


def loop(case: dict[str, Any]) -> None:
    """The training process: takes a batch for each line on stdin, and says so."""
    import torch.utils.data

    import headrace.loader

    settings = {"batch_size": case["batch_size"], "num_workers": case["num_workers"]}
    if case["prefetch_factor"] is not None:
        settings["prefetch_factor"] = case["prefetch_factor"]
    kind: Any = torch.utils.data.DataLoader if case["loader"] == "torch" else headrace.loader.DataLoader
    batches = iter(kind(Drawn(**case), collate_fn=stack if case.get("collates") else None, **settings))
    for number, _ in enumerate(sys.stdin):
        batch = next(batches)
        if number == 0:
            gc.collect()
        print("batch", flush=True)
    del batch


def watch(case: dict[str, Any], *, num_steps: int, is_hungry: bool) -> dict[str, Any]:
    """Run a case and return the peak of its tree."""
    command = [sys.executable, "-W", "ignore", __file__, "--loop", json.dumps(case)]
    peak = num_looks = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            for _ in range(num_steps):
                process.stdin.write("\n")
                process.stdin.flush()
                has_batch, grown_at, began = False, time.monotonic(), time.monotonic()
                highest = 0
                while not has_batch or (not is_hungry and time.monotonic() - grown_at < _STILL_S):
                    now = read_tree_memory(process.pid) or 0
                    num_looks += 1
                    is_busy = any(one.state in "RD" for one in walk_tree([process.pid]))  # or waits for a core
                    if is_busy or now > highest + 0.002 * highest:
                        highest, grown_at = max(now, highest), time.monotonic()
                    peak = max(peak, now)
                    has_batch = has_batch or "batch" in (process.stdout.readline() or "")
                    if process.poll() is not None or time.monotonic() - began > _LONGEST_S:
                        raise RuntimeError(f"the loop ended with {process.poll()}, or hangs: {case}")
        finally:
            process.kill()
    return {"peak_bytes": peak, "num_looks": num_looks}


def check(case: dict[str, Any], *, num_steps: int, is_hungry: bool) -> dict[str, Any]:
    """Measure the data set, predict, run."""
    os.environ[_SPEC] = json.dumps(case)
    with ProbeHost(f"{__file__}:drawn", memory_bytes=4 * _GIB) as host:
        measured = host.measure(num_samples=4)
    told = watch(case, num_steps=num_steps, is_hungry=is_hungry)
    return predict({**case, **told, "cost": asdict(measured.cost)})


def predict(result: dict[str, Any]) -> dict[str, Any]:
    """Return a case with what is predicted of it, by its measured cost."""
    beside = {name: result[name] for name in ("worst_sample_s", "uses_rows") if name in result}  # in older results
    cost = SampleCost(**{"worst_sample_s": 0.01, **beside, **result["cost"]})
    asked = {name: result[name] for name in ("batch_size", "num_workers", "prefetch_factor")}
    plan = peak_memory(cost, Configuration(**asked), result["loader"])
    return {
        **result,
        "predicted_bytes": plan.total_bytes,
        "error": plan.total_bytes / result["peak_bytes"] - 1,
        "terms": {str(term.kind): term.bytes for term in plan.terms},
    }


def draw(rng: random.Random, loader: str, *, most_bytes: float, collate_share: float) -> dict[str, Any]:
    """Draw a configuration that takes no more than so much."""
    while True:
        sample = int(_MB * math.exp(rng.uniform(math.log(0.1), math.log(40))))
        case: dict[str, Any] = {
            "loader": loader,
            "sample_bytes": sample,
            "peak_bytes": int(sample * rng.choice([1, 1, 1.5, 3])),
            "num_names": rng.choice([0, 0, 200_000, 500_000]),
            "batch_size": rng.randint(1, 16),
            "num_workers": rng.randint(1, 6),
            "collates": rng.random() < collate_share,
            "prefetch_factor": rng.choice([1, 2, 3, 4] if loader == "torch" else [None, 1, 2, 3, 4]),
        }
        batches = (case["prefetch_factor"] or 2) * case["num_workers"] + 1 + case["num_workers"]
        size = batches * case["batch_size"] * sample + case["num_workers"] * (case["peak_bytes"] + 100 * _MB)
        if size < most_bytes:
            return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20, help="of each loader (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-gib", type=float, default=5.0, help="no configuration above this (%(default)s)")
    parser.add_argument("--collate-share", type=float, default=0.25, help="with a collate_fn of its own (%(default)s)")
    parser.add_argument("--hungry", action="store_true", help="a loop that never stands still")
    parser.add_argument("--quick", action="store_true", help="one small configuration each: does it still run?")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--add", action="store_true", help="to the cases that FILE has already, predicted anew")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        loop(json.loads(options.loop))
        return 0
    rng, results = random.Random(options.seed), []
    if options.add and options.json.exists():
        results = [predict(result) for result in json.loads(options.json.read_text())["cases"]]
    facts = machine_facts()
    draws, most = (1, 0.5 * _GIB) if options.quick else (options.draws, options.most_gib * _GIB)
    drawn_by = {"most_bytes": most, "collate_share": options.collate_share}
    cases = [draw(rng, loader, **drawn_by) for _ in range(draws) for loader in ("torch", "headrace")]
    for case in cases:
        result = {"is_hungry": options.hungry} | check(
            case, num_steps=12 if options.hungry else 3, is_hungry=options.hungry
        )
        results.append(result)
        if options.json:
            options.json.write_text(json.dumps({"machine": facts, "cases": results}, indent=1) + "\n")
        way = ", collates" if case["collates"] else ""
        print(
            f"{case['loader']:9}{case['sample_bytes'] / _MB:6.2f} MB (peak {case['peak_bytes'] / _MB:6.2f}) x "
            f"{case['batch_size']:2}, {case['num_workers']} workers, prefetch {case['prefetch_factor']!s:4}, "
            f"{case['num_names']:6} names{way}: predicted {format_bytes(result['predicted_bytes']):>9}, measured "
            f"{format_bytes(result['peak_bytes']):>9}: {100 * result['error']:+5.1f} %",
            flush=True,
        )
    for loader in ("torch", "headrace"):
        errors = sorted(abs(one["error"]) for one in results if one["loader"] == loader)
        within = sum(error <= _ALLOWED for error in errors)
        print(
            f"{loader}: {within} of {len(errors)} within {100 * _ALLOWED:.0f} %; median error "
            f"{100 * errors[len(errors) // 2]:.1f} %, worst {100 * errors[-1]:.1f} %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
