"""What does it cost the training process to watch memory, deaths and stuck workers?

A training process of 0.5 GiB with forked workers of 64 MiB each, all asleep. A minute of watching at its usual pace
(four looks a second, kill counters, pressure and its judgement once a second) is timed call by call; then what is done
only when something happened: the facts of a death, a look at a stuck worker. Every figure is processor and system time
of one thread.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from headrace.forensics import (
    DeathFacts,
    DeathWatch,
    MemoryWatch,
    Pressure,
    assess,
    describe_death,
    look_at,
    read_worker_memory,
)
from headrace.signals import StackFile, find_py_spy
from headrace.signals.system import read_pressures, read_swapped_in
from probes import machine_facts

_MIB = 1 << 20
_LOOK_S = 0.25


def sleep_with(size: int, stack_file: StackFile) -> None:
    stack_file.register(tracer_pid=os.getppid())
    kept = bytearray(b"x" * size)
    time.sleep(600)
    del kept


def timed(call: Callable[[], object], count: int) -> float:
    """Median of the seconds that a call takes."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def watch_for(seconds: float, pids: list[int]) -> dict[str, float]:
    """Watch as the guard does, on a clock that does not wait; returns what it took."""
    memory, deaths, pressure = MemoryWatch(os.getpid()), DeathWatch(0.0), Pressure()
    costs, steps = [], int(seconds / _LOOK_S)
    for step in range(steps):
        now_s = step * _LOOK_S
        start = time.perf_counter()
        memory.sample(now_s, pids)
        deaths.note(now_s)
        if step % 4 == 0:
            read_swapped_in()
            pressure = assess(memory.recent(), pressure, psi=read_pressures(("memory",), deaths.groups))
        costs.append(time.perf_counter() - start)
    return {"share_of_a_core": sum(costs) / seconds, "median_s": statistics.median(costs), "worst_s": max(costs)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a stretch is simulated (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="does it still run?")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    workers, seconds = (2, 5.0) if options.quick else (options.workers, options.seconds)
    count = 3 if options.quick else 30
    ballast = bytearray(b"x" * ((32 if options.quick else 512) * _MIB))
    context = multiprocessing.get_context("fork")
    files = [StackFile.create() for _ in range(workers)]
    processes = [context.Process(target=sleep_with, args=(64 * _MIB, file), daemon=True) for file in files]
    try:
        for process in processes:
            process.start()
        while any(file.signal_number() is None for file in files):
            time.sleep(0.05)
        time.sleep(1.0)
        pids = [process.pid for process in processes if process.pid is not None]
        loop = watch_for(seconds, pids)
        memory = MemoryWatch(os.getpid())
        memory.sample(1.0, pids)
        deaths = DeathWatch(0.0)
        death = DeathFacts(workers=(0,), pid=pids[0], exit_code=-9, died_at_s=1.0, memory=memory.recent())
        result: dict[str, object] = {
            "workers": workers,
            "watching_in_the_loop": loop,
            "not_due_s": timed(lambda: memory.sample(0.0, pids), 10_000),
            "facts_and_sentence_of_a_death_s": timed(lambda: describe_death(deaths.complete(death)), count),
            "holdings_of_a_worker_s": timed(lambda: read_worker_memory(pids[0], 0.0), count),
            "look_at_a_stuck_worker_s": timed(
                lambda: look_at(pids[0], stack_file=files[0], use_py_spy=False), min(count, 10)
            ),
        }
        if find_py_spy() is not None:
            result["look_with_py_spy_s"] = timed(lambda: look_at(pids[0], stack_file=files[0]), min(count, 5))
    finally:
        for process in processes:
            process.kill()
            process.join()
        for file in files:
            file.close()
    assert ballast
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine_facts(), **result}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
