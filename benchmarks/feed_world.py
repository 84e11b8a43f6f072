"""What does `headrace run --feed` bring to training scripts that other people wrote, and does it change anything else?

`feed_world.jsonl` names the repository, the revision and the command of each, and what was measured. Each runs once
with `python`; then in turns under `headrace run` and `headrace run --feed`. Compared with the plain run: every loss and
accuracy that was printed, stdout without its numbers, the exit code, and every tensor in the checkpoints. FOLDER holds
the checkouts, as for `run_world.py`, which this is built on.

python benchmarks/feed_world.py FOLDER --only dcgan --out reports
python benchmarks/feed_world.py --markdown docs/guides/feed.md
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from run_world import HERE, Case, execute

CASES = HERE / "feed_world.jsonl"
_NUMBER = re.compile(r"\d[\d.:,e+-]*")
_FIGURE = re.compile(r"(?:loss|acc(?:uracy)?|psnr|dice)\w*\W{1,6}(-?\d[\d.]*(?:e[+-]?\d+)?)", re.IGNORECASE)


def measure(folder: Path, case: Case, out: Path, rounds: int, *, adds: bool) -> None:
    """Write into a case what both loaders' waits were, and what differs from the plain run."""
    plain = start(folder, case)
    before = tensors(folder, case)
    case["losses"], case["rounds"] = len(figures_in(plain)), case.get("rounds", []) if adds else []
    same = dict.fromkeys(("losses", "output", "exit_code"), True) | ({"checkpoints": True} if before else {})
    for number in range(rounds):
        turn: dict[str, Any] = {"others_load": round(os.getloadavg()[0], 1)}
        for name, flags in (("torch", []), ("ours", case["feed"])):
            said = out / f"{case['name']}-{name}-{number}"
            child = start(folder, case, said=said, flags=flags)
            same["losses"] &= figures_in(child) == figures_in(plain)
            same["output"] &= shape(child.stdout) == shape(plain.stdout)
            same["exit_code"] &= child.returncode == plain.returncode
            if before:
                same["checkpoints"] &= tensors(folder, case) == before
            turn[name] = figures(said)
        case["rounds"].append(turn)
    case["same"] = same


def start(folder: Path, case: Case, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it in a clean place: some go on with what an earlier run has left."""
    for path in case.get("outputs", ()):
        shutil.rmtree(place(path), ignore_errors=True)
    return execute(folder, case, **options)


def place(path: str) -> str:
    if not path.startswith("/tmp/world-"):
        raise ValueError(f"{path}: outputs that may be removed lie in /tmp/world-…")
    return path


def figures_in(child: subprocess.CompletedProcess[str]) -> list[str]:
    """The losses and accuracies that a script printed, wherever; not what our report says."""
    script_said, mark, report = child.stderr.rpartition("headrace run: ")
    return _FIGURE.findall(child.stdout + (script_said or ("" if mark else report)))


def shape(output: str) -> list[str]:
    return [" ".join(_NUMBER.sub("#", line).split()) for line in output.splitlines()]  # some pad their figures


def tensors(folder: Path, case: Case) -> dict[str, str]:
    """A digest of all tensors in each checkpoint, whatever else is in it; of the file, if only the script reads it."""
    found = {}
    for pattern in case.get("checkpoints", ()):
        for path in sorted(glob.glob(pattern.replace("{folder}", str(folder)), recursive=True)):
            digest = hashlib.sha256()
            try:
                for tensor in _leaves(_load(path)):
                    digest.update(tensor.detach().contiguous().view(-1).numpy().tobytes())
            except ImportError:
                digest.update(Path(path).read_bytes())
            found[path] = digest.hexdigest()
    if not found and case.get("checkpoints"):
        raise ValueError(f"{case['name']} saved nothing in {case['checkpoints']}")
    return found


def _load(path: str) -> Any:
    import torch

    if path.endswith(".safetensors"):
        return importlib.import_module("safetensors.torch").load_file(path)
    return torch.load(path, map_location="cpu", weights_only=False)


def _leaves(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from _leaves(value.state_dict())
    elif isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)


def figures(said: Path) -> dict[str, Any]:
    """The waits for the training loader, as `headrace run` recorded them, and who fed each loader."""
    from headrace.model import EventKind
    from headrace.signals.recording import read_run

    document = json.loads(Path(f"{said}.json").read_text())
    loader = next(row for row in document["loaders"] if row["role"] == "training")
    run = read_run(said)
    waits = run.events_of(EventKind.WAIT)
    named = [run.name_of(int(one["pid"]), int(one["arg"])) == loader["name"] and one["value"] > 0 for one in waits]
    worst = max((int(one["duration_ns"]) for one, is_it in zip(waits, named, strict=True) if is_it), default=0)
    fed = {
        f"{row['name']}": row["by"] if row["by"] == "headrace" else row["reason"] for row in document.get("feeds", ())
    }
    return {
        "train_s": document["figures"]["train_s"],
        "batches": loader["batches"],
        "median_s": loader["wait_median_s"],
        "worst_s": worst / 1e9,
        "share": loader["wait_share"],
        "fed": fed,
    }


def table(cases: list[Case]) -> str:
    columns = (
        "script",
        "fed",
        "waits with torch's workers",
        "with ours",
        "times as fast",
        "losses",
        "output",
        "weights",
    )
    rows = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for case in cases:
        turns = case["rounds"]
        gains = [one["torch"]["train_s"] / one["ours"]["train_s"] for one in turns]
        fed = ", ".join(f"{name} {'yes' if by == 'headrace' else by}" for name, by in turns[0]["ours"]["fed"].items())
        same = case["same"]
        told = [f"{case['losses']} {_said(same['losses'])}" if case["losses"] else "none printed"]
        told.append(_said(same["output"] and same["exit_code"]))
        told.append(_said(same["checkpoints"]) if "checkpoints" in same else "none saved")
        spread = f"{median(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})"
        cells = [f"{case['name']}, {case['source']}", fed, _waits(turns, "torch"), _waits(turns, "ours"), spread, *told]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _said(is_same: bool) -> str:
    return "same" if is_same else "**other**"


def _waits(turns: list[dict[str, Any]], name: str) -> str:
    typical, worst, share = (median(one[name][key] for one in turns) for key in ("median_s", "worst_s", "share"))
    return f"{1000 * typical:.3g} ms, {1000 * worst:.3g} ms, {share:.0%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="the checkouts")
    parser.add_argument("--quick", action="store_true", help="run nothing: show what is written down")
    parser.add_argument("--only", default="", help="only this one")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--add", action="store_true", help="keep the rounds that are written down")
    parser.add_argument("--out", type=Path, default=Path("feed-reports"), help="keep reports and recordings there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table there, in place of the last")
    options = parser.parse_args()
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    chosen = [one for one in cases if options.only in ("", one["name"])]
    for case in chosen if options.folder and not options.quick else ():
        from world.data import prepare

        options.out.mkdir(parents=True, exist_ok=True)
        prepare(options.folder.resolve(), case)
        measure(options.folder.resolve(), case, options.out.resolve(), options.rounds, adds=options.add)
        CASES.write_text("".join(json.dumps(one) + "\n" for one in cases))
    shown = table([one for one in chosen if "rounds" in one])
    print(shown)
    if options.markdown:
        text = options.markdown.read_text()
        options.markdown.write_text(re.sub(r"TABLE|(?m:^\| script \|(?:.*\n)*?(?=\n))", lambda _: shown, text, count=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
