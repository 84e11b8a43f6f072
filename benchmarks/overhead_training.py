"""The trainings whose recording `run_overhead.py` measures; each runs under `headrace run` and switches it itself.

headrace run benchmarks/overhead_training.py CASE --switch hooks --seconds 20 --out result.json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).resolve().parent))

import workloads
from hook_switch import HookSwitch, ListenInWorker
from switching import Window, measure
from task_switch import Stretch, SwitchInWorker, TaskMeter, read_stretches

_LEAST_STRETCHES, _MOST_TRIES = 4, 10  # a short run of long tasks goes on until there is something to compare


@dataclass(frozen=True)
class Case:
    """A training: what it loads, who loads it, what it does with a batch."""

    dataset: Callable[[str], Dataset[Any]]
    batch_size: int
    num_workers: int
    step: Callable[[], Callable[[Any], object]]
    window_s: float  # with hooks switched: long beside what is under way when they are
    settle_s: float
    tasks: int  # at a time, where hooks are switched from task to task
    by: str = "torch"


class Photographs(Dataset[Any]):
    """500x375 JPEGs in memory, decoded and scaled to 224x224."""

    def __init__(self, length: int = workloads.ENDLESS) -> None:
        import cv2
        import simplejpeg

        cv2.setNumThreads(1)  # its threads would not live in a forked worker, which would wait for them
        rng, self.length = np.random.default_rng(0), length
        pictures = (cv2.GaussianBlur(rng.integers(0, 256, (375, 500, 3), np.uint8), (0, 0), 3) for _ in range(32))
        self.encoded = [simplejpeg.encode_jpeg(np.ascontiguousarray(picture), 90) for picture in pictures]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import cv2
        import simplejpeg

        cv2.setNumThreads(1)
        pixels = simplejpeg.decode_jpeg(self.encoded[index % len(self.encoded)], "RGB")
        resized = cv2.resize(pixels, (224, 224), interpolation=cv2.INTER_LINEAR)
        return torch.from_numpy(np.ascontiguousarray(resized.transpose(2, 0, 1))), index % 10


class Rows(Dataset[Any]):
    """Rows of a tensor."""

    def __init__(self, length: int = workloads.ENDLESS) -> None:
        self.rows, self.length = torch.randn(1024, 64), length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.rows[index % 1024], index % 10


def no_step() -> Callable[[Any], object]:
    return lambda _: None


def training_step(model: torch.nn.Module, repeats: int = 1) -> Callable[[Any], object]:
    """Forward, loss, backward, optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(batch: Any) -> None:
        inputs, labels = batch
        inputs = inputs.float()
        for _ in range(repeats):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    return step


def convolutions() -> Callable[[Any], object]:
    """About 30 ms on one core for 16 photographs."""
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 16, 7, stride=4), torch.nn.ReLU()]
    for _ in range(2):
        layers += [torch.nn.Conv2d(16, 16, 3, stride=2), torch.nn.ReLU()]
    pool = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10)]
    return training_step(torch.nn.Sequential(*layers, *pool))


def perceptron() -> Callable[[Any], object]:
    """About 2 ms on one core for 64 rows."""
    layers: list[torch.nn.Module] = [torch.nn.Linear(64, 384), torch.nn.ReLU()]
    for _ in range(2):
        layers += [torch.nn.Linear(384, 384), torch.nn.ReLU()]
    return training_step(torch.nn.Sequential(*layers, torch.nn.Linear(384, 10)))


def small(size: str) -> Dataset[Any]:
    return workloads.Small(size, length=workloads.ENDLESS)


def photographs(_: str) -> Dataset[Any]:
    return Photographs()


CASES = {
    "tiny": Case(small, 256, 0, no_step, 0.1, 0.0, 16),
    "tiny-workers": Case(small, 256, 2, no_step, 0.06, 0.02, 16),
    "tiny-ours": Case(small, 256, 2, no_step, 0.06, 0.02, 16, "headrace"),
    "steps": Case(lambda _: Rows(), 64, 2, perceptron, 0.1, 0.02, 8),
    "steps-local": Case(lambda _: Rows(), 64, 0, perceptron, 0.1, 0.0, 8),
    "photos": Case(photographs, 16, 2, convolutions, 0.6, 0.2, 2),
    "photos-ours": Case(photographs, 16, 2, convolutions, 0.6, 0.2, 2, "headrace"),
}


