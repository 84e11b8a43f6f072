"""How often does `headrace run` name the right cause first, and how near is its share? Causes injected for real.

Each training is drawn at random (workers, batch, step, loader, how much of the cause) and run under `headrace run`; its
findings are compared with what was injected. Some need limits that only root may set (control groups, swap, a small
/dev/shm); those are left out, and said, where they cannot be set. Needs torch and NumPy, and a
machine on which nothing else runs meanwhile.

python benchmarks/run_score.py --draws 3                       # every kind three times
python benchmarks/run_score.py --kind checkpoint --draws 10 -v
python benchmarks/run_score.py --draws 5 --seed 1000 --minutes 20 --jobs 4 --json result.json
python benchmarks/run_score.py --draws 5 --seed 1000 --json result.json --resume    # goes on where that ended
python benchmarks/run_score.py --merge a.json b.json --json both.json --markdown docs/reference/run-score.md
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

from probes import machine_facts
from recorded_runs.kinds import KINDS, draw
from recorded_runs.limits import CannotLimit, clean_up_when_ended
from recorded_runs.one_run import CouldNotRun, Outcome, run_one
from recorded_runs.tables import matrix, page, share_table, summary, wrong_ones

Task = tuple[str, int]  # kind, seed


class Score:
    """The results so far, kept in a file after each training."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.runs: list[dict[str, Any]] = []
        self.left_out: dict[str, str] = {}
        self.merged: list[dict[str, Any]] = []  # machine and settings of each file that was put in
        self.failed: list[str] = []  # trainings that failed by themselves: they say nothing, and are shown
        self._lock = threading.Lock()
        if options.resume and options.json and Path(options.json).exists():
            before = json.loads(Path(options.json).read_text())
            self.runs, self.left_out = before["runs"], before["left_out"]
            self.failed = before["failed"]

    def has(self, task: Task) -> bool:
        return task[0] in self.left_out or any((one["kind"], one["seed"]) == task for one in self.runs)

    def add(self, outcome: Outcome) -> None:
        with self._lock:
            self.runs.append(outcome.as_json())
            if self._options.verbose or not outcome.is_right:
                mark = "right" if outcome.is_right else "WRONG"
                said = f"{outcome.verdict}, {outcome.found[:4]} {outcome.bottleneck}"
                again = f" (drawn again: {'; '.join(outcome.redrawn)})" if outcome.redrawn else ""
                print(f"{mark}  {outcome.kind} {outcome.seed} ({outcome.name}): {said}{again}", flush=True)
            self.save()

    def leave_out(self, kind: str, why: str) -> None:
        with self._lock:
            self.left_out[kind] = why
            self.save()

    def fail(self, why: str) -> None:
        with self._lock:
            self.failed.append(why)
            self.save()

    def save(self) -> None:
        if not self._options.json:
            return
        order = list(KINDS)
        self.runs.sort(key=lambda one: (order.index(one["kind"]), one["seed"]))
        options = self._options
        settings = {"draws": options.draws, "seed": options.seed, "seconds": options.seconds, "jobs": options.jobs}
        here = {"merged": self.merged} if self.merged else {"machine": machine_facts(), "settings": settings}
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            **here,
            "right": sum(one["is_right"] for one in self.runs),
            "runs": self.runs,
            "left_out": self.left_out,
            "failed": self.failed,
        }
        written = Path(options.json + ".new")
        written.write_text(json.dumps(document, indent=1) + "\n")
        written.replace(options.json)


