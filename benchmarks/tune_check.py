"""Does `headrace tune` find what an exhaustive sweep finds, in a tenth of its time?

For each scenario: a sweep over all numbers of workers, both backends and three depths of prefetching, each measured for
some seconds; then `headrace tune` with a tenth of the time that took; then what it chose against the sweep's best, in
turn, round by round. The headline is the median of the ratios within rounds, with the least and the greatest.

    python benchmarks/tune_check.py --json benchmarks/results/tune_check.json            # all of it, about 40 minutes
    python benchmarks/tune_check.py --only lidar,one_lock --json FILE                    # adds to what FILE holds
    python benchmarks/tune_check.py --quick                                              # does it still run?
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from torch.utils.data import Dataset

from headrace.tuning import Candidate, ProbeHost
from workloads import CT, SA1B, WORKLOADS, Lidar, SlowDisk, Small

_BYTES = bytes(1 << 20)
_SCHEMA = "headrace/benchmark/1"
_COMMAND_S = 3.0  # of a command that starts and ends
_SLEEPING = (0, 1, 2, 3, 4, 6, 8, 12, 16)
_COMPUTING = (0, 1, 2, 3, 4)
_PER_WORKER = (None, 1, 4)  # batches ahead: as the loader chooses, or so many a worker


class Scenario(NamedTuple):
    title: str
    batch_size: int
    workers: tuple[int, ...]


SCENARIOS = {
    **{name: Scenario(WORKLOADS[name].title, WORKLOADS[name].batch_size, _COMPUTING) for name in WORKLOADS},
    "slow_disk": Scenario("a slow disk: samples block for 20 to 40 ms", 8, _SLEEPING),
    "mixed": Scenario("a disk and a decoder: 24 ms blocked, 4 ms computing", 8, _SLEEPING),
    "one_lock": Scenario("one lock: 20 ms blocked, then 10 ms one after the other", 8, _SLEEPING),
}


# ------------------------------------------------------------------ the data sets, as `headrace tune` is told them


def sa1b() -> Dataset[Any]:
    return SA1B("quick", length=100_000)


def ct() -> Dataset[Any]:
    return CT("quick", length=100_000)


def small() -> Dataset[Any]:
    return Small("quick", length=100_000)


def lidar() -> Dataset[Any]:
    return Lidar("quick", length=100_000)


def slow_disk() -> Dataset[Any]:
    return SlowDisk(length=100_000)


class Mixed(SlowDisk):
    """A sample blocks, then computes."""

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        sample = super().__getitem__(index)
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            zlib.crc32(_BYTES)  # outside of the interpreter's lock, as decoders are
        return sample


class OneLock(SlowDisk):
    """A sample blocks by itself, then needs what only one may use at a time."""

    def __init__(self) -> None:
        super().__init__(min_s=0.02, max_s=0.02, length=100_000)
        self.lock = multiprocessing.get_context("fork").Lock()

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        sample = super().__getitem__(index)
        with self.lock:
            time.sleep(0.01)
        return sample


def mixed() -> Dataset[Any]:
    return Mixed(min_s=0.014, max_s=0.034, length=100_000)


def one_lock() -> Dataset[Any]:
    return OneLock()


# ------------------------------------------------------------------ sweep, tune, compare


def grid(scenario: Scenario) -> list[Candidate]:
    """Return all that the sweep measures."""
    found = []
    for workers in scenario.workers:
        one = Candidate(num_workers=workers, batch_size=scenario.batch_size)
        if not workers:
            found.append(one)
            continue
        both = [replace(one, backend=backend) for backend in ("process", "thread")]
        found += [replace(each, batches_ahead=more and more * workers) for each in both for more in _PER_WORKER]
    return found


def check(name: str, known: dict[str, Any], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Sweep, tune, compare; yields what is known so far, so that a run that was cut short is gone on with."""
    scenario, target = SCENARIOS[name], f"{__file__}:{name}"
    known = {"title": scenario.title, "batch_size": scenario.batch_size, "start_s": 0.0, "sweep": [], **known}
    todo = grid(scenario)[len(known["sweep"]) :: 8 if options.quick else 1]
    if todo:
        started = time.perf_counter()
        with ProbeHost(target) as host:
            known["start_s"] = known["start_s"] or time.perf_counter() - started
            for one in todo:
                found = host.run(one, _seconds(known["sweep"], one, options.seconds))
                _say(f"{name}: sweep {_brief(one)}: {found.samples_per_s:.1f}/s")
                known["sweep"].append({**asdict(one), "samples_per_s": found.samples_per_s, "took_s": found.took_s})
                yield known
    sweep_s = known["start_s"] + sum(one["took_s"] for one in known["sweep"])
    best = max(known["sweep"], key=lambda one: one["samples_per_s"])
    swept = Candidate(**{key: value for key, value in best.items() if key not in ("samples_per_s", "took_s")})

    allowed_s = max(3.0, sweep_s / 10 - _COMMAND_S)
    started = time.perf_counter()
    command = [sys.executable, "-m", "headrace", "tune", target, "--json", "--lang", "en"]
    command += ["--seconds", f"{allowed_s:.1f}", "--batch-size", str(scenario.batch_size)]
    command += ["--max-workers", str(scenario.workers[-1])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    tune_s, told = time.perf_counter() - started, json.loads(done.stdout)
    tuned = Candidate(**told["answer"]["candidate"])
    _say(f"{name}: tuned {_brief(tuned)} in {tune_s:.1f} s of {sweep_s:.0f} s; the sweep's best {_brief(swept)}")

    rounds = []
    with ProbeHost(target) as host:
        for number in range(1 if options.quick else options.rounds):
            pair = (tuned, swept) if number % 2 else (swept, tuned)
            rates = {one: host.run(one, options.seconds / 2).samples_per_s for one in pair}  # short, and many
            rounds.append([rates[tuned], rates[swept]])
            _say(f"{name}: round {number + 1}: tuned {rates[tuned]:.1f}/s, swept {rates[swept]:.1f}/s")
    ratios = [ours / theirs for ours, theirs in rounds]
    yield known | {
        "sweep_s": sweep_s,
        "best": asdict(swept),
        "tune_s": tune_s,
        "tuned": asdict(tuned),
        "is_settled": told["answer"]["is_settled"],
        "probes": len(told["probes"]),
        "why": told["why"],
        "rounds": rounds,
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "noise": max(_spread([one[place] for one in rounds]) for place in (0, 1)),
        "time_share": tune_s / sweep_s,
        "load": os.getloadavg()[1],
    }


def _seconds(swept: list[dict[str, Any]], one: Candidate, seconds: float) -> float:
    """Return how long to measure one: some seconds, and more where batches are slow."""
    slowest = min((each["samples_per_s"] for each in swept if each["samples_per_s"]), default=0.0)
    batch_s = (one.batch_size or 1) / slowest if slowest else 0.0
    return max(seconds, min(4 * seconds, 6 * batch_s))


def _spread(values: list[float]) -> float:
    """Return how far values of one candidate lie apart: the middle half's width, as a share of the median."""
    if len(values) < 3:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)


