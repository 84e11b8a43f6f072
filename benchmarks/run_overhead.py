"""What does `headrace run` cost the training?

A training runs under `headrace run` and takes its hooks out and puts them back in short windows, workers included: off
is the code without them (`hook_switch.py`). Each window with them is compared with those beside it: time a step, and
CPU time of the training process and its workers a step, both with a 95 % interval of the median. "hooks" switches them
alone; what the recorder uses beside them is counted exactly, as CPU time. "all" stops the recorder too, in windows of
two seconds. "neither" switches nothing: it shows the method's error. "tasks" has every process switch its own hooks
every few tasks and count its own CPU time (`task_switch.py`): a narrower interval, without what the scheduler does;
"control by task" is its error. Starting and ending, which no window holds, is told in seconds, for a script that
imports torch and ends.

Tiny samples (W3, batches of 256) have no step at all: the loader alone, the worst case. Steps of 2 ms: forward,
backward and optimizer of a small network, rows that are in memory. Photographs: 16 JPEGs a batch, decoded by the
workers, and a training step of about 30 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import Bar, Contender, Options, Question, Result, ask
from switching import Window, added, cost
from task_switch import Stretch, combine

_TRAINING = Path(__file__).parent / "overhead_training.py"
# what `overhead_training.py` calls them; it imports torch, which this need not
CASES = {
    "tiny": "tiny samples in-process",
    "tiny-workers": "tiny samples with 2 workers",
    "tiny-ours": "tiny samples with 2 workers (ours)",
    "steps": "steps of 2 ms with 2 workers",
    "steps-local": "steps of 2 ms in-process",
    "photos": "photographs with 2 workers",
    "photos-ours": "photographs with 2 workers (ours)",
}
SWITCHES = {
    "hooks": "hooks",
    "tasks": "tasks",
    "all": "all",
    "neither": "nothing",
    "control by task": "tasks-nothing",
}
_START = "start and end of a script that imports torch"


def contenders(options: Options) -> list[Contender]:
    found = [
        Contender(name, case(key, switch, options), group, needs=("torch", "simplejpeg", "cv2"))
        for key, group in CASES.items()
        for name, switch in SWITCHES.items()
    ]
    return [*found, Contender("run", start, _START, needs=("torch",))]


def case(key: str, switch: str, options: Options) -> Callable[[], Result]:
    def run() -> Result:
        with tempfile.TemporaryDirectory() as folder:
            out, recording = Path(folder, "windows.json"), Path(folder, "run")
            command = [str(_TRAINING), key, "--switch", switch, "--seconds", str(options.seconds)]
            _run(["-q", "run", "--out", str(recording), *command, "--size", options.size, "--out", str(out)])
            document = json.loads(out.read_text())
            if "stretches" in document:
                found = {int(pid): [Stretch(*row) for row in rows] for pid, rows in document["stretches"].items()}
                trainer, *workers = found.values()
                counts = events_of_stretches(found, recording, is_switched=switch == "tasks")
                return {"seconds": options.seconds} | combine(trainer, workers) | counts
            windows = [Window(**window) for window in document["windows"]]
            return (
                {"seconds": options.seconds}
                | summary(windows)
                | events(windows, recording, is_switched=switch != "nothing")
            )

    return run


def summary(windows: list[Window]) -> Result:
    who = ("trainer", "workers")
    steps, cpu = [one.step_s for one in windows], [one.cpu_step_s(who) for one in windows]
    on = [one for one in windows if one.is_on]
    seconds = sum(one.end_ns - one.start_ns for one in on) / 1e9
    return {
        "step_ms": 1e3 * statistics.median(steps),
        **cost(steps),
        **cost(cpu, "cpu_"),
        "added_us": 1e6 * added(steps),
        "added_cpu_us": 1e6 * added(cpu),
        "added_cpu_us_trainer": 1e6 * added([one.cpu_step_s(("trainer",)) for one in windows]),
        "recorder_core_percent": 100 * sum(one.cpu_s["recorder"] for one in on) / seconds,
        "num_windows": len(windows),
    }


def events(windows: list[Window], recording: Path, *, is_switched: bool) -> Result:
    """Events a step, by kind, while on; there must be none while off, or off would not be off."""
    import numpy as np

    from headrace.model import EventKind
    from headrace.signals.recording import read_run

    found = read_run(recording).events
    counts: dict[bool, dict[str, float]] = {}
    for is_on in (True, False):
        inside = np.zeros(len(found), bool)
        for one in windows:
            if one.is_on == is_on:
                inside |= (found["start_ns"] >= one.start_ns) & (found["start_ns"] < one.end_ns)
        steps = sum(one.steps for one in windows if one.is_on == is_on)
        kinds, numbers = np.unique(found["kind"][inside], return_counts=True)
        counts[is_on] = {
            EventKind(int(kind)).name: float(count) / steps for kind, count in zip(kinds, numbers, strict=True)
        }
    on, off = sum(counts[True].values()), sum(counts[False].values())
    _check(on, off, is_switched=is_switched)
    return {"events_per_step": on, "events_by_kind": counts[True], "events_off_by_kind": counts[False]}


def events_of_stretches(stretches: dict[int, list[Stretch]], recording: Path, *, is_switched: bool) -> Result:
    """Events a batch while on, over all processes; there must be none while off."""
    import numpy as np

    from headrace.signals.recording import read_run

    found = read_run(recording).events
    per_s = {True: 0.0, False: 0.0}
    for pid, those in stretches.items():
        starts = np.sort(found["start_ns"][found["pid"] == pid])
        for is_on in (True, False):
            mine = [one for one in those if one.is_on == is_on]
            edges = np.array([(one.start_ns, one.end_ns) for one in mine])
            count = (np.searchsorted(starts, edges[:, 1]) - np.searchsorted(starts, edges[:, 0])).sum()
            per_s[is_on] += 1e9 * float(count) / float((edges[:, 1] - edges[:, 0]).sum())
    _check(per_s[True], per_s[False], is_switched=is_switched)
    trainer = next(iter(stretches.values()))
    step_s = sum(one.end_ns - one.start_ns for one in trainer) / sum(one.tasks for one in trainer) / 1e9
    return {"step_ms": 1e3 * step_s, "events_per_step": step_s * per_s[True]}


def _check(on: float, off: float, *, is_switched: bool) -> None:
    if is_switched and (not on or off > 0.02 * on):
        raise RuntimeError(f"{on:.3f} events while on, {off:.3f} while off: the switch does not reach all hooks")


def start() -> Result:
    """Seconds and CPU seconds that `headrace run` adds to a script that does next to nothing: medians of pairs."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text("import torch.utils.data\nfor _ in torch.utils.data.DataLoader(range(2)):\n    pass\n")
        walls, cpus = [], []
        for number in range(7):
            taken = {}
            for is_recorded in (False, True) if number % 2 else (True, False):
                before, began = os.times(), time.monotonic()
                if is_recorded:
                    _run(["-q", "run", "--out", f"{folder}/run{number}", str(script)])
                else:
                    subprocess.run([sys.executable, str(script)], check=True)
                wall, after = time.monotonic() - began, os.times()
                cpu = after.children_user + after.children_system - before.children_user - before.children_system
                taken[is_recorded] = wall, cpu
            walls.append(taken[True][0] - taken[False][0])
            cpus.append(taken[True][1] - taken[False][1])
        return {
            "start_s": statistics.median(walls),
            "start_least_s": min(walls),
            "start_most_s": max(walls),
            "start_cpu_s": statistics.median(cpus),
        }


