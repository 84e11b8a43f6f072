"""How right is `headrace run` on training scripts that other people wrote?

`run_world.jsonl` names the repository, the revision and the command of each, what `world/data.py` makes for it to read,
the truth, what was said and what came of doing it. The scripts are not ours, so they are no part of this repository:
FOLDER holds the checkouts, one folder for each repository by its name. They run as they are; a case lists its patches.

The truth is measured without Headrace, by timers (`world/timers/`). The first advice of a report is done, and both run
in turns (A B A B): does its gain come? Needs a machine of its own. Without FOLDER, what is written down is judged.

python benchmarks/run_world.py FOLDER --only timm-jpeg --out reports      # measure, run, judge, write down
python benchmarks/run_world.py --markdown docs/reference/run-score.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE, CASES = Path(__file__).resolve().parent, Path(__file__).resolve().with_suffix(".jsonl")
Case = dict[str, Any]
_KEPT = ("cause", "share", "severity", "confidence")
_DATA = {"loader_throughput", "batch_lockstep", "straggler_sample"}
_LOSS = re.compile(r"loss\W{1,6}(-?\d[\d.]*(?:e[+-]?\d+)?)", re.IGNORECASE)
_GAIN = re.compile(r"about ([\d.]+) ± ([\d.]+) times")
_SURE, _SMALL, _NEAR = 0.10, 0.04, 0.05  # worth a finding; may be one; as large as the largest, as far as one can tell
_FULL, _BOUND = 0.9, 0.25  # of the cores: none free is right as well; of the time, waited for data: a data-bound run
_NOISE = 0.03  # of a gain: two runs of the same script


@dataclass(frozen=True)
class Judged:
    """What was said of one script, held against the truth."""

    case: Case
    verdict: str  # right, partly, wrong
    why: str
    advice: str  # what was advised, told and measured
    did_come: bool | None  # the gain; None: nothing could be done, or nothing was told
    is_within: bool | None  # the gain, in the interval that was told; None: none was


def execute(
    folder: Path,
    case: Case,
    added: Sequence[str] = (),
    *,
    said: Path | None = None,
    flags: Sequence[str] = (),
    timers: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script of a case to its end, under `headrace run` if `said` names its directory, or under our timers."""
    launcher = case.get("launcher", [])
    command = [str(Path(sys.executable).parent / launcher[0]), *launcher[1:]] if launcher else []
    texts = json.dumps([[*case["run"], *added], case.get("env", {})])
    for name, value in (("data", f"{folder}/generated"), ("folder", str(folder)), ("here", str(HERE / "world"))):
        texts = texts.replace(f"{{{name}}}", value)
    script, own = json.loads(texts)
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **own, **(timers or {})}
    if timers is not None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE / "world/timers"), env.get("PYTHONPATH", "")]))
    if said is not None:
        shutil.rmtree(said, ignore_errors=True)
        ours = [sys.executable, "-m", "headrace", "run", *flags, "--out", str(said), "--json", f"{said}.json"]
        command = [*ours, *(["--", *command] if launcher else []), *script]
    else:
        command = [*(command or [sys.executable]), *script]
    where = folder / case["in"]
    child = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=400, check=False)
    if child.returncode != case.get("exit_code", 0):
        raise RuntimeError(f"{case['name']} ended with {child.returncode}: {(child.stdout + child.stderr)[-1500:]}")
    return child


def losses_of(child: subprocess.CompletedProcess[str]) -> list[str]:
    """The losses that a script printed, wherever; not what our report says."""
    script_said, mark, report = child.stderr.rpartition("headrace run: ")
    return _LOSS.findall(child.stdout + (script_said or ("" if mark else report)))