def train(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train for some time, switch meanwhile, and return what was counted."""
    case = CASES[name]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        by_task = options.switch.startswith("tasks")
        listen = (
            SwitchInWorker(folder, case.tasks, is_switched=options.switch == "tasks")
            if by_task
            else ListenInWorker(folder)
        )
        batches = begin(case, listen, options.size)
        use = case.step()

        def step() -> None:
            use(next(batches))

        run_for(step, 0.2 if options.seconds < 5 else 3.0)  # models are found, caches and clocks are warm
        hooks = HookSwitch(folder, fetcher=getattr(batches, "_dataset_fetcher", None), tells_workers=not by_task)
        pids = {"trainer": [os.getpid()], "workers": hooks.worker_pids, "recorder": [os.getppid()]}
        if len(hooks.worker_pids) != case.num_workers:
            raise RuntimeError(f"{len(hooks.worker_pids)} workers listen, there are to be {case.num_workers}")
        if by_task:
            return {"switched": hooks.names, "stretches": from_task_to_task(step, hooks, case, folder, options)}
        window_s = 2.0 if options.switch == "all" else case.window_s
        window_s = min(window_s, options.seconds / 4)
        switches: dict[str, Callable[[bool], None]] = {
            "hooks": hooks,
            "all": Everything(hooks),
            "nothing": lambda _: None,
        }
        switch = switches[options.switch]
        try:
            for is_on in (False, True):  # the first time, a process looks for its hooks
                switch(is_on)
                run_for(step, 0.1 if options.seconds < 5 else 1.0)
            windows = measure(
                step, switch, seconds=options.seconds, window_s=window_s, settle_s=case.settle_s, pids=pids
            )
        finally:
            if options.switch != "nothing":
                switch(True)
        return {"switched": hooks.names, "windows": [window._asdict() for window in windows]}


def from_task_to_task(
    step: Callable[[], object], hooks: HookSwitch, case: Case, folder: str, options: argparse.Namespace
) -> dict[str, list[Stretch]]:
    """Have every process switch for itself, every few tasks; returns what they wrote, the training process first."""
    path, since_ns = Path(folder, "trainer"), time.monotonic_ns()
    meter = TaskMeter(path, hooks if options.switch == "tasks" else lambda _: None, case.tasks)

    def counted() -> None:
        step()
        meter.turn()

    paths = {str(os.getpid()): path} | {str(pid): Path(folder, f"tasks-{pid}") for pid in hooks.worker_pids}
    for _ in range(_MOST_TRIES):
        run_for(counted, options.seconds)
        found = {pid: read_stretches(one, since_ns) for pid, one in paths.items()}
        if all(len(stretches) > _LEAST_STRETCHES for stretches in found.values()):
            break
    hooks(True)
    return found


class Everything:
    """The hooks, and the recorder: stopped by a signal while they are off."""

    def __init__(self, hooks: HookSwitch) -> None:
        self._hooks = hooks

    def __call__(self, is_on: bool) -> None:
        os.kill(os.getppid(), signal.SIGCONT if is_on else signal.SIGSTOP)
        self._hooks(is_on)


def begin(case: Case, listen: Callable[[int], None], size: str) -> Iterator[Any]:
    loader_class: Any
    if case.by == "torch":
        from torch.utils.data import DataLoader as loader_class
    else:
        from headrace import DataLoader as loader_class
    settings: dict[str, Any] = {"batch_size": case.batch_size, "num_workers": case.num_workers}
    if case.num_workers:
        settings["worker_init_fn"] = listen
    if case.by == "headrace":
        settings["backend"] = "process"
    return iter(loader_class(case.dataset(size), **settings))


def run_for(step: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()


def read_windows(document: dict[str, Any]) -> list[Window]:
    return [Window(**window) for window in document["windows"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES, nargs="?", help="without one, they are named")
    parser.add_argument("--switch", choices=("hooks", "all", "nothing", "tasks", "tasks-nothing"), default="hooks")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", choices=("full", "quick"), default="full", help="of the files that are read")
    parser.add_argument("--out", help="where the counts go, as JSON")
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)  # as every script here takes it
    options = parser.parse_args()
    if options.case is None:
        print("\n".join(CASES))
        return
    if options.out is None:
        parser.error("--out FILE says where the counts go")
    Path(options.out).write_text(json.dumps(train(options.case, options)))


if __name__ == "__main__":
    main()
