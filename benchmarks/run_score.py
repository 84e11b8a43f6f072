"""How often does `headrace run` name the right cause first? Real trainings with causes injected for real.

Each training is drawn at random (workers, batch, step, loader, how much of the cause) and run under `headrace run`; its
findings are compared with what was injected. Some need limits that only root may set (control groups, swap, a small
/dev/shm); those are left out, and said, where they cannot be set.

python benchmarks/run_score.py --draws 3                    # every kind three times
python benchmarks/run_score.py --kind checkpoint --draws 10 -v
python benchmarks/run_score.py --draws 5 --from 1000 --json result.json --markdown docs/reference/run-score.md
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

from probes import machine_facts
from recorded_runs.drawing import KINDS, Drawn, draw
from recorded_runs.limits import CannotLimit, limited, make_files, scratch_folder

TRAINING = Path(__file__).with_name("recorded_runs") / "training.py"
NOTHING = "(none)"


@dataclass(frozen=True)
class Outcome:
    """One training and what was said of it."""

    kind: str
    name: str
    seed: int
    expected: list[str]
    found: list[tuple[str, float]]  # cause, share
    verdict: str
    bottleneck: str
    wanted_bottleneck: str
    exit_code: int

    @property
    def first(self) -> str:
        return self.found[0][0] if self.found else NOTHING

    @property
    def is_right(self) -> bool:
        return self.first in self.expected if self.expected else not self.found


def run_one(kind: str, seed: int, *, seconds: float, keep: str | None) -> Outcome:
    drawn = draw(kind, seed, seconds=seconds)
    if drawn.needs_gpu and not Path("/dev/nvidia0").exists():
        raise CannotLimit("no GPU here")
    with scratch_folder() as name:
        folder = Path(name)
        spec = {**drawn.spec, "folder": name}
        if drawn.files[0]:
            make_files(folder / "files", *drawn.files)
            spec["files"] = str(folder / "files")
        result = folder / "findings.json"
        out = Path(keep) / f"{kind}-{seed}" if keep else folder / "run"
        with limited(drawn.limits, folder) as (prefix, begin):
            command = [*prefix, sys.executable, "-m", "headrace", "run", "-q", "--out", str(out)]
            command += ["--json", str(result), str(TRAINING), json.dumps(spec)]
            done = subprocess.run(
                command, check=False, preexec_fn=begin, capture_output=True, text=True, timeout=300, env=_env()
            )
        if done.returncode and not drawn.may_fail:
            raise SystemExit(f"{kind} {seed} failed with {done.returncode}:\n{done.stderr[-2000:]}")
        if not result.exists():
            raise SystemExit(f"{kind} {seed} gave no findings:\n{done.stderr[-2000:]}")
        document = json.loads(result.read_text())
    return _outcome(kind, seed, drawn, document, done.returncode)


def _outcome(kind: str, seed: int, drawn: Drawn, document: dict[str, Any], exit_code: int) -> Outcome:
    findings = document["findings"]
    return Outcome(
        kind=kind,
        name=drawn.name,
        seed=seed,
        expected=sorted(drawn.expected),
        found=[(one["cause"], round(float(one["share"]), 3)) for one in findings],
        verdict=document["verdict"],
        bottleneck=str(findings[0].get("bottleneck") or "") if findings else "",
        wanted_bottleneck=drawn.bottleneck,
        exit_code=exit_code,
    )


def _env() -> dict[str, str]:
    source = str(Path(__file__).resolve().parent.parent / "src")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}


def matrix(outcomes: list[Outcome]) -> str:
    """The confusion matrix as a Markdown table: injected kind against the cause that came first."""
    firsts = sorted({one.first for one in outcomes})
    lines = [
        "| injected | right | " + " | ".join(f"`{name}`" if name != NOTHING else "none" for name in firsts) + " |",
        "| --- | --- |" + " --- |" * len(firsts),
    ]
    for kind in dict.fromkeys(one.kind for one in outcomes):
        mine = [one for one in outcomes if one.kind == kind]
        counts = Counter(one.first for one in mine)
        cells = " | ".join(str(counts[name]) if counts[name] else "" for name in firsts)
        lines.append(f"| {kind} | {sum(one.is_right for one in mine)}/{len(mine)} | {cells} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2, help="trainings of each kind (%(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="first seed (%(default)s)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be repeated")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training in each run (%(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="keep the recordings there")
    parser.add_argument("--quick", action="store_true", help="one short healthy training: does it still run?")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE", help="write the confusion matrix there")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every training, not only the wrong ones")
    options = parser.parse_args()
    kinds = options.kind or list(KINDS)
    if options.quick:
        kinds, options.draws, options.seconds = ["healthy"], 1, 2.0
    outcomes: list[Outcome] = []
    left_out: dict[str, str] = {}
    for seed in range(options.first, options.first + options.draws):
        for kind in kinds:
            if kind in left_out:
                continue
            try:
                one = run_one(kind, seed, seconds=options.seconds, keep=options.keep)
            except CannotLimit as error:
                left_out[kind] = str(error)
                continue
            outcomes.append(one)
            if options.verbose or not one.is_right:
                mark = "right" if one.is_right else "WRONG"
                said = f"{one.verdict}, {one.found[:4]} {one.bottleneck}"
                print(f"{mark}  {kind} {seed} ({one.name}): {said}", flush=True)
    right = sum(one.is_right for one in outcomes)
    limits = [one for one in outcomes if one.wanted_bottleneck]
    print(matrix(outcomes))
    print(f"first cause right: {right} of {len(outcomes)}")
    print(f"bottleneck right: {sum(one.bottleneck == one.wanted_bottleneck for one in limits)} of {len(limits)}")
    for kind, why in left_out.items():
        print(f"left out: {kind}: {why}")
    if options.markdown:
        Path(options.markdown).write_text(_page(outcomes, left_out))
    if options.json:
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            "machine": machine_facts(),
            "settings": {"draws": options.draws, "first": options.first, "seconds": options.seconds},
            "right": right,
            "runs": [asdict(one) | {"is_right": one.is_right} for one in outcomes],
            "left_out": left_out,
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _page(outcomes: list[Outcome], left_out: dict[str, str]) -> str:
    right = sum(one.is_right for one in outcomes)
    lines = [
        "# How often the first cause is right",
        "",
        "Written by `benchmarks/run_score.py`: real trainings, drawn at random, with a cause injected for real, under",
        "`headrace run`. A row is what was injected, a column the cause that was named first.",
        "",
        matrix(outcomes),
        "",
        f"Right: {right} of {len(outcomes)}.",
        *(f"Left out: {kind} ({why})." for kind, why in left_out.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