def run_all(score: Score, tasks: Iterable[Task], options: argparse.Namespace) -> None:
    """Run what is not done yet until the time is up.

    Several at once on processors of their own; those that load what all processes share come last, one by one.
    """
    deadline = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    todo = [task for task in tasks if not score.has(task)]
    sets = _cpu_sets(options.jobs)
    free = list(sets)
    free_lock = threading.Lock()

    def run(task: Task, cpus: Sequence[int]) -> None:
        if time.monotonic() > deadline or task[0] in score.left_out:
            return
        try:
            score.add(run_one(*task, seconds=options.seconds, keep=options.keep, cpus=cpus))
        except CannotLimit as error:
            score.leave_out(task[0], str(error))
        except CouldNotRun as error:
            score.fail(str(error))

    def run_beside(task: Task) -> None:
        with free_lock:
            cpus = free.pop()
        try:
            run(task, cpus)
        finally:
            with free_lock:
                free.append(cpus)

    if options.jobs > 1:
        alone = [task for task in todo if draw(*task, seconds=options.seconds).needs_all]
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(run_beside, [task for task in todo if task not in alone]))
        todo = alone
    for task in todo:
        run(task, sets[0] if options.jobs > 1 else ())


def _cpu_sets(count: int) -> list[list[int]]:
    """So many disjoint sets of the processors that we may use."""
    cpus = sorted(os.sched_getaffinity(0))
    size = len(cpus) // count
    if size < 2 and count > 1:
        raise SystemExit(f"--jobs {count}: with {len(cpus)} processors a training would have fewer than two")
    return [cpus[number * size : (number + 1) * size] for number in range(count)]


def merge(score: Score, paths: Sequence[str]) -> list[str]:
    """Put the trainings of several result files together; returns their machines."""
    documents = [json.loads(Path(path).read_text()) for path in paths]
    score.runs = [one for document in documents for one in document["runs"]]
    score.failed = [one for document in documents for one in document["failed"]]
    known = {one["kind"] for one in score.runs}
    score.left_out = {kind: why for one in documents for kind, why in one["left_out"].items() if kind not in known}
    score.merged = [
        one
        for document in documents
        for one in document.get("merged")
        or [{"machine": document["machine"], "settings": document["settings"], "trainings": len(document["runs"])}]
    ]
    score.save()
    return [_machine(one["machine"], one["trainings"]) for one in score.merged]


def _machine(facts: dict[str, Any], count: int) -> str:
    return (
        f"{count} trainings on {facts['num_cpus_allowed']} cores ({facts['cpu']}), torch {facts['versions']['torch']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2, help="trainings of each kind (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first training of each kind (%(default)s)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be repeated")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training in each run (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="trainings at once, on processors of their own (%(default)s)"
    )
    parser.add_argument("--minutes", type=float, help="begin no training after so long")
    parser.add_argument("--resume", action="store_true", help="go on with what stands in the file of --json")
    parser.add_argument("--keep", metavar="DIR", help="keep the recordings there")
    parser.add_argument("--quick", action="store_true", help="one short healthy training: does it still run?")
    parser.add_argument("--merge", nargs="+", metavar="JSON", help="run nothing: put results together")
    parser.add_argument("--json", metavar="FILE", help="written after each training")
    parser.add_argument("--markdown", metavar="FILE", help="write the page with the confusion matrix there")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every training, not only the wrong ones")
    options = parser.parse_args()
    clean_up_when_ended()
    kinds = options.kind or list(KINDS)
    if options.quick:
        kinds, options.draws, options.seconds = ["healthy"], 1, 2.0
    score = Score(options)
    if options.merge:
        machines = merge(score, options.merge)
    else:
        seeds = range(options.seed, options.seed + options.draws)
        run_all(score, [(kind, seed) for seed in seeds for kind in kinds], options)
        machines = [_machine(machine_facts(), len(score.runs))]
    print(matrix(score.runs))
    print("\n".join(summary(score.runs)))
    print(share_table(score.runs))
    for one in wrong_ones(score.runs):
        print(f"wrong: {one}")
    for kind, why in score.left_out.items():
        print(f"left out: {kind}: {why}")
    for why in score.failed:
        print(f"failed: {why}")
    if options.markdown:
        kept = Path(options.markdown).read_text() if Path(options.markdown).exists() else ""
        _, head, world = kept.partition("\n## Scripts of other people\n")  # of run_world.py
        Path(options.markdown).write_text(page(score.runs, score.left_out, machines) + head + world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
