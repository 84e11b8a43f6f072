"""What do `headrace run` and TraceML say of the same trainings?

The trainings of `run_score.py`, same seed, with torch's loader, each run under `headrace run` and under `traceml
run`: with the script unchanged, with the two lines that it asks of a plain loop (`init` and `trace_step` around the
step, as its documentation shows), and with `trace_step` around the loop's whole body, where saving, evaluating and
logging are in its sight. TraceML runs in an environment of its own: `python -m venv V; V/bin/pip install traceml-ai
torch numpy`, then `--traceml` names its command. With `--json` it is saved after each training and goes on where it
ended.

python benchmarks/run_beside_traceml.py --traceml V/bin/traceml --json rows.json --minutes 3   # again and again
python benchmarks/run_beside_traceml.py --json rows.json --minutes 0 --markdown docs/reference/run-and-traceml.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from probes import machine_facts
from recorded_runs.files import make_data, scratch_folder
from recorded_runs.kinds import KINDS, draw
from recorded_runs.limits import CannotLimit, clean_up_when_ended, limited
from recorded_runs.one_run import HUNG, TRAINING, end_once_hung, run_one

PLACES = ("unchanged", "step", "body")
_UNCHANGED = {"healthy", "cpu_decode", "checkpoint"}  # without marks it says the same of any plain loop
_BESIDES = {"checkpoint", "evaluation", "chatty_logging", "garbage", "hidden", "swapping", "mixture"}
Row = dict[str, Any]


def by_traceml(command: str, kind: str, seed: int, *, seconds: float, attempt: int, place: str) -> str:
    """Return its verdict and what it advises."""
    drawn = draw(kind, seed, seconds=seconds, attempt=attempt)
    with scratch_folder() as name:
        folder = Path(name)
        spec = {**drawn.spec, "folder": name, "loader": "torch", "traceml": place, **make_data(drawn, folder)}
        spec.pop("backend", None)
        with limited(drawn.limits, folder) as limits, open(folder / "output", "wb") as output:
            arguments = [*limits.prefix, command, "run", "--logs-dir", str(folder / "logs"), str(TRAINING)]
            child = subprocess.Popen(
                [*arguments, "--args", json.dumps(spec)], stdout=output, stderr=subprocess.STDOUT, cwd=folder
            )
            try:
                if drawn.ended_by:
                    end_once_hung(child, folder / HUNG, drawn.ended_by)
                exit_code = child.wait(timeout=90)
            except subprocess.TimeoutExpired:
                return "did not end within 90 s"
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        summaries = sorted(folder.glob("logs/*/final_summary.json"))
        if not summaries:
            return f"no summary (exit code {exit_code})"
        said = json.loads(summaries[0].read_text())["primary_diagnosis"]
        return f"{said['status']}: {said['summary']} {said['action']}"


def by_headrace(kind: str, seed: int, *, seconds: float) -> tuple[str, bool, int]:
    """Return what we say, whether that is right, and how often the training was drawn before its cause came about."""
    one = run_one(kind, seed, seconds=seconds, loader="torch")
    found = ", ".join(f"`{cause}` {share:.0%}" for cause, share in one.found[:3]) or "no finding"
    bottleneck = f" ({one.bottleneck})" if one.bottleneck else ""
    return f"{one.verdict}: {found}{bottleneck}", one.is_right, len(one.redrawn)


def page(rows: list[Row]) -> str:
    """The page of the reference."""
    lines = [
        _HEAD,
        "| injected | headrace run, unchanged script | TraceML, unchanged | … around the step | … around the body |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        wrong = "" if row["headrace_is_right"] else " **(wrong)**"
        theirs = " | ".join(row["traceml"].get(place, "") for place in PLACES)
        lines.append(f"| {row['injected']} | {row['headrace']}{wrong} | {theirs} |")
    right = sum(row["headrace_is_right"] for row in rows)
    lines += ["", f"`headrace run` named the injected cause first in {right} of {len(rows)} of these.", "", _NOTE]
    return "\n".join(lines) + "\n"


_HEAD = """# `headrace run` and TraceML on the same trainings

Written by [`benchmarks/run_beside_traceml.py`](../../benchmarks/run_beside_traceml.py) from [stored
results](../../benchmarks/results/run_beside_traceml.json): what each says first of one drawn training of each kind,
with torch's loader, on two cores without a GPU. TraceML's words (version 0.5.0) are its own. It asks two lines of a
plain loop; without them it has no step to time, as the three that were tried show. The last column has `trace_step`
around the whole body of the loop rather than around the step, as its documentation shows it, so that saving,
evaluating and logging are in its sight; it was tried where that can make a difference.
"""
_NOTE = """What to make of it. TraceML measures the share of each phase of a step, and for that its verdict is right
wherever the loop waits for data or computes; it does so with the same two lines on GPUs and over ranks,
where it also names the slow rank, which this table does not show. It does not look into workers or at the
kernel's counters, so all waits for data are one verdict with one advice, whatever they come from; and what
lies outside its phases is one residual. These trainings take 5 to 8 seconds, TraceML is made for longer
ones; and the machine did other work beside them, for both alike."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traceml", metavar="COMMAND", help="the traceml command of its own environment")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--minutes", type=float, help="begin no training after so long")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument(
        "--json", metavar="FILE", help="written after each training; what stands there is not run again"
    )
    parser.add_argument("--quick", action="store_true", help="one short training, without TraceML if it is not given")
    options = parser.parse_args()
    clean_up_when_ended()
    kinds = options.kind or list(KINDS)
    if options.quick:
        kinds, options.seconds = ["healthy"], 2.0
    elif not options.traceml and options.minutes != 0:
        parser.error("--traceml is needed")
    rows: list[Row] = []
    if options.json and Path(options.json).exists():
        rows = json.loads(Path(options.json).read_text())["rows"]
    deadline = time.monotonic() + (60 * options.minutes if options.minutes is not None else float("inf"))
    for kind in kinds:
        if time.monotonic() >= deadline:
            break
        if any(row["kind"] == kind for row in rows):
            continue
        try:
            ours, is_right, attempt = by_headrace(kind, options.seed, seconds=options.seconds)
        except CannotLimit as error:
            print(f"left out: {kind}: {error}")
            continue
        places = [
            place
            for place in PLACES
            if options.traceml and kind in {"unchanged": _UNCHANGED, "body": _BESIDES}.get(place, kinds)
        ]
        row = {
            "kind": kind,
            "seed": options.seed,
            "injected": draw(kind, options.seed, seconds=1, attempt=attempt).name,
            "headrace": ours,
            "headrace_is_right": is_right,
            "traceml": {
                place: by_traceml(
                    options.traceml, kind, options.seed, seconds=options.seconds, attempt=attempt, place=place
                )
                for place in places
            },
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
        _save(rows, options.json)
    rows.sort(key=lambda row: list(KINDS).index(row["kind"]))
    _save(rows, options.json)
    if options.markdown:
        Path(options.markdown).write_text(page(rows))
    return 0


def _save(rows: list[Row], path: str | None) -> None:
    if not path:
        return
    document = {
        "schema": "headrace/benchmark/1",
        "script": Path(__file__).name,
        "machine": machine_facts(),
        "rows": rows,
    }
    Path(path).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
