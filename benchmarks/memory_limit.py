"""Does an epoch end well under a memory limit that torch's loader dies in?

A memory control group of its own with a limit, as a container or a Slurm job has it; 8 workers over volumes of 32 MiB
in batches of 8, `prefetch_factor=2`, a step of 50 ms. torch's loader may hold 16 finished batches of 256 MiB besides
the 8 in work. Each loader runs in a group of its own, in a process of its own. Needs to be root, and control groups
that can be written (v1 or v2); the groups are removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np

from probes import machine_facts

LOADERS = ("torch", "headrace")
SIDE, DEPTH = 256, 128  # 32 MiB of float32


class Volumes:
    """Volumes that hold their index."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> Any:
        return np.full((DEPTH, SIDE, SIDE), index, np.float32)


def run_here(loader: str, options: argparse.Namespace) -> None:
    """One epoch in this process, inside its group. Prints one line of JSON."""
    settings: dict[str, Any] = {
        "batch_size": options.batch_size,
        "num_workers": options.workers,
        "prefetch_factor": 2,
    }
    if loader == "torch":
        from torch.utils.data import DataLoader
    else:
        from headrace import DataLoader
    delivered: list[int] = []
    started = time.perf_counter()
    try:
        for batch in DataLoader[Any](Volumes(options.samples), **settings):  # type: ignore[arg-type]
            delivered += batch[:, 0, 0, 0].int().tolist()
            time.sleep(0.05)
        error = ""
    except Exception as failure:
        error = f"{type(failure).__name__}: {str(failure).strip().splitlines()[0]}"
    facts = {
        "delivered": len(delivered),
        "is_right": delivered == list(range(options.samples)),
        "error": error,
        "seconds": round(time.perf_counter() - started, 2),
    }
    print(json.dumps(facts), flush=True)
    os._exit(0)


def _make_limited(place: Path, limit_bytes: int) -> Path | None:
    """Make a group below another one, with a limit; None where there is none to be set."""
    folder = place / f"headrace-bench-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    set_names = []
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            (folder / name).write_text(str(limit_bytes))
            set_names.append(name)
    with contextlib.suppress(FileNotFoundError, PermissionError):
        (folder / "memory.swap.max").write_text("0")
    if not set_names:
        folder.rmdir()
        return None
    return folder


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group with a memory limit and no swap, removed at the end with whatever is in it."""
    from headrace.signals.system import memory_groups

    groups = memory_groups()
    # in v2 a group with processes in it may have none below it with a limit of their own, unless it is the topmost
    places = [group.folder for group in groups] + [Path("/sys/fs/cgroup")] * any(g.version == 2 for g in groups)
    folder = next((made for place in places if (made := _make_limited(place, limit_bytes)) is not None), None)
    if folder is None:
        raise SystemExit("memory_limit: needs to be root, and a memory control group that can be written")
    try:
        yield folder
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def run_apart(loader: str, options: argparse.Namespace) -> dict[str, Any]:
    with memory_group(int(options.limit_gib * 2**30)) as folder, tempfile.TemporaryFile() as errors:
        command = [sys.executable, __file__, "--loader", loader, "--group", str(folder)]
        for name in ("samples", "batch_size", "workers"):
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            out, _ = child.communicate(timeout=options.deadline)
        except subprocess.TimeoutExpired:
            out = ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        facts: dict[str, Any] = json.loads(out) if out.strip() else {"is_right": False, "delivered": 0}
        if not out.strip():
            was_killed = child.returncode == -signal.SIGKILL
            facts["error"] = f"the training process was killed or hung (code {child.returncode}, killed={was_killed})"
        return facts | _counters(folder)


def _counters(folder: Path) -> dict[str, int]:
    """What the group counted: the peak, and how many of its processes the kernel killed."""
    found = {}
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        with contextlib.suppress(OSError):
            found["peak_bytes"] = int((folder / name).read_text())
    for name in ("memory.oom_control", "memory.events"):
        with contextlib.suppress(OSError):
            fields = dict(line.split() for line in (folder / name).read_text().splitlines())
            found["oom_kills"] = int(fields["oom_kill"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-gib", type=float, default=3.0, help="limit of the group (%(default)s)")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--samples", type=int, default=240)
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for an epoch (%(default)s)")
    parser.add_argument("--only", choices=LOADERS)
    parser.add_argument("--quick", action="store_true", help="few samples: does it still run?")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--loader", help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loader:
        Path(options.group, "cgroup.procs").write_text(str(os.getpid()))
        run_here(options.loader, options)
    if options.quick:
        options.samples = 4 * options.batch_size
    if os.geteuid() != 0:
        print("memory_limit: skipped, it needs to be root")
        return 0
    results = {name: run_apart(name, options) for name in LOADERS if options.only in (None, name)}
    for name, facts in results.items():
        end = "the epoch ends, all samples in order" if facts["is_right"] else f"ends with: {facts['error']}"
        peak = facts.get("peak_bytes", 0) / 2**30
        print(
            f"{name:>9}: {end}; {facts['delivered']} of {options.samples} samples, "
            f"peak {peak:.2f} of {options.limit_gib:g} GiB, {facts.get('oom_kills', '?')} processes killed for memory"
        )
    if options.json:
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            "machine": machine_facts(),
            "settings": {key: value for key, value in vars(options).items() if key not in ("json", "loader", "group")},
            "results": results,
        }
        Path(options.json).write_text(json.dumps(document, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
