"""Does a loader with huge samples stay within its memory budget?

A training loop in a process of its own, first over tiny samples, then over huge ones, watched from outside every 20 ms:
the pages of the loader's memory file (slots, blocks of samples, collated batches: all that is queued, and what the loop
still holds of it), and the PSS of the whole tree, less its peak with tiny samples. Samples of a fixed layout (slots),
with a text beside the array, and of different lengths, small ones first, with a `collate_fn` (the general path);
processes and threads; few workers and many; budgets from "just one batch" on.

The bars: the file holds no more than the budget and the batches that the loop keeps; the tree no more than that, a
sample in the hands of each worker, and what one collation has made and not copied yet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from probes import machine_facts, tree_memory

_MIB = 1 << 20
# what is no sample: the board, indices, headers; of the tree: imports and heaps that differ between two runs
_FILE_SLACK, _TREE_SLACK = 4 * _MIB, 48 * _MIB


class Samples:
    """Arrays of `size` bytes; of a tenth to all of it where they are ragged, small ones first."""

    def __init__(self, size: int, kind: str) -> None:
        self.size, self.kind = size, kind

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        import numpy as np

        size = (
            self.size
            if self.kind != "ragged"
            else self.size // 10 + self.size * 9 // 10 * min(index * 7 % 50, index) // 49
        )
        array = np.full(size, index % 251, np.uint8)
        return {"x": array, "name": f"sample {index}"} if self.kind == "texts" else array


def keep(samples: list[Any]) -> list[Any]:
    return list(samples)


def stack(samples: list[Any]) -> Any:
    import numpy as np
    import torch

    return torch.from_numpy(np.stack(samples))


def loop(case: dict[str, Any]) -> None:
    """The training process: says when it begins with the huge samples, and what the loader said of itself."""
    import logging

    from headrace import DataLoader

    logging.basicConfig(level=logging.WARNING)
    told: dict[str, Any] = {}
    for size, num_batches in ((1024, 4), (case["sample_mib"] * _MIB, case["batches"])):
        print(json.dumps({"phase": "huge" if size > 1024 else "tiny"}), flush=True)
        loader: Any = DataLoader(
            Samples(size, case["kind"]),  # type: ignore[arg-type]
            case["batch_size"],
            num_workers=case["workers"],
            prefetch_factor=2,
            backend=case["backend"],
            multiprocessing_context=case["start"],
            memory=case["budget_mib"] * _MIB,
            collate_fn={"ragged": keep, "collate": stack}.get(case["kind"]),
        )
        held: deque[Any] = deque(maxlen=case["holds"])
        started = time.perf_counter()
        iterator: Any = iter(loader)
        for number, batch in enumerate(iterator):
            held.append(batch)
            time.sleep(case["step_s"])  # a step, so that the workers get ahead
            if number + 1 >= num_batches:
                break
        stats = iterator.snapshot()
        told = {
            "seconds": round(time.perf_counter() - started, 2),
            "slots": stats.slots.total,
            "ways": [stats.slot_batches, stats.general_batches, stats.copied_batches],
        }
        del batch, iterator, loader
        held.clear()
    print(json.dumps({"phase": "end", **told}), flush=True)


def file_bytes(pid: int) -> int:
    """Pages of the memory files of loaders that a process has open."""
    found: dict[int, int] = {}  # by inode: the mapping holds a descriptor of its own
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith("/memfd:headrace "):
                    stat = os.stat(path)
                    found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())


def watch(case: dict[str, Any], *, every_s: float = 0.02) -> dict[str, Any]:
    """Run a case and watch its tree; returns its peaks."""
    command = [sys.executable, __file__, "--loop", json.dumps(case)]
    pss, file = {"tiny": 0, "huge": 0}, {"tiny": 0, "huge": 0}
    phase, said, told = "tiny", b"", {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdout.fileno(), False)
        while process.poll() is None:
            said += process.stdout.read() or b""
            while b"\n" in said:
                line, _, said = said.partition(b"\n")
                told = json.loads(line)
                phase = told["phase"]
            if phase in pss:
                file[phase] = max(file[phase], file_bytes(process.pid))
                pss[phase] = max(pss[phase], tree_memory(process.pid).pss_bytes)
            time.sleep(every_s)
        said += process.stdout.read() or b""
        for line in said.splitlines():
            told = json.loads(line)
        errors = process.stderr.read().decode(errors="replace").strip()
        if process.returncode:
            return {**case, "error": errors.splitlines()[-1] if errors else f"exit {process.returncode}"}
    sample, batch = case["sample_mib"], case["sample_mib"] * case["batch_size"]
    file_mib, tree_mib = file["huge"] / _MIB, (pss["huge"] - pss["tiny"]) / _MIB
    file_bar = case["budget_mib"] + case["holds"] * batch + _FILE_SLACK / _MIB
    working = case["workers"] * sample + (batch if case["kind"] in ("ragged", "collate") else 0)
    tree_bar = file_bar + working + _TREE_SLACK / _MIB
    told.pop("phase", None)
    return {
        **case,
        **told,
        "file_mib": round(file_mib),
        "file_bar": round(file_bar),
        "tree_mib": round(tree_mib),
        "tree_bar": round(tree_bar),
        "said": [line for line in errors.splitlines() if line.startswith("WARNING:headrace")],
        "is_within": file_mib <= file_bar and tree_mib <= tree_bar,
    }


def cases(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    settings = (
        [(4, 8, 4, 75), (4, 8, 4, 100)]
        if options.quick
        else [
            (64, 4, 8, 1024),
            (64, 4, 8, 600),
            (64, 4, 2, 600),
            (64, 2, 8, 300),
        ]
    )
    for kind in options.kinds.split(","):
        for backend, start in [tuple(b.split("-")) if "-" in b else (b, "fork") for b in options.backends.split(",")]:
            for sample_mib, batch_size, workers, budget_mib in settings:
                for holds in (1, 3) if options.holds else (1,):
                    yield {
                        "kind": kind,
                        "backend": backend,
                        "start": start,
                        "sample_mib": sample_mib,
                        "batch_size": batch_size,
                        "workers": workers,
                        "budget_mib": budget_mib,
                        "holds": holds,
                        "batches": options.batches,
                        "step_s": 0.05,
                    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="fixed,texts,ragged,collate", help="%(default)s")
    parser.add_argument("--backends", default="process,thread", help="also process-spawn (%(default)s)")
    parser.add_argument("--batches", type=int, default=10, help="batches a case (%(default)s)")
    parser.add_argument("--holds", action="store_true", help="also with a loop that keeps its last three batches")
    parser.add_argument("--quick", action="store_true", help="small samples only: does it still run?")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        loop(json.loads(options.loop))
        return 0
    results = []
    for case in cases(options):
        result = watch(case)
        results.append(result)
        figures = result.get("error") or (
            f"file {result['file_mib']:5d} of {result['file_bar']:5d} MiB, tree {result['tree_mib']:5d} of "
            f"{result['tree_bar']:5d}, {result['slots']} slots, slot/general/copied {result['ways']}, "
            f"{result['seconds']} s{'' if result['is_within'] else '  TOO MUCH'}"
        )
        print(
            f"{case['kind']:8}{case['backend']}/{case['start']} {case['workers']} workers, batch "
            f"{case['batch_size']} x {case['sample_mib']} MiB, memory {case['budget_mib']} MiB, keeps "
            f"{case['holds']}: {figures}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"machine": machine_facts(), "cases": results}, indent=1) + "\n")
    return 0 if all(result.get("is_within") for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
