"""What do `headrace run` and TraceML say of the same trainings?

The trainings of `run_score.py`, same seed, with torch's loader (but `gil`, which takes threads of ours), each run
under `headrace run` and under `traceml run`: with the script unchanged, with the two lines that it asks of a plain loop
(`init` and `trace_step` around the step, as its documentation shows), and with `trace_step` around the loop's whole
body, where saving, evaluating and logging are in its sight. What was lost is told by the training's own clock. TraceML
runs in an environment of its own: `python -m venv V; V/bin/pip install traceml-ai torch numpy psutil`, then `--traceml`
names its command. With `--json` it is saved after each training and goes on where it ended.

python benchmarks/run_beside_traceml.py --traceml V/bin/traceml --json rows.json --minutes 3   # again and again
python benchmarks/run_beside_traceml.py --json rows.json --minutes 0 --markdown docs/reference/run-and-traceml.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from probes import machine_facts
from recorded_runs.drawing import DATA
from recorded_runs.files import make_data, scratch_folder
from recorded_runs.kinds import KINDS, draw
from recorded_runs.limits import CannotLimit, clean_up_when_ended, limited
from recorded_runs.one_run import HUNG, TRAINING, Outcome, end_once_hung, run_one
from recorded_runs.verifying import MEASURED

PLACES = ("unchanged", "step", "body")
_UNCHANGED = {"healthy", "cpu_decode", "checkpoint"}  # without marks it says the same of any plain loop
_BESIDES = {"checkpoint", "evaluation", "chatty_logging", "garbage", "hidden", "swapping", "mixture"}
_PHASE_OF = {
    **dict.fromkeys((*DATA, "straggler_sample", "shard_boundary", "epoch_start", "memory_pressure"), "INPUT-BOUND"),
    **dict.fromkeys(("checkpoint", "evaluation", "logging", "gc", "unknown", "swap"), "RESIDUAL-HEAVY"),
}
_HEALTHY = {"COMPUTE-BOUND", "NO CLEAR PERFORMANCE BOTTLENECK", "NORMAL"}
_SOURCE = Path(__file__).resolve().parent.parent / "src"
Row = dict[str, Any]


def by_traceml(command: str, kind: str, seed: int, *, seconds: float, attempt: int, place: str) -> str:
    """Return its verdict and what it advises."""
    drawn = draw(kind, seed, seconds=seconds, attempt=attempt)
    with scratch_folder() as name:
        folder = Path(name)
        loader = "headrace" if "backend" in drawn.spec else "torch"
        spec = {**drawn.spec, "folder": name, "loader": loader, "traceml": place, **make_data(drawn, folder)}
        with limited(drawn.limits, folder) as limits, open(folder / "output", "wb") as output:
            arguments = [*limits.prefix, command, "run", "--logs-dir", str(folder / "logs"), str(TRAINING)]
            child = subprocess.Popen(
                [*arguments, "--args", json.dumps(spec)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(_SOURCE)} if loader == "headrace" else None,
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


def by_headrace(kind: str, seed: int, *, seconds: float) -> Row:
    """Return what we say, whether that is right, what was lost, and how often the training was drawn before it came."""
    one = run_one(kind, seed, seconds=seconds, loader="torch")
    found = ", ".join(f"`{cause}` {share:.0%}" for cause, share in one.found[:3]) or "no finding"
    bottleneck = f" ({one.bottleneck})" if one.bottleneck else ""
    return {
        "injected": one.name,
        "attempt": len(one.redrawn),
        "expected": one.expected,
        "lost": {} if one.exit_code else _lost(one),
        "exit_code": one.exit_code,
        "headrace": f"{one.verdict}: {found}{bottleneck}",
        "headrace_is_right": one.is_right,
        "found": dict(one.found),
    }


def _lost(one: Outcome) -> dict[str, float]:
    """Return the shares that the injected causes cost by the training's own clock, as far as it measures them."""
    causes = [cause for wanted in one.among for cause in wanted] or one.expected
    return {
        cause: round(one.measured.get(MEASURED[cause], 0.0) / one.measured["train_s"], 3)
        for cause in causes
        if cause in MEASURED
    }


def right_places(row: Row) -> list[str]:
    """Return where TraceML's verdict is of the phase that the injected cause lies in; it has no words for causes."""
    words = {_PHASE_OF[cause] for cause in row["expected"] if cause in _PHASE_OF} if row["expected"] else _HEALTHY
    return [place for place, said in row["traceml"].items() if said.partition(":")[0] in words]


def has_phase(row: Row) -> bool:
    """Whether there is a phase in which TraceML could see the cause: a run that ends for it has none."""
    return not row["expected"] or any(cause in _PHASE_OF for cause in row["expected"])


