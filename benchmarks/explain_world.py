"""How right is `headrace explain` on logs that other people published?

Reads a collection: folders with logs as they were published and a `truth.jsonl` that says of each where it comes from,
what a person concludes on reading it, and the same in figures. The logs are not ours, so they are not part of this
repository; docs/reference/explain-world.md lists the sources, so that anybody can fetch them. Prints a line a log,
what was expected beside what was said, and the sums; `--markdown` writes that list into a page, below its text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.causes import explain_logs
from headrace.errors import UnusableInput
from headrace.model import Findings, Severity

_DATA = {"loader_throughput", "batch_lockstep", "straggler_sample"}
_CAUSES = {
    "data_waiting": _DATA,
    "straggler": {"straggler_sample", "unknown", *_DATA},
    "periodic": {"unknown", "batch_lockstep", "checkpoint", "evaluation", "logging", "straggler_sample"},
    "epoch_start": {"epoch_start"},
    "evaluation": {"evaluation"},
    "checkpoint": {"checkpoint"},
}
_NOTHING = {"compute_bound", "healthy", "compute_bound/healthy", "none", "cannot_know"}


@dataclass(frozen=True)
class Judged:
    """One log: what was said, and whether that is right, partly right, wrong or nothing."""

    entry: dict[str, Any]
    verdict: str
    said: str
    why: str


def judge(folder: Path, entry: dict[str, Any]) -> Judged:
    try:
        findings = explain_logs([str(folder / f"{entry['id']}.log")])
    except UnusableInput:
        wanted = entry["expected"]
        is_right = wanted.get("first_cause") == "cannot_know" and not wanted.get("step_s")
        return Judged(entry, "right" if is_right else "silent", "refused", "")
    except Exception as error:
        return Judged(entry, "wrong", f"{type(error).__name__}: {error}", "an error of our own")
    if entry["kind"] == "timing" or not str(entry["expected"].get("first_cause")).startswith(("crash", "none")):
        return _judge_timing(entry, findings)
    return _judge_ending(entry, findings)


def _judge_timing(entry: dict[str, Any], findings: Findings) -> Judged:
    expected, said, faults = entry["expected"], said_of(findings), list[str]()
    first = findings.findings[0] if findings.findings else None
    wants = [
        str(expected.get("first_cause", "cannot_know")),
        *expected.get("first_cause_also_ok", expected.get("also_acceptable", [])),
    ]
    want = next((one for one in wants if _fits(one, findings)), wants[0])
    if first is not None and first.severity is Severity.FATAL and any(one.startswith("crash") for one in wants):
        pass
    elif first is not None and first.severity is Severity.FATAL:
        faults.append("says that it was ended")
    elif want in _NOTHING:
        # a person sees nothing to mend: what is told beside it must be small, and never certain
        # it says itself that it does not know, or it names what the person lists as well
        named = {"unknown", *(str(stall["kind"]) for stall in expected.get("stalls") or [])}
        is_open = first is not None and first.cause.value in named
        if first is not None and not is_open and (first.share >= 0.15 or first.confidence.value == "certain"):
            faults.append(f"{first.cause.value} {first.share:.0%} {first.confidence.value} where nothing is wrong")
    elif first is None:
        faults.append(f"no {want}")
    elif not any(one.cause.value in _CAUSES.get(want, {want}) for one in findings.findings):
        faults.append(f"not {want}")
    figures, missing = findings.figures, list[str]()
    for name, key in (("step_s", "step_mean_s"), ("waiting_share", "wait_share")):
        span = expected.get(name)
        value = figures.get(key, figures.get("step_typical_s") if name == "step_s" else None)
        if span is None or span[0] is None:
            continue
        low, high = (
            (0.85 * span[0] - 1e-3, 1.15 * span[1] + 1e-3) if name == "step_s" else (span[0] - 0.05, span[1] + 0.05)
        )
        steady = expected.get("steady_share") if name == "waiting_share" else None
        if steady and value is not None and steady[0] - 0.05 <= value <= steady[1] + 0.05:
            continue
        if value is None:
            missing.append(f"no {name}")
        elif name == "step_s" and low <= figures.get("step_typical_s", value) <= high:
            continue  # typically
        elif name == "step_s" and low <= value * (1 - figures.get("wait_share", 0.0)) <= high:
            continue  # without its wait
        elif not low <= value <= high:
            faults.append(f"{name} {value:.3g}, not {span[0]:.3g} to {span[1]:.3g}")
    is_certain = any("certain" in fault for fault in faults)
    if not faults and not missing:
        return Judged(entry, "right", said, "")
    if not faults:
        return Judged(entry, "partly", said, "; ".join(missing))
    is_wrong = is_certain or any("step_s" in fault or "waiting_share" in fault or "where" in fault for fault in faults)
    return Judged(entry, "wrong" if is_wrong else "partly", said, "; ".join([*faults, *missing]))


def _fits(want: str, findings: Findings) -> bool:
    if want in _NOTHING:
        return not findings.findings
    return any(one.cause.value in _CAUSES.get(want, {want}) for one in findings.findings)


def _judge_ending(entry: dict[str, Any], findings: Findings) -> Judged:
    expected, said = entry["expected"], said_of(findings)
    fatal = [one for one in findings.findings if one.severity is Severity.FATAL]
    text = json.dumps(findings.as_json(), ensure_ascii=False).lower()
    if expected.get("first_cause") in _NOTHING:
        return Judged(entry, "wrong" if fatal else "right", said, "says that it was ended" if fatal else "")
    if not findings.findings:
        return Judged(entry, "silent", said, "nothing found")
    words = [str(word).lower() for word in expected.get("must_say", [])]
    if words and not any(word in text for word in words):
        return Judged(entry, "wrong", said, f"none of {words}")
    return Judged(
        entry, "right" if fatal or not expected.get("ended") else "partly", said, "" if fatal else "not as the end"
    )


def said_of(findings: Findings) -> str:
    figures = findings.figures
    parts = [findings.verdict.value]
    parts += [
        f"ended: {one.title.en[:80]}"
        if one.title is not None and one.severity is Severity.FATAL
        else f"{one.cause.value} {one.share:.0%} {one.confidence.value}"
        for one in findings.findings[:2]
    ]
    if "wait_share" in figures:
        parts.append(f"waits {figures['wait_share']:.1%}")
    if step_s := figures.get("step_mean_s", figures.get("step_typical_s")):
        parts.append(f"step {step_s:.3g} s")
    return "; ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few logs of each folder: does it still run?")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="logs and a truth.jsonl")
    parser.add_argument("--split", choices=("dev", "test"), help="only that half")
    parser.add_argument("--retold", action="store_true", help="also texts that were retold, not kept as published")
    parser.add_argument("--bad", action="store_true", help="only those that are not right")
    parser.add_argument("--only", default="", help="only ids that hold this")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the list there")
    options = parser.parse_args()
    judged = [
        judge(folder, entry)
        for folder in options.folders
        for line in (folder / "truth.jsonl").read_text().splitlines()[: 5 if options.quick else None]
        if line.strip()
        for entry in [json.loads(line)]
        if options.split in (None, entry.get("split")) and options.only in entry["id"]
        if options.retold or str(entry.get("text", "as published")).startswith("as published")
    ]
    for one in judged:
        if not options.bad or one.verdict != "right":
            want = {key: value for key, value in one.entry["expected"].items() if value not in (None, [])}
            print(
                f"{one.verdict:7}{one.entry['id']}\n         said {one.said}\n         want {want}\n         {one.why}"
            )
    counts = Counter(one.verdict for one in judged)
    print(f"{len(judged)} logs of {len({one.entry['project'] for one in judged})} projects: {dict(counts)}")
    if options.markdown:
        head = options.markdown.read_text().partition("| source |")[0] if options.markdown.exists() else ""
        options.markdown.write_text(head + "\n".join(_rows(judged)) + "\n")
    return 0


def _rows(judged: list[Judged]) -> list[str]:
    def cell(text: object) -> str:
        return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")

    head = ["| source | what a person concludes | what `explain` says | |", "| --- | --- | --- | --- |"]
    return head + [
        f"| {cell(one.entry['source'])} | {cell(one.entry['person'])} | {cell(one.said)} | {one.verdict} |"
        for one in judged
    ]


if __name__ == "__main__":
    sys.exit(main())