def _brief(one: Candidate) -> str:
    return f"{one.num_workers} {one.backend}" + (f", {one.batches_ahead} ahead" if one.batches_ahead else "")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Check the scenarios that are asked for, print a table, store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME,…", help=f"some of {', '.join(SCENARIOS)}")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured seconds of each configuration (5)")
    parser.add_argument("--rounds", type=int, default=9, help="of the comparison (9)")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop sweeping then; the next run goes on")
    parser.add_argument("--again", action="store_true", help="tune and compare again, with the sweep that is stored")
    parser.add_argument("--quick", action="store_true", help="one scenario, a coarse sweep: does it still run?")
    parser.add_argument("--json", metavar="FILE", help="store the result there; what it holds of other scenarios stays")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else ["one_lock"] if options.quick else list(SCENARIOS)
    options.seconds = 0.5 if options.quick else options.seconds
    results = {}
    if options.json and Path(options.json).exists():
        results = json.loads(Path(options.json).read_text(encoding="utf-8"))["scenarios"]
    began = time.monotonic()
    for name in names:
        known = results.get(name, {})
        if "ratio" in known:  # from the start, or with the sweep that is there
            known = {key: known[key] for key in ("start_s", "sweep")} if options.again else {}
        for found in check(name, known, options):
            results[name] = found
            if options.json:
                _store(Path(options.json), results, options)
            if "ratio" not in found and time.monotonic() - began > 60 * options.minutes:
                _say(f"{name}: to be gone on with")
                return
    print("| scenario | sweep | its best | tuned | in | of the best (worst to best round) | noise |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for one in (one for one in results.values() if "ratio" in one):
        print(
            f"| {one['title']} | {one['sweep_s']:.0f} s | {_brief(Candidate(**one['best']))} "
            f"| {_brief(Candidate(**one['tuned']))} | {one['tune_s']:.1f} s ({one['time_share']:.1%}) "
            f"| {one['ratio']:.1%} ({one['ratio_min']:.1%} to {one['ratio_max']:.1%}) | {one['noise']:.1%} |"
        )


def _store(path: Path, results: dict[str, Any], options: argparse.Namespace) -> None:
    from probes import machine_facts

    document = {
        "schema": _SCHEMA,
        "question": "does headrace tune find what an exhaustive sweep finds, in a tenth of its time?",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine_facts(),
        "settings": {"seconds": options.seconds, "rounds": options.rounds},
        "scenarios": results,
    }
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.rename(path)


if __name__ == "__main__":
    main()
