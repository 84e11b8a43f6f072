"""Does `headrace storage` measure what the storage gives: a limit that was set, and what fio measures there?

Four cases, each with `headrace storage` and fio in turn (A B A B), in processes of their own:

- `bytes`: a control group that may read 100 MiB/s from the disk;
- `reads`: one that may do 200 reads a second;
- `latency`: a FUSE file system with 8 servers that take 20 ms a read: 6.55 MB/s each, knee at 8;
- `free`: the disk as it is, where both are limited by it or by the processors.

Reads are of 128 KiB; fio reads the same file past the page cache with as many threads (`psync`). Needs to be root, and
fio (`apt-get install fio`); without it the limits alone are compared. Everything set up is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from tests.storage.limits import NoLimitHere, limited
from tests.storage.slow_fuse import slow_file

from probes import machine_facts

SOURCE = Path(__file__).resolve().parent.parent / "src"
MIB = 1 << 20
READ_BYTES = 128 << 10
Run = Callable[[list[str]], str]


def run_plain(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def ours(run: Run, path: Path, seconds: float) -> dict[str, Any]:
    """One probe, as a user runs it."""
    command = [sys.executable, "-m", "headrace", "storage", str(path), "--json", "-q", "--seconds", str(seconds)]
    document: dict[str, Any] = json.loads(run(command))
    return document


def fio(run: Run, path: Path, *, depth: int, seconds: float) -> float:
    """The same reads by fio: their rate."""
    command = ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=randread", f"--bs={READ_BYTES}"]
    command += ["--direct=1", "--ioengine=psync", "--thread", f"--numjobs={depth}", "--group_reporting", "--time_based"]
    command += [f"--runtime={seconds}", "--ramp_time=0.2", "--norandommap", "--randrepeat=0", "--output-format=json"]
    told = run(command)
    rate: float = json.loads(told[told.index("{") :])["jobs"][0]["read"]["bw_bytes"]
    return rate


def compare(run: Run, path: Path, options: argparse.Namespace, *, depths: tuple[int, ...]) -> dict[str, Any]:
    """Both in turn, and the ratios within rounds."""
    rounds = []
    for _ in range(options.rounds):
        document = ours(run, path, options.seconds)
        by_depth = {reading["depth"]: reading for reading in document["random"]}
        theirs = {
            depth: fio(run, path, depth=depth, seconds=options.fio_seconds)
            for depth in depths
            if options.has_fio and depth in by_depth
        }
        rounds.append({"knee": document["knee"], "ours": by_depth, "fio": theirs, "in_order": document["in_order"]})
    rows = []
    for depth in sorted(rounds[0]["ours"]):
        readings = [each["ours"][depth] for each in rounds if depth in each["ours"]]
        pairs = [(each["ours"][depth], each["fio"][depth]) for each in rounds if depth in each["fio"]]
        ratios = [mine["bytes_per_s"] / yours for mine, yours in pairs]
        rows.append(
            {
                "depth": depth,
                "bytes_per_s": statistics.median(each["bytes_per_s"] for each in readings),
                "reads_per_s": statistics.median(each["bytes_per_s"] for each in readings) / READ_BYTES,
                "coldness": sorted({each["coldness"] for each in readings}),
                "fio_bytes_per_s": statistics.median(each for _, each in pairs) if pairs else None,
                "ratio_to_fio": statistics.median(ratios) if ratios else None,
                "ratio_spread": [min(ratios), max(ratios)] if ratios else None,
            }
        )
    return {"rows": rows, "knees": [each["knee"] for each in rounds], "in_order": [each["in_order"] for each in rounds]}


@contextlib.contextmanager
def large_file(folder: Path, size: int) -> Iterator[Path]:
    path = folder / "data"
    with path.open("wb") as file:
        for _ in range(0, size, 8 * MIB):
            file.write(os.urandom(8 * MIB))
        file.flush()
        os.fsync(file.fileno())
    try:
        yield path
    finally:
        path.unlink()


def case_bytes(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    limit = 100 * MIB
    with large_file(folder, options.file_bytes) as path, limited(path, bytes_per_s=limit) as group:
        result = compare(group.run, path, options, depths=(1, 2, 4, 8))
    return result | {"limit_bytes_per_s": limit, "expected_knee": 1}


def case_reads(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with large_file(folder, options.file_bytes) as path, limited(path, reads_per_s=200) as group:
        result = compare(group.run, path, options, depths=(1,))
    return result | {"limit_reads_per_s": 200}


def case_latency(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with slow_file(folder, servers=8, latency_s=0.02, jitter=0.2) as path:
        result = compare(run_plain, path, options, depths=(1, 2, 4, 8, 16, 32))
    return result | {"limit_bytes_per_s": 8 * READ_BYTES / 0.02, "expected_knee": 8}


def case_free(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with large_file(folder, options.file_bytes) as path:
        return compare(run_plain, path, options, depths=(1, 2, 4, 8, 16, 32, 64))


CASES = {"bytes": case_bytes, "reads": case_reads, "latency": case_latency, "free": case_free}


def show(name: str, result: dict[str, Any]) -> None:
    limit = result.get("limit_bytes_per_s")
    print(f"\n{name}: " + (f"limit {limit / 1e6:.1f} MB/s" if limit else ""), end="")
    if "limit_reads_per_s" in result:
        print(f"limit {result['limit_reads_per_s']} reads/s", end="")
    if "expected_knee" in result:
        said = [knee["depth"] or knee["state"] for knee in result["knees"]]
        print(f", knee expected {result['expected_knee']}, found {said}", end="")
    print("\n depth       ours  of limit        fio  ours/fio (spread)")
    for row in result["rows"]:
        share = f"{row['bytes_per_s'] / limit:.2f}" if limit else ""
        if "limit_reads_per_s" in result:
            share = f"{row['reads_per_s'] / result['limit_reads_per_s']:.2f}"
        theirs = row["fio_bytes_per_s"]
        beside = ""
        if theirs is not None:
            low, high = row["ratio_spread"]
            beside = f"{theirs / 1e6:7.1f} MB/s  {row['ratio_to_fio']:.2f} ({low:.2f} - {high:.2f})"
        print(f"{row['depth']:6d} {row['bytes_per_s'] / 1e6:7.1f} MB/s  {share:>6}  {beside}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0, help="of a probe (%(default)s)")
    parser.add_argument("--fio-seconds", type=float, default=2.0, help="of fio, per depth (%(default)s)")
    parser.add_argument("--only", choices=CASES, help="one case; with --json, the others stay as they are stored")
    parser.add_argument("--quick", action="store_true", help="does it still run?")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    options.file_bytes = (64 if options.quick else 1024) * MIB
    options.has_fio = shutil.which("fio") is not None
    if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder
        os.environ["PYTHONPATH"] = str(SOURCE)
    if options.quick:
        options.rounds, options.seconds, options.fio_seconds = 1, 1.0, 1.0
    if os.geteuid() != 0:
        print("storage_probe: skipped, it needs to be root")
        return 0
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="headrace-storage-") as folder:
            try:
                results[name] = case(Path(folder), options)
            except (NoLimitHere, OSError) as why:
                print(f"\n{name}: skipped, {why}")
                continue
        show(name, results[name])
    if options.json:
        stored = json.loads(options.json.read_text()) if options.only and options.json.exists() else {}
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            "machine": machine_facts(),
            "settings": {key: value for key, value in vars(options).items() if key not in ("json", "only")},
            "fio": run_plain(["fio", "--version"]).strip() if options.has_fio else None,
            "results": {**stored.get("results", {}), **results},
        }
        options.json.write_text(json.dumps(document, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
