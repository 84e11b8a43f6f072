"""Does `tune="online"` find the best number of workers by itself, and follow what changes?

Loops without a step of their own, so that each sample a second more is one more trained on, over samples of 128 KiB in
batches of 16, with a budget of 64 MiB.

- *disk*: each sample waits 30 ms for a disk that brings 400 a second and, like a hard disk, fewer where too many ask.
- *cores*: each sample computes for 6 ms, on the cores that there are.
- *slow loop*: the disk, and a loop that takes 160 samples a second: the fewest workers that it does not wait for.
- *throttle*: the same disk, without the price for a crowd: 400 samples a second, then 100, then 800.
- *tenant*: each sample waits 20 ms and computes for 2; in the second stage, other processes want all cores.

Fixed numbers of workers are the sweep; the tuned loader begins with 1 and with 32 (in *throttle* and *tenant*,
with 4). Of the first three, what counts is the rate from second 60 to 75; of those with stages, that of the second half
of each. The memory file (all that is queued) is looked at every second.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask

BATCH, SAMPLE_BYTES, BUDGET = 16, 128 << 10, 64 << 20
FILE_SLACK = 4 << 20  # what is no sample: the board, indices (as in memory_budget.py)
SWEEP_S, TUNED_S, COUNTED_S, STAGE_S = 16.0, 75.0, 15.0, 40.0
NEEDS = ("torch", "numpy")
CORES = len(os.sched_getaffinity(0))


class Disk:
    """A server that all workers of a data set ask: a latency, so many samples a second, and a price for a crowd."""

    def __init__(self, latency_s: float, per_s: float, *, fall: float = 0.0) -> None:
        context = multiprocessing.get_context("fork")
        self.latency_s, self._fall, self._lock = latency_s, fall, context.Lock()
        self._free_at, self._asking = context.RawValue("d", 0.0), context.RawValue("i", 0)
        self.per_s = context.RawValue("d", per_s)

    def wait(self) -> None:
        with self._lock:
            self._asking.value += 1
            most = self.per_s.value
            crowd = max(0.0, self._asking.value / (2 * most * self.latency_s) - 1)
            start = max(time.monotonic(), self._free_at.value)
            self._free_at.value = start + (1 + self._fall * crowd) / most
        time.sleep(max(0.0, start + self.latency_s - time.monotonic()))
        with self._lock:
            self._asking.value -= 1


class Samples:
    """Samples that wait for a disk, and compute."""

    def __init__(self, disk: Disk | None = None, compute_s: float = 0.0) -> None:
        self.disk, self.compute_s = disk, compute_s

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> Any:
        import numpy as np

        if self.disk is not None:
            self.disk.wait()
        array = np.full(SAMPLE_BYTES // 4, index, np.float32)
        began = time.thread_time()  # the core's time, however many want it and however fast it is
        while time.thread_time() - began < self.compute_s:
            array = np.sqrt(array * array + 1.0)
        return array


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Another tenant of the machine: so many processes that want a core each."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def memory_file_bytes() -> int:
    sizes = [0]
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "/memfd:headrace (deleted)":
                sizes.append(512 * os.stat(f"/proc/self/fd/{name}").st_blocks)
    return max(sizes)


def drive(
    dataset: Samples,
    seconds: float,
    *,
    workers: int,
    is_tuned: bool,
    step_s: float = 0.0,
    on_second: Callable[[float], None] = lambda _: None,
) -> Result:
    """Iterate for so long; what each second brought, with how many workers, and what was decided."""
    from headrace import DataLoader

    warnings.filterwarnings("ignore", message="This DataLoader will create")
    loader: Any = DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_size=BATCH,
        num_workers=workers,
        memory=BUDGET,
        tune="online" if is_tuned else None,
    )
    seconds_at, rates, counts, most_bytes, done = [], [], [], 0, 0
    began = time.monotonic()
    due = began + 1
    for batch in loader:
        done += len(batch)
        if step_s:
            time.sleep(step_s)
        now = time.monotonic()
        if now >= due:
            seconds_at.append(round(now - began, 1))
            rates.append(round(done / (now - due + 1), 1))
            counts.append(loader.num_workers)
            most_bytes = max(most_bytes, memory_file_bytes())
            due, done = now + 1, 0
            on_second(now - began)
        if now - began >= seconds:
            break
    told = [f"{one.at_s:.1f} s: {one.said().en}" for one in loader.stats().adjustments]
    found: Result = {"at_s": seconds_at, "rates": rates, "workers": counts, "told": told}
    return {**found, "peak_held_bytes": most_bytes, "over": most_bytes / BUDGET}


def steady(dataset: Samples, seconds: float, counted_s: float, **how: Any) -> Result:
    """One stretch; what counts is its end."""
    found = drive(dataset, seconds, **how)
    both = zip(found["at_s"], found["rates"], strict=True)
    last = [rate for at, rate in both if at - 1 >= seconds - counted_s]
    return {"samples_per_s": fmean(last or found["rates"]), "num_workers": found["workers"][-1], **found}


def staged(dataset: Samples, stage_s: float, change: Callable[[int], Any], **how: Any) -> Result:
    """Three stretches, with something changed between them; what counts is the second half of each."""
    with contextlib.ExitStack() as undo:
        changed: list[Any] = []

        def on_second(now: float) -> None:
            stage = min(2, int(now / stage_s))
            while len(changed) < stage:
                undo.close()
                changed.append(change(len(changed) + 1))
                if changed[-1] is not None:
                    undo.enter_context(changed[-1])

        found = drive(dataset, 3 * stage_s, on_second=on_second, **how)
    rates = {}
    for stage in range(3):
        half, end = (stage + 0.5) * stage_s, (stage + 1) * stage_s
        both = zip(found["at_s"], found["rates"], strict=True)
        rates[f"stage_{stage + 1}_per_s"] = fmean([rate for at, rate in both if half < at - 1 and at <= end] or [0.0])
    return {**rates, "num_workers": found["workers"][-1], **found}


SWEEP = (1, 8, 12, 16, 32)
STAGE_SWEEP = (4, 12, 32)
DISK_STAGES = {1: 100.0, 2: 800.0}


def contenders(options: Options) -> list[Contender]:
    sweep_s, tuned_s, stage_s = (
        (1.5, 3.0, 1.5)
        if options.quick
        else (SWEEP_S, TUNED_S, STAGE_S if options.stage_s is None else options.stage_s)
    )

    def make_disk() -> Samples:
        return Samples(Disk(0.03, 400.0, fall=0.1))

    def make_cores() -> Samples:
        return Samples(compute_s=0.006)

    def run(make: Callable[[], Samples], is_tuned: bool, workers: int, step_s: float = 0.0) -> Result:
        seconds = tuned_s if is_tuned else sweep_s
        counted_s = COUNTED_S if is_tuned else sweep_s / 2
        return steady(make(), seconds, counted_s, workers=workers, is_tuned=is_tuned, step_s=step_s)

    def run_disk_stages(is_tuned: bool, workers: int) -> Result:
        disk = Disk(0.03, 400.0)

        def change(stage: int) -> None:
            disk.per_s.value = DISK_STAGES[stage]

        return staged(Samples(disk), stage_s, change, workers=workers, is_tuned=is_tuned)

    def run_tenant(is_tuned: bool, workers: int) -> Result:
        def change(stage: int) -> Any:
            return busy_processes(CORES) if stage == 1 else None

        return staged(Samples(Disk(0.02, 1e6), compute_s=0.002), stage_s, change, workers=workers, is_tuned=is_tuned)

    cases: list[tuple[str, Callable[[bool, int], Result], tuple[int, ...], tuple[int, ...]]] = [
        ("disk", partial(run, make_disk), SWEEP, (1, 32)),
        ("cores", partial(run, make_cores), (1, 2, 4, 32), (1, 32)),
        ("slow loop", partial(run, make_disk, step_s=BATCH / 160), (1, 8, 32), (1, 32)),
        ("throttle", run_disk_stages, STAGE_SWEEP, (4,)),
        ("tenant", run_tenant, STAGE_SWEEP, (4,)),
    ]
    return [
        Contender(name_of(is_tuned, n), partial(case, is_tuned, n), group=group, needs=NEEDS)
        for group, case, fixed, starts in cases
        for is_tuned, numbers in ((False, fixed), (True, starts))
        for n in numbers
    ]


def name_of(is_tuned: bool, workers: int) -> str:
    return f"tuned, from {workers}" if is_tuned else f"{workers} workers"


def bars(options: Options) -> list[Bar]:
    found = []
    everyone = contenders(options)
    for one in (c for c in everyone if c.name.startswith("tuned")):
        fixed = tuple(c.key for c in everyone if c.group == one.group and c is not one and "tuned" not in c.name)
        start = f"{one.group}/{name_of(False, int(one.name.rpartition(' ')[2]))}"
        has_stages = one.group in ("throttle", "tenant")
        measures = [f"stage_{n}_per_s" for n in (1, 2, 3)] if has_stages else ["samples_per_s"]
        for measure in measures:
            title = f"{one.key}: {measure}"
            found.append(Bar(f"{title} / best of the sweep", one.key, measure, fixed, at_least=0.95))
            if start in fixed:
                found.append(Bar(f"{title} / where it began", one.key, measure, (start,), at_least=0.97))
        found.append(Bar(f"{one.key}: memory file / budget", one.key, "over", at_most=1.0 + FILE_SLACK / BUDGET))
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stage-s", type=float, help=f"seconds a stage ({STAGE_S:g})")


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    columns=(
        *("samples_per_s", "stage_1_per_s", "stage_2_per_s", "stage_3_per_s"),
        *("num_workers", "peak_held_bytes"),
    ),
    rounds=2,
    seconds=0.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
