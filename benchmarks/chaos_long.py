"""Are any samples lost, repeated or late among a thousand faults, and is anything left behind?

Draws loaders as `tests/chaos` does (data set, backend, start method, workers, batch size: a function of the draw's
number), lets faults strike each of them, and goes on until enough have struck. `--jobs` draws run at a time, each in a
session of its own with a /dev/shm of its own where the machine allows that, so that none is blamed for what another one
leaves. One table at the end; exit code 1 where anything was lost, repeated, out of order, damaged, hung or left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from tests.doctor.chaos.draws import draw_settings

from headrace.doctor.chaos import ChaosReport, run_chaos
from probes import machine_facts

_FAULTS_A_DRAW = 36


@dataclass
class Summary:
    """What became of all draws so far."""

    totals: Counter[str] = field(default_factory=Counter)
    problems: dict[str, int] = field(default_factory=dict)  # of the last draw: their names
    kinds: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)  # backend and start method: faults
    worst_waits_s: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    bad: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, report: ChaosReport) -> None:
        totals = report.totals()
        self.totals.update(totals)
        self.problems = report.problems()
        self.totals["draws"] += 1
        self.ways[f"{report.settings.backend}, {report.subject.start_method}"] += totals["faults"]
        self.skipped.update(report.subject.skipped)
        for kind, figures in report.kinds().items():
            self.kinds[kind.value] += figures.injected
            worst = max(self.worst_waits_s.get(kind.value, 0.0), figures.worst_wait_s)
            self.worst_waits_s[kind.value] = round(worst, 3)
        if not report.is_clean:
            verdicts = [str(verdict) for verdict in report.verdicts if not verdict.is_clean]
            stacks = [facts.stacks[-4000:] for facts in report.rounds if facts.stacks]
            self.bad.append({"draw": number, "verdicts": verdicts, "left": list(report.left), "stacks": stacks})

    def add_error(self, number: int, error: BaseException) -> None:
        """A draw that could not even run."""
        self.totals["draws"] += 1
        self.totals["errors"] += 1
        self.bad.append({"draw": number, "verdicts": [repr(error)], "left": [], "stacks": []})

    @property
    def is_clean(self) -> bool:
        return not self.bad

    def lines(self) -> list[str]:
        totals = self.totals
        lines = [
            f"{totals['faults']} faults in {totals['draws']} draws, {totals['delivered']} samples delivered, "
            f"{totals['quarantined']} quarantined",
            "by kind: " + ", ".join(f"{kind} {number}" for kind, number in self.kinds.most_common()),
            "by backend and start method: " + ", ".join(f"{way} {number}" for way, number in self.ways.most_common()),
            "worst waits: " + ", ".join(f"{kind} {s:.2f} s" for kind, s in sorted(self.worst_waits_s.items())),
            ", ".join(f"{totals[name]} {name.replace('_', ' ')}" for name in self.problems),
        ]
        lines += [f"left out: {kind}, {reason}" for kind, reason in self.skipped.items()]
        for one in self.bad:
            lines += [f"draw {one['draw']}: {'; '.join([*one['verdicts'], *one['left']])}", *one["stacks"]]
        return lines


def run_draw(number: int, most: int, patience: float) -> ChaosReport:
    settings = draw_settings(number, num_faults=most)
    return run_chaos(replace(settings, timeout_s=settings.timeout_s * patience))


def run_draws(options: argparse.Namespace, summary: Summary) -> None:
    """Run draws side by side until enough faults have struck, or the time is over."""
    numbers, deadline = count(options.first), time.monotonic() + options.seconds
    running: dict[Future[ChaosReport], tuple[int, int]] = {}
    with ThreadPoolExecutor(options.jobs, thread_name_prefix="headrace-chaos") as threads:
        while True:
            promised = summary.totals["faults"] + sum(most for _, most in running.values())
            while len(running) < options.jobs and promised < options.num_faults and time.monotonic() < deadline:
                most = min(_FAULTS_A_DRAW, options.num_faults - promised)
                number = next(numbers)
                running[threads.submit(run_draw, number, most, options.patience)] = (number, most)
                promised += most
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED)[0]:
                number, _ = running.pop(done)
                error = done.exception()
                if error is not None:
                    summary.add_error(number, error)
                else:
                    summary.add(number, done.result())
                mark = "clean" if error is None and done.result().is_clean else "NOT CLEAN"
                print(f"draw {number}: {mark}, {summary.totals['faults']} faults so far", file=sys.stderr, flush=True)


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=max(1, cores // 2), help="draws at a time (%(default)s)")
    parser.add_argument("--num-faults", type=int, default=1000, help="go on until so many struck (%(default)s)")
    parser.add_argument("--first", type=int, default=1000, help="number of the first draw (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no draw after this long (%(default)g)")
    parser.add_argument(
        "--patience", type=float, default=2.0, help="times the age past which a sample counts as hanging (%(default)g)"
    )
    parser.add_argument("--quick", action="store_true", help="a few faults: does it still run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures and machine facts there")
    options = parser.parse_args()
    if options.quick:
        options.num_faults, options.jobs = 8, min(2, options.jobs)
    summary, started = Summary(), time.monotonic()
    run_draws(options, summary)
    elapsed_s = round(time.monotonic() - started, 1)
    print("\n".join([*summary.lines(), f"{elapsed_s} s, {options.jobs} jobs on {cores} cores"]))
    if options.json:
        document = {
            "schema": "headrace/chaos-long/1",
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine_facts(),
            "settings": {"jobs": options.jobs, "first": options.first, "patience": options.patience},
            "elapsed_s": elapsed_s,
            "is_clean": summary.is_clean,
            "totals": dict(summary.totals),
            "kinds": dict(summary.kinds),
            "ways": dict(summary.ways),
            "worst_waits_s": summary.worst_waits_s,
            "skipped": summary.skipped,
            "bad": summary.bad,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if summary.totals["faults"] < options.num_faults:
        print(f"fewer faults than asked for: {summary.totals['faults']} of {options.num_faults}", file=sys.stderr)
        return 1
    return 0 if summary.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
