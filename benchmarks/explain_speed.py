"""How fast is a log read, and in how much memory? A log of 1 GB of each kind, through `headrace explain`.

    python benchmarks/explain_speed.py                  # 1000 MB of each kind
    python benchmarks/explain_speed.py --kind tqdm --mb 200

The log is written once, by repeating drawn trainings; then the command runs in a process of its own, whose time and
peak memory are taken. Bars: at least 50 MB/s, under 200 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.causes.logs_drawn import KINDS  # noqa: E402  # behind the line that makes it importable
from tests.causes.runs_drawn import draw_run  # noqa: E402

MB = 1_000_000
_KINDS = ("plain", "stamped", "tqdm", "mmengine")


def write_log(path: Path, kind: str, size: int) -> None:
    """Write a log of at least `size` bytes."""
    rng = random.Random(7)
    parts = []
    for cause in ("batch_lockstep", "checkpoint", "", "straggler_sample"):
        lines = KINDS[kind].write(rng, draw_run(rng, cause), True)
        parts.append("".join(line if line.endswith(("\r", "\n")) else line + "\n" for line in lines).encode())
    block = b"".join(parts)
    with path.open("wb") as file:
        written = 0
        while written < size:
            written += file.write(block)


def measure(path: Path) -> dict[str, float]:
    """Return seconds, rate and peak memory of one run of the command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    begun = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "-q", "explain", "--json", str(path)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    output, _ = process.communicate()
    took_s = time.perf_counter() - begun
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(output)
    size = path.stat().st_size
    return {
        "log_mb": size / MB,
        "took_s": took_s,
        "cpu_s": usage.ru_utime - before,
        "mb_per_s": size / MB / took_s,
        "peak_mb": usage.ru_maxrss * 1024 / MB,  # the most of all runs so far
        "findings": float(len(document["findings"])),
        "share_read_for_steps": document["source"]["bytes_read_for_steps"] / size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of each log (default: 1000)")
    parser.add_argument("--kind", choices=_KINDS, action="append", help="only this kind; may be given again")
    parser.add_argument("--quick", action="store_true", help="small logs only: does it still run?")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    results = {}
    for kind in args.kind or _KINDS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind}.log"
            write_log(path, kind, (2 if args.quick else args.mb) * MB)
            results[kind] = measure(path)
        print(f"{kind:10s}", *(f"{name}={value:.3g}" for name, value in results[kind].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"schema": "headrace/benchmark/1", "kinds": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
