"""Is what `headrace run` says would help what it brings? Predicted, done, measured, on real small trainings.

Each case is drawn: a training whose samples sleep (more workers help) or compute (a faster decoder helps), too slow for
its step by a drawn factor. It runs under `headrace run`, which names a gain with its error; then what it names is done
(so many workers; half of the computing) and the training runs again. The measured gain is the ratio of the two times
of the training, without the start of its epoch. It hits if it lies within the predicted error. With `--replay` the
first run measures its ceiling.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

KINDS = ("more_workers", "faster_decode")
_BATCH = 4


def train(spec: dict[str, Any]) -> None:
    """Train as the spec says: it knows nothing of Headrace."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Samples(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return int(spec["steps"]) * _BATCH

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(spec["sleep_s"])
            end = time.process_time() + spec["burn_s"]
            while time.process_time() < end:
                pass
            return torch.full((16,), float(index))

    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in DataLoader(Samples(), batch_size=_BATCH, num_workers=spec["workers"]):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(spec["step_s"])


def draw(rng: random.Random, kind: str, steps: int) -> dict[str, Any]:
    """Draw a training that is too slow for its step."""
    step_s, deficit = rng.uniform(0.01, 0.03), rng.uniform(1.8, 4.0)
    workers = rng.choice([1, 2, 3]) if kind == "more_workers" else 1
    sample_s = step_s * deficit * workers / _BATCH
    is_sleep = kind == "more_workers"
    return {
        "kind": kind,
        "workers": workers,
        "step_s": step_s,
        "sleep_s": sample_s if is_sleep else 0.0,
        "burn_s": 0.0 if is_sleep else sample_s,
        "steps": steps,
    }


def run(spec: dict[str, Any], *, replay: bool = False) -> dict[str, Any]:
    """Run a training under `headrace run` and return its findings."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "headrace", "-q", "run", "--out", f"{folder}/run"]
        command += ["--replay"] if replay else []
        command += [str(Path(__file__).resolve()), "--train", json.dumps(spec)]
        subprocess.run(command, check=True, capture_output=True)
        return dict(json.loads(Path(folder, "run", "findings.json").read_text(encoding="utf-8")))


def check(spec: dict[str, Any], *, replay: bool) -> dict[str, Any]:
    """Predict, do, measure."""
    before = run(spec, replay=replay)
    figures = next((one["figures"] for one in before["findings"] if f"{spec['kind']}_gain" in one["figures"]), None)
    result: dict[str, Any] = {"spec": spec, "replay": replay, "first_cause": _first(before)}
    if figures is None:
        return {**result, "withheld": True}
    gain, error = figures[f"{spec['kind']}_gain"], figures[f"{spec['kind']}_gain_error"]
    if spec["kind"] == "more_workers":
        changed = {**spec, "workers": int(figures["more_workers"])}
    else:
        changed = {**spec, "burn_s": spec["burn_s"] / 2}
    after = run(changed)
    measured = _step_s(before) / _step_s(after)
    return {
        **result,
        "workers_then": changed["workers"],
        "predicted": round(gain, 3),
        "error": round(error, 3),
        "measured": round(measured, 3),
        "hit": bool(abs(measured - gain) <= error),
        "off": round(measured / gain - 1, 3),
    }


def _step_s(found: dict[str, Any]) -> float:
    """Return the seconds of a step, with its wait: of all that is neither starting, ending nor a replay."""
    outside = {"startup", "epoch_start", "ending", "replay"}
    rows = [row for row in found["times"] if row["activity"] not in outside]
    waits = next(row["count"] for row in rows if row["activity"] == "wait")
    return sum(float(row["seconds"]) for row in rows) / int(waits)


def _first(found: dict[str, Any]) -> str:
    return str(found["findings"][0]["cause"]) if found["findings"] else ""


def main() -> None:
    """Draw the cases, check each, and print how many predictions held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", metavar="SPEC", help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: both")
    parser.add_argument("--cases", type=int, default=6, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--replay", action="store_true", help="let the first run measure its ceiling")
    parser.add_argument("--quick", action="store_true", help="one short case of each: does it still run?")
    parser.add_argument("--json", metavar="FILE", help="store the result there; a file that is there is added to")
    args = parser.parse_args()
    if args.train:
        train(json.loads(args.train))
        return
    results = []
    for kind in args.kind or KINDS:
        rng = random.Random(f"{kind} {args.seed}")
        for _ in range(1 if args.quick else args.cases):
            result = check(draw(rng, kind, 40 if args.quick else args.steps), replay=args.replay)
            results.append(result)
            print({name: value for name, value in result.items() if name != "spec"}, flush=True)
    if args.json:
        _store(Path(args.json), results)


def _store(path: Path, results: list[dict[str, Any]]) -> None:
    from probes import machine_facts

    known = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    results = [*known, *results]
    told = [one for one in results if not one.get("withheld")]
    document = {
        "question": "is what headrace run says would help what it brings?",
        "machine": machine_facts(),
        "cases": len(results),
        "withheld": len(results) - len(told),
        "within_error": sum(one["hit"] for one in told),
        "results": results,
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