def _run(arguments: list[str]) -> None:
    import headrace

    source = str(Path(headrace.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}:\n{done.stderr[-2000:]}")


def bars(_: Options) -> list[Bar]:
    found = []
    for group in CASES.values():
        found += [
            Bar(f"{group}: hooks add, % of the time", f"{group}/hooks", "cost_percent", at_most=2.0),
            Bar(f"{group}: hooks add, % of the CPU time", f"{group}/hooks", "cpu_cost_percent"),
            Bar(f"{group}: the same, task by task", f"{group}/tasks", "task_cost_percent", at_most=2.0),
            Bar(f"{group}: the interval's end", f"{group}/tasks", "task_cost_high_percent", at_most=2.0),
            Bar(f"{group}: the recorder takes, % of a core", f"{group}/hooks", "recorder_core_percent"),
            Bar(f"{group}: hooks and recorder add, % of the time", f"{group}/all", "cost_percent", at_most=2.0),
            Bar(f"{group}: the same where nothing is switched", f"{group}/neither", "cost_percent"),
        ]
    return [*found, Bar("starting and ending add, s", f"{_START}/run", "start_s")]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    files=lambda options: [("small", options.size)],
    columns=(
        *("step_ms", "cost_percent", "cost_low_percent", "cost_high_percent"),
        *("cpu_cost_percent", "cpu_cost_low_percent", "cpu_cost_high_percent"),
        *("task_cost_percent", "task_cost_low_percent", "task_cost_high_percent", "batch_added_us"),
        *(
            "added_us",
            "added_cpu_us",
            "events_per_step",
            "recorder_core_percent",
            "num_windows",
            "start_s",
            "start_cpu_s",
        ),
    ),
    rounds=1,
    seconds=40.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
