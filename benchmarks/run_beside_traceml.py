"""What do `headrace run` and TraceML say of the same trainings?

The trainings of `run_score.py`, same seed, each run three times: under `headrace run`, under `traceml run` with the
script unchanged, and under `traceml run` with the two lines that it asks of a plain loop (`trace_step`). TraceML runs
in an environment of its own: `python -m venv V; V/bin/pip install traceml-ai torch numpy`, then `--traceml` names its
command.

python benchmarks/run_beside_traceml.py --traceml V/bin/traceml --markdown docs/reference/run-and-traceml.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from probes import machine_facts
from recorded_runs.drawing import KINDS, draw
from recorded_runs.limits import CannotLimit, limited, make_files, scratch_folder
from run_score import TRAINING, run_one


@dataclass(frozen=True)
class Row:
    """One training, and what was said of it."""

    kind: str
    seed: int
    injected: str
    headrace: str
    headrace_is_right: bool
    traceml_unchanged: str
    traceml_with_lines: str


def by_traceml(command: str, kind: str, seed: int, *, seconds: float, with_lines: bool) -> str:
    """Return its verdict and what it advises."""
    drawn = draw(kind, seed, seconds=seconds)
    if drawn.needs_gpu and not Path("/dev/nvidia0").exists():
        raise CannotLimit("no GPU here")
    with scratch_folder() as name:
        folder = Path(name)
        spec: dict[str, Any] = {**drawn.spec, "folder": name, "loader": "torch", "traceml": with_lines}
        if drawn.files[0]:
            make_files(folder / "files", *drawn.files)
            spec["files"] = str(folder / "files")
        with limited(drawn.limits, folder) as (prefix, begin):
            arguments = [*prefix, command, "run", "--logs-dir", str(folder / "logs"), str(TRAINING)]
            try:
                done = subprocess.run(
                    [*arguments, "--args", json.dumps(spec)],
                    check=False,
                    preexec_fn=begin,
                    capture_output=True,
                    text=True,
                    timeout=180,
                    cwd=folder,
                )
            except subprocess.TimeoutExpired:
                return "did not end within 180 s"
        summaries = sorted(folder.glob("logs/*/final_summary.json"))
        if not summaries:
            return f"no summary (exit code {done.returncode})"
        said = json.loads(summaries[0].read_text())["primary_diagnosis"]
        return f"{said['status']}: {said['summary']} {said['action']}"


def by_headrace(kind: str, seed: int, *, seconds: float) -> tuple[str, bool]:
    one = run_one(kind, seed, seconds=seconds, keep=None)
    found = ", ".join(f"`{cause}` {share:.0%}" for cause, share in one.found[:3]) or "no finding"
    bottleneck = f" ({one.bottleneck})" if one.bottleneck else ""
    return f"{one.verdict}: {found}{bottleneck}", one.is_right


def page(rows: list[Row]) -> str:
    lines = [
        "# `headrace run` and TraceML on the same trainings",
        "",
        "Written by `benchmarks/run_beside_traceml.py`: what each says first; TraceML's words are its own.",
        "",
        "| injected | headrace run, unchanged script | TraceML, unchanged script | TraceML with its two lines |",
        "| --- | --- | --- | --- |",
        *(
            f"| {row.injected} | {row.headrace}{'' if row.headrace_is_right else ' **(wrong)**'} "
            f"| {row.traceml_unchanged} | {row.traceml_with_lines} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traceml", metavar="COMMAND", help="the traceml command of its own environment")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="one short training, without TraceML if it is not given")
    options = parser.parse_args()
    kinds = options.kind or list(KINDS)
    if options.quick:
        kinds, options.seconds = ["healthy"], 2.0
    elif not options.traceml:
        parser.error("--traceml is needed")
    rows = []
    for kind in kinds:
        try:
            ours, is_right = by_headrace(kind, options.seed, seconds=options.seconds)
            theirs = [
                by_traceml(options.traceml, kind, options.seed, seconds=options.seconds, with_lines=lines)
                if options.traceml
                else "not run"
                for lines in (False, True)
            ]
        except CannotLimit as error:
            print(f"left out: {kind}: {error}")
            continue
        rows.append(Row(kind, options.seed, draw(kind, options.seed, seconds=1).name, ours, is_right, *theirs))
        print(json.dumps(asdict(rows[-1])), flush=True)
    if options.markdown:
        Path(options.markdown).write_text(page(rows))
    if options.json:
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            "machine": machine_facts(),
            "rows": [asdict(row) for row in rows],
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
