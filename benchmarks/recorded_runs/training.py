"""A short real training with one or two causes injected, each for real. It knows nothing of Headrace.

`training.py SPEC`: a JSON object as `kinds.py` draws it. Only `"loader": "headrace"` imports Headrace, as users do.
What it lost, and to what, it measures on its own clock and leaves in `measured.json`: whether a cause came about, and
which of two cost more, is not for the diagnosis to say.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parent.parent))  # a profiler may run this file as something else

from recorded_runs.injected_data import make_loader, read_all

Spec = dict[str, Any]

_TOUCHED_BYTES = 48 << 20  # of what does not fit in memory, a step


class Model(torch.nn.Module):
    """A network whose forward takes as long as the spec says: it computes, or it waits as for an accelerator."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(int(spec.get("floats", 1024)), 16)
        self.ballast = torch.nn.Parameter(torch.zeros(int(spec.get("state_floats", 1))), requires_grad=False)
        self.step_s, self.waits = spec["step_s"], spec["step"] == "waits"

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.waits:
            time.sleep(self.step_s)
        else:
            end = time.perf_counter() + self.step_s
            while time.perf_counter() < end:
                torch.mm(self.layer.weight, self.layer.weight.T)
        loss: torch.Tensor = self.layer(batch).square().mean()
        return loss


class SyncingHandler(logging.FileHandler):
    """A log that is on disk before the training goes on, as over a slow network file system."""

    def __init__(self, path: str, delay_s: float) -> None:
        super().__init__(path)
        self._delay_s = delay_s

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        assert self.stream is not None  # what was just written to
        os.fsync(self.stream.fileno())
        time.sleep(self._delay_s)


class Measured:
    """Seconds that the training spent on each thing, by its own clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seconds: dict[str, float] = {"steps": 0, "train_s": 0.0, "waited_s": 0.0, "starts_s": 0.0}

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextlib.contextmanager
    def timing(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - start)

    def save(self) -> None:
        self._path.write_text(json.dumps(self.seconds))


def step_marks(spec: Spec, place: str) -> Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]:
    """The mark that TraceML asks of a plain loop, where the spec has it: around the step, or the loop's whole body."""
    if spec.get("traceml") != place:
        return contextlib.nullcontext
    import traceml_ai

    traceml_ai.init(mode="auto")
    return traceml_ai.trace_step  # type: ignore[no-any-return]


def fill_memory(spec: Spec) -> np.ndarray[Any, Any]:
    """Memory that the training holds: so much in all, or all but so much of what its control group may have."""
    if spec.get("leave_bytes"):
        limit, held = spec["memory_bytes"], _group_bytes()
        return np.ones(max(0, int(limit) - held - spec["leave_bytes"]), np.uint8)
    return np.ones(max(0, int(spec.get("ballast_bytes", 0)) - _own_bytes()), np.uint8)


def _own_bytes() -> int:
    """What this process holds for itself: how much torch takes depends on how it was built."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def _group_bytes() -> int:
    """What this process and the one that started it hold for themselves: they share a control group."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return _own_bytes() + (int(status.partition("RssAnon:")[2].split()[0]) << 10)


def evaluate(model: Model, spec: Spec) -> None:
    model.eval()
    with torch.no_grad():
        end = time.perf_counter() + spec["evaluation_s"]
        batch = torch.zeros(spec["batch_size"], int(spec.get("floats", 1024)), device=model.layer.weight.device)
        while time.perf_counter() < end:
            model(batch)
    model.train()


def save(model: Model, step: int, path: Path, *, syncs: bool) -> None:
    with open(path, "wb") as file:
        torch.save({"model": model.state_dict(), "step": step}, file)
        if syncs:
            file.flush()
            os.fsync(file.fileno())


def train(spec: Spec, measured: Measured) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(spec["seed"])
    folder = Path(spec["folder"])
    log = logging.getLogger("training")
    log.setLevel(logging.INFO)
    if spec.get("log_lines"):
        log.addHandler(SyncingHandler(str(folder / "train.log"), spec["log_line_s"]))
    device = torch.device(spec.get("device", "cpu"))
    model = Model(spec).to(device)
    optimizer = torch.optim.SGD([model.layer.weight, model.layer.bias], lr=1e-9)
    hoard = [{"id": [number]} for number in range(spec.get("objects", 0))]
    ballast = fill_memory(spec)
    if spec.get("reads_first"):
        read_all(spec)
    loader = make_loader(spec)
    traced_step, traced_body = step_marks(spec, "step"), step_marks(spec, "body")
    step, started = 0, time.perf_counter()
    since = started
    for epoch in range(spec["num_epochs"]):
        for number, (batch, _index) in enumerate(loader):
            if number or epoch:
                measured.add("waited_s" if number else "starts_s", time.perf_counter() - since)
            else:
                started = time.perf_counter()  # the first batch belongs to the start of the run
            with traced_body(model):
                with traced_step(model):
                    optimizer.zero_grad()
                    with measured.timing("copies_s"):
                        batch = batch.to(device)
                    loss = model(batch)
                    loss.backward()
                    optimizer.step()
                step += 1
                do_besides(spec, step, model, loss, log, ballast, measured)
            since = time.perf_counter()
            measured.seconds |= {"steps": step, "train_s": since - started}
            if since - started > spec["seconds"]:
                print(f"stopped after {step} steps")
                return
    print(f"done after {step} steps, {len(hoard)} objects")


def do_besides(
    spec: Spec,
    step: int,
    model: Model,
    loss: torch.Tensor,
    log: logging.Logger,
    ballast: np.ndarray[Any, Any],
    measured: Measured,
) -> None:
    """What a loop does besides training, each as often as the spec says."""
    if spec.get("log_lines"):
        with measured.timing("logging_s"):
            for _ in range(spec["log_lines"]):
                log.info("step %d loss %.3f", step, loss.detach().item())
    if spec.get("collect_every") and step % spec["collect_every"] == 0:
        with measured.timing("gc_s"):
            gc.collect()
    if spec.get("touch_ballast") and ballast.nbytes:
        at = step * _TOUCHED_BYTES % ballast.nbytes
        with measured.timing("touched_s"):
            ballast[at : at + _TOUCHED_BYTES : 4096] += 1
    if spec.get("checkpoint_every") and step % spec["checkpoint_every"] == 0:
        with measured.timing("checkpoint_s"):
            save(model, step, Path(spec["folder"]) / "model.pt", syncs=spec.get("syncs_checkpoints", True))
    if spec.get("evaluate_every") and step % spec["evaluate_every"] == 0:
        with measured.timing("evaluation_s"):
            evaluate(model, spec)
    if spec.get("hidden_every") and step % spec["hidden_every"] == 0:
        with measured.timing("hidden_s"):
            time.sleep(spec["hidden_s"])


def main() -> None:
    spec = json.loads(sys.argv[1])
    measured = Measured(Path(spec["folder"]) / "measured.json")
    try:
        train(spec, measured)
    finally:
        measured.save()


if __name__ == "__main__":
    main()