def run(folder: Path, case: Case, change: dict[str, Any], said: Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """Run a script under our timers, or under `headrace run`: what was measured or said, and the losses it printed."""
    if said is not None:
        child = execute(folder, case, change.get("add", ()), said=said)
        _, mark, report = child.stderr.rpartition("headrace run: ")
        Path(f"{said}.txt").write_text(mark + report)
        return dict(json.loads(Path(f"{said}.json").read_text())), losses_of(child)
    outcome = Path(tempfile.mkdtemp()) / "times"
    timers = {"WORLD_TIMES": str(outcome), "WORLD_CHANGE": json.dumps(change)}
    child = execute(folder, case, change.get("add", ()), timers=timers)
    ranks = [json.loads(line) for line in outcome.read_text().splitlines()]
    return max(ranks, key=lambda one: int(one["steps"])), losses_of(child)


def measure(folder: Path, case: Case, out: Path, *, is_known: bool) -> None:
    """Write into a case its truth, what `headrace run` says, and what its first advice brings if it is done."""
    before, losses = (case["truth"], case.get("losses", [])) if is_known else run(folder, case, {})
    document, their_losses = run(folder, case, {}, out / case["name"])
    case["truth"] = {key: round(value, 4) if isinstance(value, float) else value for key, value in before.items()}
    case["losses"] = losses if case.get("is_seeded", True) else []
    case["said"] = {
        "verdict": document["verdict"],
        "findings": [{**{key: one[key] for key in _KEPT}, "fix": one["fix"][:2]} for one in document["findings"]],
        "has_same_losses": case["losses"] == their_losses if case["losses"] else None,
    }
    case.setdefault("done", {})
    if (found := change_of(case)) and not (is_known and found[0] in case["done"]):
        gains = list[float]()
        while len(gains) < 2 or (len(gains) < 4 and max(gains) > 1.08 * min(gains)):
            before = run(folder, case, {})[0] if gains or is_known else before
            gains.append(round(gain_of(before, run(folder, case, found[1])[0], found[1]), 3))
        case["done"][found[0]] = gains


def gain_of(before: dict[str, Any], after: dict[str, Any], change: dict[str, Any]) -> float:
    """How many times as fast a script became; by the advice on a loader, so without what its evaluations saved."""
    whole_s, other_s = before["wall_s"], after["wall_s"]
    if not {"label", "persistent_workers"} & {*change, *change.get("loader", ())}:
        other_s += whole_s * before["evaluation_share"] - other_s * after["evaluation_share"]
    return float(whole_s / other_s)


def change_of(case: Case) -> tuple[str, dict[str, Any]] | None:
    """What to change in a script to do what is advised first; None where that cannot be done by options and timers."""
    options, findings = case.get("options", {}), case["said"]["findings"]
    advice = "".join(findings[0]["fix"][:1]) if findings else ""
    if match := re.search(r"num_workers=(\d+)", advice):
        if "num_workers" in options:
            return match[0], {"add": [options["num_workers"], match[1]]}
        return match[0], {"loader": {"num_workers": int(match[1])}, "where": options.get("where")}
    if "persistent_workers=True" in advice and not advice.startswith("evaluate"):
        return "persistent_workers=True", {"loader": {"persistent_workers": True}}
    if "twice as fast" in advice:
        part = re.search(r"instead of (Pillow)|cheaper [a-z]+ \((\w+)\)", advice)
        name = (part[1] or part[2]) if part else "samples"
        return f"{name} at half the cost", {"half": name}
    if "evaluate less often" in advice and "evaluation" in options:
        return options["evaluation"]["label"], options["evaluation"]
    return None


def expected_of(case: Case) -> tuple[dict[str, float], set[str]]:
    """What was lost to what, and which first causes are right: one rule for all scripts."""
    truth = case["truth"]
    losses = {"data": truth["wait_share"] - truth["first_waits_share"], "epoch_start": truth["first_waits_share"]}
    losses |= {"evaluation": truth["evaluation_share"], "checkpoint": truth["save_share"]}
    if case.get("exit_code"):
        return losses, {"fatal"}
    largest = max(losses.values())
    first = {name for name, share in losses.items() if share >= max(_SMALL, largest - _NEAR)}
    first |= {"none"} if largest < _SURE else set()
    first |= {"evaluation"} if not truth["batches"] else set()  # no loader: what is between its steps is not known
    return losses, first | ({"cpu_contended"} if truth["cores_busy"] >= _FULL else set())


def judge(case: Case) -> Judged:
    losses, first = expected_of(case)
    findings, faults = case["said"]["findings"], list[str]()

    def kind(one: Case) -> str:
        return "fatal" if one["severity"] == "fatal" else "data" if one["cause"] in _DATA else str(one["cause"])

    named = kind(findings[0]) if findings else "none"
    if named not in first:
        faults.append(f"first {named}, not {' or '.join(sorted(first))}")
    for one in findings:
        if one["confidence"] == "certain" and kind(one) in losses and case["truth"]["batches"]:
            # time without a core is part of what is waited for data, on full cores
            kinds = {kind(one), "cpu_contended"} if kind(one) == "data" and "cpu_contended" in first else {kind(one)}
            told, lost = sum(other["share"] for other in findings if kind(other) in kinds), losses[kind(one)]
            if lost < _SMALL or abs(told - lost) > 2 * _NEAR:
                word = "certain" if lost < _SMALL else "share"
                faults.append(f"{word} of {one['cause']} {told:.0%}, {lost:.0%} measured")
    if case["said"]["has_same_losses"] is False:
        faults.append("other losses than without us")
    advice, did_come, is_within = "", None, None
    if (change := change_of(case)) and (gains := case["done"].get(change[0])):
        measured = median(gains)
        advice = f"{change[0]}: {measured:.2f} measured ({min(gains):.2f} to {max(gains):.2f})"
        if match := _GAIN.search(findings[0]["fix"][0]):
            told, error = float(match[1]), float(match[2])
            # a gain that could as well be none cannot fail to come: it is shown, and does not count
            did_come = measured >= told - error - _NOISE if told - error - _NOISE > 1 else None
            advice += f", {told:.2f} ± {error:.2f} told"
            is_within = abs(measured - told) <= error + _NOISE
            if measured > told + error + _NOISE:
                faults.append(f"interval too narrow: {advice}")
        else:  # what is lost is told, and a part of it goes away
            told = 1 / (1 - change[1].get("goes", 1.0) * findings[0]["share"])
            did_come = measured >= 1 + (told - 1) / 2
            advice += f", up to {told:.2f} by its share"
        if did_come is False:
            faults.append(f"its gain does not come: {advice}")
    is_wrong = any(fault.startswith(("first", "certain", "its", "other")) for fault in faults)
    return Judged(
        case, "wrong" if is_wrong else "partly" if faults else "right", "; ".join(faults), advice, did_come, is_within
    )


def table(judged: list[Judged]) -> str:
    rows = ["| script | what is true | what `run` says | the first advice, done | |", "| --- | --- | --- | --- | --- |"]
    for one in judged:
        case, losses = one.case, expected_of(one.case)[0]
        said = [f"{each['cause']} {each['share']:.0%} {each['confidence']}" for each in case["said"]["findings"][:3]]
        parts = [f"{name} {share:.0%}" for name, share in losses.items() if share >= 0.01]
        if not case["truth"]["batches"]:
            parts = ["ends with an error" if case.get("exit_code") else "no DataLoader"]
        true = f"{', '.join(parts) or 'hardly a wait'}; cores {case['truth']['cores_busy']:.0%} busy"
        rows.append(f"| {case['name']}, {case['source']} | {true} | {'; '.join([case['said']['verdict'], *said])} | ")
        rows[-1] += f"{one.advice} | {one.verdict}{': ' * bool(one.why)}{one.why} |"
    counts, came = Counter(one.verdict for one in judged), [one.did_come for one in judged if one.did_come is not None]
    data = [one.did_come for one in judged if one.did_come is not None and expected_of(one.case)[0]["data"] >= _BOUND]
    is_first = sum("first " not in one.why for one in judged)
    within = [one.is_within for one in judged if one.is_within is not None]
    same = Counter(one.case["said"]["has_same_losses"] for one in judged)
    rows += ["", f"First cause right: {is_first} of {len(judged)}; all right: {counts['right']}. Exit codes kept, "]
    rows[-1] += f"losses in {same[True]} of {same[True] + same[False]} that print some and set a seed. Advice done: "
    rows[-1] += f"its gain came in {sum(came)} of {len(came)}, of them data-bound {sum(data)} of {len(data)}; "
    rows[-1] += f"it lay in the interval that was told in {sum(within)} of {len(within)}."
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="the checkouts")
    parser.add_argument("--quick", action="store_true", help="run nothing: judge what is written down")
    parser.add_argument("--only", default="", help="only this one")
    parser.add_argument("--again", action="store_true", help="keep the truth that is known: only `headrace run`")
    parser.add_argument("--out", type=Path, default=Path("world-reports"), help="keep reports and recordings there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table there, below its own heading")
    options = parser.parse_args()
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    chosen = [one for one in cases if options.only in ("", one["name"])]
    for case in chosen if options.folder and not options.quick else ():
        from world.data import prepare

        options.out.mkdir(parents=True, exist_ok=True)
        prepare(options.folder.resolve(), case)
        measure(options.folder.resolve(), case, options.out.resolve(), is_known=options.again and "said" in case)
        CASES.write_text("".join(json.dumps(one) + "\n" for one in cases))
    judged = [judge(one) for one in chosen if "said" in one]
    print(table(judged))
    if options.markdown:
        text, _, _ = options.markdown.read_text().partition("| script |")
        options.markdown.write_text(f"{text}{table(judged)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
