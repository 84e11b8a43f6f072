"""One measured run of the demo's training loop, in a process of its own.

`demo_run` starts it as `python -m headrace.cli.demo.loop SETTINGS_FILE RESULT_FILE`.
"""

import gc
import json
import os
import signal
import sys
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .data import SHAPE, SlowVolumes
from .memory import tree_memory_bytes, tree_page_faults

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import DataLoader, Dataset

    from .data import VolumeSample

_EVERY = 8  # the model looks at every 8th voxel along each axis: a step of some milliseconds on one core


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """What one run is asked to do; the same for both loaders but for the loader's name."""

    loader: str
    folder: str
    samples: int
    batch_size: int
    workers: int
    epochs: int


@dataclass(frozen=True, kw_only=True)
class LoopResult:
    """What one run measured. Waits are all but the first, epoch after epoch."""

    first_batch_s: float
    waits_s: list[float]
    loop_s: float
    samples_per_s: float
    page_faults_per_sample: float | None
    memory_before_bytes: int | None
    checksums: list[int]
    start_method: str
    torch_version: str


def run_loop(settings: LoopSettings) -> LoopResult:
    """Train a small model over the data set and measure what the loop saw of its loader."""
    import multiprocessing

    import torch

    torch.set_num_threads(1)  # on the machine of a demo the cores belong to the workers
    torch.manual_seed(0)
    model = torch.nn.Linear(_num_features(), 2)
    data = SlowVolumes(settings.folder, settings.samples)
    memory_before_bytes = tree_memory_bytes(os.getpid())

    arrivals: list[float] = []
    waits_s: list[float] = []
    checksums: list[int] = []
    faults_before = faults_after = None
    asked_at = time.perf_counter()
    loader = _make_loader(settings, data)
    for epoch in range(settings.epochs):
        batches = iter(loader)
        while True:
            batch = next(batches, None)
            if batch is None:
                break
            arrivals.append(time.perf_counter())
            waits_s.append(arrivals[-1] - asked_at)
            # All bytes, as a copy to a device would read them; this is also what shows that batches are identical.
            checksums.append(_checksum(batch))
            voxels = batch["volume"][:, ::_EVERY, ::_EVERY, ::_EVERY].flatten(1).float()
            loss = torch.nn.functional.cross_entropy(model(voxels), batch["label"])
            # By hand: a torch optimizer imports the compiler, which costs a second and leaves a folder behind.
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(1e-6 * gradient)
            if len(arrivals) == settings.epochs * len(loader):  # the workers still live, and nothing is in flight
                faults_after = tree_page_faults(os.getpid())
            del batch, voxels
            asked_at = time.perf_counter()
        if epoch == 0:
            faults_before = tree_page_faults(os.getpid())
            asked_at = time.perf_counter()

    loop_s = arrivals[-1] - arrivals[0]
    delivered = settings.epochs * settings.samples - min(settings.batch_size, settings.samples)
    faults = None if faults_before is None or faults_after is None else faults_after - faults_before
    result = LoopResult(
        first_batch_s=waits_s[0],
        waits_s=waits_s[1:],
        loop_s=loop_s,
        samples_per_s=delivered / loop_s,
        page_faults_per_sample=None if faults is None else faults / (settings.samples * (settings.epochs - 1)),
        memory_before_bytes=memory_before_bytes,
        checksums=checksums,
        start_method=multiprocessing.get_start_method(),
        torch_version=torch.__version__,
    )
    del batches, loader
    gc.collect()  # the workers end before we do
    return result


def _make_loader(settings: LoopSettings, data: SlowVolumes) -> "DataLoader[VolumeSample]":
    import torch.utils.data

    import headrace

    kinds: dict[str, type[DataLoader[VolumeSample]]] = {"torch": torch.utils.data.DataLoader}
    if settings.loader == "headrace":
        kinds["headrace"] = headrace.DataLoader
    return kinds[settings.loader](
        cast("Dataset[VolumeSample]", data),  # any map-style object will do, and a worker needs no torch for this one
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )


def _num_features() -> int:
    features = 1
    for length in SHAPE:
        features *= -(-length // _EVERY)
    return features


def _checksum(batch: "dict[str, Tensor]") -> int:
    checksum = 0
    for name in sorted(batch):
        checksum = zlib.crc32(batch[name].numpy().data, checksum)
    return checksum


def _die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it is gone, so that nothing is left behind."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _main(settings_file: str, result_file: str) -> None:
    _die_with_parent()
    settings = LoopSettings(**json.loads(Path(settings_file).read_text()))
    Path(result_file).write_text(json.dumps(asdict(run_loop(settings))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
