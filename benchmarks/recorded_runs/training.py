"""A short real training with one or two causes injected, each for real. It knows nothing of Headrace.

`training.py SPEC`: a JSON object as `drawing.py` draws it. Only `"loader": "headrace"` imports Headrace, as users do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

Spec = dict[str, Any]

_TOUCHED_BYTES = 48 << 20  # of what does not fit in memory, a step


def burn(seconds: float) -> None:
    """Compute with the interpreter's lock released most of the time, as decoders do."""
    end = time.perf_counter() + seconds
    packed = zlib.compress(np.arange(40_000, dtype=np.int32).tobytes(), 1)
    while time.perf_counter() < end:
        zlib.decompress(packed)


def burn_python(seconds: float) -> None:
    """Compute in pure Python: the interpreter's lock is held."""
    end, total = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        total += sum(range(200))


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """What a sample costs is in the spec: waiting, computing, reading."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.files = sorted(Path(spec["files"]).glob("*.bin")) if spec.get("files") else []
        self.kept: list[Any] = []
        self.num_fetched = 0

    def __len__(self) -> int:
        return int(self.spec["num_samples"])

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        spec = self.spec
        if self.files:
            self._read(self.files[index % len(self.files)])
        time.sleep(spec.get("sleep_s", 0.0))
        if spec.get("burn_s"):
            burn(spec["burn_s"])
        if spec.get("python_s"):
            burn_python(spec["python_s"])
        if spec.get("heavy_every") and index % spec["heavy_every"] == spec["heavy_every"] // 2:
            burn(spec["heavy_s"])
        worker = get_worker_info()
        if spec.get("slow_worker_s") and worker is not None and worker.id == 0:
            time.sleep(spec["slow_worker_s"])
        if spec.get("leaks_files"):
            self.kept.append(open(os.devnull))  # noqa: SIM115  # a leak is the point
        self.num_fetched += 1
        if spec.get("dies_after") == self.num_fetched and worker is not None and worker.id == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((int(spec.get("floats", 1024)),), float(index)), index

    def _read(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            if self.spec.get("is_cold"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with os.fdopen(os.dup(fd), "rb") as file:
                zlib.adler32(file.read())
        finally:
            os.close(fd)


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
        os.fsync(self.stream.fileno())
        time.sleep(self._delay_s)


def make_loader(spec: Spec, dataset: Dataset[Any]) -> Any:
    settings: dict[str, Any] = {"batch_size": spec["batch_size"], "num_workers": spec["num_workers"], "shuffle": True}
    if spec["num_workers"]:
        settings["persistent_workers"] = spec.get("persistent", False)
        settings["prefetch_factor"] = spec.get("prefetch_factor", 2)
        if spec.get("start_method"):
            settings["multiprocessing_context"] = spec["start_method"]
    if spec.get("loader") == "headrace":
        import headrace

        return headrace.DataLoader(dataset, backend=spec.get("backend", "auto"), **settings)
    return DataLoader(dataset, **settings)


def step_marks(spec: Spec) -> Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]:
    """The lines that TraceML asks of a plain loop, where the spec says so; nothing otherwise."""
    if not spec.get("traceml"):
        return contextlib.nullcontext
    import traceml_ai

    traceml_ai.init(mode="auto")
    return traceml_ai.trace_step  # type: ignore[no-any-return]


def own_bytes() -> int:
    """What this process holds for itself: how much torch takes depends on how it was built."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def evaluate(model: Model, spec: Spec) -> None:
    model.eval()
    with torch.no_grad():
        end = time.perf_counter() + spec["evaluation_s"]
        batch = torch.zeros(spec["batch_size"], int(spec.get("floats", 1024)), device=model.layer.weight.device)
        while time.perf_counter() < end:
            model(batch)
    model.train()


def train(spec: Spec) -> None:
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
    ballast = np.ones(max(0, int(spec.get("ballast_bytes", 0)) - own_bytes()), np.uint8)
    loader = make_loader(spec, Samples(spec))
    traced = step_marks(spec)
    step, started = 0, time.perf_counter()
    for _ in range(spec["num_epochs"]):
        for batch, _index in loader:
            with traced(model):
                optimizer.zero_grad()
                loss = model(batch.to(device))
                loss.backward()
                optimizer.step()
            step += 1
            for _ in range(spec.get("log_lines", 0)):
                log.info("step %d loss %.3f", step, loss.detach().item())
            if spec.get("collect_every") and step % spec["collect_every"] == 0:
                gc.collect()
            if spec.get("touch_ballast") and ballast.nbytes:
                at = step * _TOUCHED_BYTES % ballast.nbytes
                ballast[at : at + _TOUCHED_BYTES : 4096] += 1
            if spec.get("checkpoint_every") and step % spec["checkpoint_every"] == 0:
                with open(folder / "model.pt", "wb") as file:
                    torch.save({"model": model.state_dict(), "step": step}, file)
                    file.flush()
                    os.fsync(file.fileno())
            if spec.get("evaluate_every") and step % spec["evaluate_every"] == 0:
                evaluate(model, spec)
            if time.perf_counter() - started > spec["seconds"]:
                print(f"stopped after {step} steps")
                return
    print(f"done after {step} steps, {len(hoard)} objects")


if __name__ == "__main__":
    train(json.loads(sys.argv[1]))
