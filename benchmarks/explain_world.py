"""How right is `headrace explain` on logs that other people published?

`explain_world.jsonl` says of each log where it comes from, what a person concludes on reading it, and the same in
figures. The logs are not ours, so they are not part of this repository: they lie at LOGS/FOLDER/ID.log, and `--fetched`
cuts them out of bare clones of the repositories that they come from. Prints a line a log, what was expected beside what
was said, and the sums; `--markdown` writes that list into a page, below its text.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
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
_NOTHING = {"compute_bound", "healthy", "compute_bound/healthy", "none", "cannot_know", "unknown"}
_TRUTH = Path(__file__).with_suffix(".jsonl")
_PATH = re.compile(r"/(?:home|root|Users|work|mnt|media)/[^\s;|]*")  # of somebody's machine: no part of the list
_SOURCE = re.compile(r"([^/]+)/([^@]+)@([^:]+):([^#]+)(?:#last (\d+) lines|#L(\d+)-L(\d+)|#first (\d+) bytes)?$")


@dataclass(frozen=True)
class Judged:
    """One log: what was said, and whether that is right, partly right, wrong or nothing."""

    entry: dict[str, Any]
    verdict: str
    said: str
    why: str


def judge(logs: Path, entry: dict[str, Any]) -> Judged:
    try:
        findings = explain_logs([str(logs / entry["folder"] / f"{entry['id']}.log")])
    except UnusableInput:
        # right where the person concludes nothing either
        is_right = not {"none", "cannot_know"}.isdisjoint(_wanted(entry))
        is_right &= not any(entry["expected"].get(name) for name in ("step_s", "epoch_s"))
        return Judged(entry, "right" if is_right else "silent", "refused", "")
    except Exception as error:
        return Judged(entry, "wrong", f"{type(error).__name__}: {error}", "an error of our own")
    if entry["kind"] == "timing" or not str(entry["expected"].get("first_cause")).startswith(("crash", "none")):
        return _judge_timing(entry, findings)
    return _judge_ending(entry, findings)


def _judge_timing(entry: dict[str, Any], findings: Findings) -> Judged:
    expected, said, faults = entry["expected"], said_of(findings), list[str]()
    first = findings.findings[0] if findings.findings else None
    wants = _wanted(entry)
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
        faults.append(f"{first.cause.value} {first.confidence.value}, not {want}")
    figures, missing = findings.figures, list[str]()
    # a time of an epoch is held against a figure only where that is one, too
    spans = {name: span for name in ("step_s", "epoch_s", "waiting_share") if (span := expected.get(name))}
    if not any("lines of epochs" in fact.en for fact in findings.facts):
        spans.pop("epoch_s", None)
    for name, span in spans.items():
        if name == "waiting_share":
            value, others = figures.get("wait_share"), list[float]()
            ok = [(one[0] - 0.05, one[1] + 0.05) for one in (span, expected.get("steady_share")) if one]
        else:  # the mean, what is typical, or the mean without its wait
            value = figures.get("step_mean_s", figures.get("step_typical_s"))
            others = [figures.get("step_typical_s", 0.0), (value or 0.0) * (1 - figures.get("wait_share", 0.0))]
            ok = [(0.85 * span[0] - 1e-3, 1.15 * span[1] + 1e-3)]
        if value is None:
            missing.append(f"no {name}")
        elif not any(low <= one <= high for one in (value, *others) for low, high in ok):
            faults.append(f"{name} {value:.3g}, not {span[0]:.3g} to {span[1]:.3g}")
    is_certain = any("certain" in fault for fault in faults)
    if not faults and not missing:
        return Judged(entry, "right", said, "")
    if not faults:
        return Judged(entry, "partly", said, "; ".join(missing))
    is_wrong = is_certain or any(word in fault for word in ("_s ", "_share ", "where") for fault in faults)
    return Judged(entry, "wrong" if is_wrong else "partly", said, "; ".join([*faults, *missing]))


def _wanted(entry: dict[str, Any]) -> list[str]:
    expected = entry["expected"]
    return [str(expected.get("first_cause", "cannot_know")), *expected.get("first_cause_also_ok", [])]


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
    parser.add_argument("logs", type=Path, metavar="LOGS", help="folder with the logs, at FOLDER/ID.log")
    parser.add_argument("--fetched", type=Path, metavar="CLONES", help="first cut them out of bare clones OWNER+NAME")
    parser.add_argument("--quick", action="store_true", help="a few logs: does it still run?")
    parser.add_argument("--folder", default="", help="only that folder")
    parser.add_argument("--only", default="", help="only ids that hold this")
    parser.add_argument("--bad", action="store_true", help="print only those that are not right")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the list there")
    options = parser.parse_args()
    entries = [json.loads(line) for line in _TRUTH.read_text().splitlines()[: 5 if options.quick else None]]
    entries = [one for one in entries if options.only in one["id"] and options.folder in one["folder"]]
    for one in entries if options.fetched else ():
        cut_out(one, options.fetched, options.logs)
    judged = [judge(options.logs, one) for one in entries]
    for one in judged:
        if not options.bad or one.verdict != "right":
            want = {key: value for key, value in one.entry["expected"].items() if value not in (None, [])}
            print(
                f"{one.verdict:7}{one.entry['id']}\n         said {one.said}\n         want {want}\n         {one.why}"
            )
    for folder in dict.fromkeys(one.entry["folder"] for one in judged):
        counts = Counter(one.verdict for one in judged if one.entry["folder"] == folder)
        print(f"{folder}: {counts.total()} logs, {dict(counts)}")
    counts = Counter(one.verdict for one in judged)
    print(f"{len(judged)} logs of {len({one.entry['project'] for one in judged})} projects: {dict(counts)}")
    if options.markdown:
        head = options.markdown.read_text().partition("| source |")[0] if options.markdown.exists() else ""
        options.markdown.write_text(head + "\n".join(_rows(judged)) + "\n")
    return 0


def cut_out(entry: dict[str, Any], clones: Path, logs: Path) -> None:
    """Write a log as it was published, out of a clone of its repository: the whole file, or the part that is named."""
    match = _SOURCE.match(entry["source"])
    if match is None:
        raise SystemExit(f"no source: {entry['source']}")
    owner, name, revision, path, last, first, end, size = match.groups()
    found = sorted(clones.glob(f"{owner}+{name}/**/HEAD"))
    if not found:
        raise SystemExit(f"no clone of {owner}/{name} in {clones}")
    show = ["git", f"--git-dir={found[0].parent}", "show", f"{revision}:{path}"]
    text = subprocess.run(show, capture_output=True, check=True).stdout
    lines = text.split(b"\n")
    if last:
        text = b"\n".join(lines[-int(last) - 1 :])
    elif first:
        text = b"\n".join(lines[int(first) - 1 : int(end)]) + b"\n"
    target = logs / entry["folder"] / f"{entry['id']}.log"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text[: int(size)] if size else text)


def _rows(judged: list[Judged]) -> list[str]:
    def cell(text: object) -> str:
        return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")

    head = ["| source | what a person concludes | what `explain` says | |", "| --- | --- | --- | --- |"]
    cells = [[one.entry["source"], one.entry["person"], _PATH.sub("…", one.said), one.verdict] for one in judged]
    return head + [f"| {' | '.join(map(cell, row))} |" for row in cells]


if __name__ == "__main__":
    sys.exit(main())