def page(rows: list[Row]) -> str:
    """The page of the reference."""
    lines = [
        _HEAD,
        "| injected | lost, by its own clock | headrace run, unchanged script | right | TraceML, unchanged "
        "| … around the step | … around the body | of the right phase |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        theirs = " | ".join(row["traceml"].get(place, "") for place in PLACES)
        right = "yes" if row["headrace_is_right"] else "**no**"
        phase = (", ".join(right_places(row)) or "**no**") if has_phase(row) else "it has no such phase"
        lines.append(f"| {row['injected']} | {_lost_text(row)} | {row['headrace']} | {right} | {theirs} | {phase} |")
    return "\n".join([*lines, "", *(f"- {one}" for one in _summary(rows)), "", _NOTE]) + "\n"


def _lost_text(row: Row) -> str:
    if row["exit_code"]:
        return f"the run: exit code {row['exit_code']}"
    if not row["expected"]:
        return "nothing"
    by_share: dict[float, list[str]] = {}
    for cause, share in row["lost"].items():
        by_share.setdefault(share, []).append(cause)
    return ", ".join(f"{share:.0%}" for share in by_share) or "not measured"


def _summary(rows: list[Row]) -> list[str]:
    """Return who was right how often, and where we were worse."""
    right = sum(row["headrace_is_right"] for row in rows)
    said = [f"`headrace run` named the injected cause first in {right} of {len(rows)} of these."]
    for place in ("step", "body"):
        tried = [row for row in rows if place in row["traceml"] and has_phase(row)]
        count = sum(place in right_places(row) for row in tried)
        said.append(
            f"With `trace_step` around the {place}, TraceML's verdict was of the right phase in {count} of the "
            f"{len(tried)} whose cause lies in one of its phases."
        )
    lost = [row["injected"] for row in rows if right_places(row) and not row["headrace_is_right"]]
    said.append(f"Where TraceML was right and `headrace run` was not: {', '.join(lost) or 'none of these'}.")
    far = [
        f"{row['injected']} ({row['found'][cause]:.0%} for {share:.0%})"
        for row in rows
        for cause, share in row["lost"].items()
        if cause in row["found"] and abs(row["found"][cause] - share) > share / 3
    ]
    said.append(
        "Where the share that `headrace run` gave was off by more than a third of what the training measured: "
        f"{', '.join(far) or 'none of these'}."
    )
    if again := [row["injected"] for row in rows if row["attempt"]]:
        said.append(f"Drawn again, for at first it was not what its label says by its own clock: {', '.join(again)}.")
    return said


_HEAD = """# `headrace run` and TraceML on the same trainings

Written by [`benchmarks/run_beside_traceml.py`](../../benchmarks/run_beside_traceml.py) from [stored
results](../../benchmarks/results/run_beside_traceml.json): what each says first of one drawn training of each kind,
with torch's loader (`gil`: with threads of ours), on two cores without a GPU, which leaves out `copies`. TraceML's
words (version 0.5.0) are its own. It asks two lines of a plain loop; without them it has no step to time, as the three
that were tried show. The body column has `trace_step` around the whole body of the loop rather than around the step, as
its documentation shows it, so that saving, evaluating and logging are in its sight; it was tried where that can make a
difference. What was lost is measured by the training itself, on its own clock, in the run under `headrace run`.

The verdicts of `headrace run` are those of revision 15806e5: what it calls `stuttering` for `evaluation`,
`cpu_throttled` and `swap` is `elsewhere` since, a heavy collation has the bottleneck `collate`, and of a run that was
ended that comes first.
"""
_NOTE = """What to make of it. TraceML measures the share of each phase of a step, and for that its verdict is right
wherever the loop waits for data or computes; it does so with the same two lines on GPUs and over ranks,
where it also names the slow rank, which this table does not show. It does not look into workers or at the
kernel's counters, so all waits for data are one verdict with one advice, whatever they come from, and what
lies outside its phases is one residual. Of a run that ended for its cause the diagnosis is that of the steps before;
beside it stand torch's own traceback and "Training failed — torchrun exited with code 1.". These trainings take 5 to 8
seconds, TraceML is made for longer ones; and the machine did other work beside them, for both alike.

How near the shares are. Of `swap` ours is an estimate (the training's time in the kernel, its faults, the disk's time
for a read), and what is told is somewhat less than what was lost; TraceML's residual around the body, which is
measured, comes as near or nearer, and has no name. Of a checkpoint we count the call that saves, the `fsync` that this
script calls after it, and what lies right beside them; the residual has that too, with all else that the loop does
besides its phases."""


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
            ours = by_headrace(kind, options.seed, seconds=options.seconds)
        except CannotLimit as error:
            print(f"left out: {kind}: {error}")
            continue
        places = [
            place
            for place in PLACES
            if options.traceml and kind in {"unchanged": _UNCHANGED, "body": _BESIDES}.get(place, kinds)
        ]
        theirs = {
            place: by_traceml(
                options.traceml, kind, options.seed, seconds=options.seconds, attempt=ours["attempt"], place=place
            )
            for place in places
        }
        row = {"kind": kind, "seed": options.seed, **ours, "traceml": theirs}
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
