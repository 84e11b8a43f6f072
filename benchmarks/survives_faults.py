"""What does torch's loader do when something fails, and what does ours?

One epoch of 400 samples, 4 workers, one fault. Each loader runs each case in a process of its own, with a deadline;
its answer is what it did, not what it should do. `--markdown FILE` writes the table as a page of the guides, `--json
FILE` the facts. torch's loader as it comes; ours with `on_error="quarantine"`. Filling /dev/shm needs to be root, or
a /dev/shm as small as Docker's, else that case is skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

from fault_cases import BATCH_SIZE, CASES, NUM_SAMPLES, WORKERS, Case, find_case, run_case
from probes import machine_facts

LOADERS = ("torch", "headrace")
QUICK = ("kill_outside", "exception")

_PAGE = """\
# What fails, and what then

One epoch of {samples} samples in batches of {batch}, {workers} workers, one fault. torch's `DataLoader` as it comes,
`headrace.DataLoader` with `on_error="quarantine"`. Each cell is what that loader did, in a process of its own, with a
deadline (30 s; 90 s without `timeout=`, for our guard gives a sample a minute then); this page is written by
[`benchmarks/survives_faults.py`](../../benchmarks/survives_faults.py) (torch {torch}, Python {python}, Linux). Try it
on your own data set with [`headrace chaos`](chaos.md).

| fault | torch | Headrace |
| --- | --- | --- |
{rows}

"all samples, in order" means: each of the {samples} was compared with the place it belongs to. A sample that is "named"
is in `loader.quarantine` with the reason; the samples after it move up, the last places are filled with the first good
samples of the epoch, and every batch keeps its size.
"""


def main() -> int:
    options = _parse()
    if options.case:
        run_case(options.loader, find_case(options.case), Path(options.out))
        return 0
    chosen = [case for case in CASES if not options.only or case.name in options.only.split(",")]
    if options.quick:
        chosen = [case for case in CASES if case.name in QUICK]
    results: dict[str, dict[str, Any]] = {}
    if options.only and options.json and Path(options.json).exists():  # the other cases as they were
        results = json.loads(Path(options.json).read_text())["results"]
    for case in chosen:
        results[case.name] = {name: _run_apart(name, case, case.deadline_s) for name in LOADERS}
        told = "   ".join(f"{name}: {say(results[case.name][name])}" for name in LOADERS)
        print(f"{case.title}\n  {told}", flush=True)
    facts = machine_facts()
    if options.markdown:
        Path(options.markdown).write_text(
            page([case for case in CASES if case.name in results], results, facts), encoding="utf-8"
        )
    if options.json:
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            "machine": facts,
            "results": results,
        }
        # where this machine keeps its packages and this repository is nobody's business
        text = re.sub(
            r"/[^\s\"\\:]*/(site-packages|benchmarks|src)/", r"…/\1/", json.dumps(document, indent=1, default=str)
        )
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    lost = [
        name
        for name, result in results.items()
        if not result["headrace"].get("is_right", "skipped" in result["headrace"])
    ]
    print("headrace finished every case" if not lost else f"headrace did not finish: {', '.join(lost)}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="cases, by comma: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--quick", action="store_true", help="two cases: does it still run?")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there")
    parser.add_argument("--json", metavar="FILE", help="write the facts there")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--loader", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_apart(name: str, case: Case, deadline_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        command = [sys.executable, __file__, "--case", case.name, "--loader", name, "--out", str(out)]
        started = time.monotonic()
        with err.open("wb") as stream:
            child = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
            try:
                child.wait(deadline_s)
                hangs = False
            except subprocess.TimeoutExpired:
                hangs = True
            finally:
                with _no_such_process():
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        lines = out.read_text().splitlines() if out.exists() else []
        known: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        known["seconds"] = round(time.monotonic() - started, 2)
        if not known.keys() - {"seconds"}:
            known["hangs" if hangs else "died"] = True
            known["code"] = child.returncode
            known["stderr"] = err.read_text(errors="replace")[-2000:]
        return known


def _no_such_process() -> Any:
    import contextlib

    return contextlib.suppress(ProcessLookupError)


def say(result: dict[str, Any]) -> str:
    """Return what a loader did, in a few words."""
    if "skipped" in result:
        return f"not run: {result['skipped']}"
    if result.get("hangs"):
        return "**hangs**: nothing comes any more"
    if result.get("died"):
        return f"**the training process dies** (exit code {result['code']})"
    if "error" in result:
        first = re.sub(r"\d{3,}", "…", result["error"].strip().splitlines()[0])
        return f"**the run ends** after {result['delivered']} samples: `{first[:110]}`"
    named = result["named"]
    what = "all samples, in order" if not named else f"{NUM_SAMPLES - len(named)} samples, in order; {len(named)} named"
    if not result["is_right"]:
        what = f"**{result['delivered']} samples, not the ones that were due**"
    return f"{what}; longest wait {result['worst_wait_s']:.2f} s"


def page(cases: list[Case], results: dict[str, dict[str, Any]], facts: dict[str, Any]) -> str:
    rows = [
        f"| {case.title} | {say(results[case.name]['torch'])} | {say(results[case.name]['headrace'])} |"
        for case in cases
    ]
    return _PAGE.format(
        samples=NUM_SAMPLES,
        batch=BATCH_SIZE,
        workers=WORKERS,
        torch=facts["versions"]["torch"],
        python=facts["python"],
        rows="\n".join(rows),
    )


if __name__ == "__main__":
    sys.exit(main())
