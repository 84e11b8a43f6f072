"""One measured run of the demo's training loop, in a process of its own, and the data set that it loads.

`headrace demo` starts it as `python -m headrace.cli.demo.loop LOADER FOLDER SETTINGS RESULT_FILE`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.signals.system import ProcessTree, read_text

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

SHAPE = (64, 96, 96)  # int16: 1.1 MiB a sample, about 4 ms to inflate
SAMPLE_BYTES = 2 * SHAPE[0] * SHAPE[1] * SHAPE[2]
FASTEST_READ_MS, SLOWEST_READ_MS = 10, 20
_EVERY = 8  # the model looks at every 8th voxel along each axis: a step of some milliseconds on one core
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What the user may choose; the defaults make a demo of some 20 seconds on two cores."""

    samples: int = 192  # 16 batches an epoch: enough to see a pattern in the waits
    batch_size: int = 12
    workers: int = 4
    rounds: int = 2
    epochs: int = 2  # the first warms up; page faults are counted in the second


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


class SlowVolumes:
    """A map-style data set over the files that `write_volumes` made."""

    def __init__(self, folder: str, num_samples: int) -> None:
        self.folder = folder
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        # How long the disk takes is a function of the index alone, so both loaders pay it. Knuth's multiplicative
        # hash: even, and without a pattern.
        spread = (index * 2654435761 % 2**32) / 2**32
        time.sleep((FASTEST_READ_MS + (SLOWEST_READ_MS - FASTEST_READ_MS) * spread) / 1000)
        with np.load(_path(self.folder, index)) as arrays:
            return {"volume": arrays["volume"], "label": int(arrays["label"]), "index": index}


def write_volumes(folder: str, num_samples: int) -> None:
    """Write the samples, small compressed volumes, each one different."""
    z, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    bright = 1000 * np.exp(-((z - 30) ** 2 / 200 + (y - 40) ** 2 / 400 + (x - 60) ** 2 / 300))
    random = np.random.default_rng(0)
    noise = random.integers(0, 4, SHAPE, dtype=np.int16)  # like a scanner's: it keeps the volume from vanishing in zip
    for index in range(num_samples):
        body = np.roll(bright.astype(np.int16), shift=(3 * index, 5 * index), axis=(1, 2)) + noise
        body[0, 0, 0] = index
        with zipfile.ZipFile(_path(folder, index), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, array in (("volume", body), ("label", np.int64(index % 2))):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.asanyarray(array))


def _path(folder: str, index: int) -> Path:
    return Path(folder) / f"volume-{index:05d}.npz"


def run_loop(loader_name: str, folder: str, settings: DemoSettings) -> LoopResult:
    """Train a small model over the data set in a folder and measure what the loop saw of its loader."""
    import torch

    torch.set_num_threads(1)  # on the machine of a demo the cores belong to the workers
    torch.manual_seed(0)
    model = torch.nn.Linear(int(np.prod([-(-length // _EVERY) for length in SHAPE])), 2)
    tree = ProcessTree(os.getpid())
    memory_before_bytes = tree_memory_bytes(tree)

    arrivals: list[float] = []
    waits_s: list[float] = []
    checksums: list[int] = []
    faults_before = faults_after = None
    asked_at = time.perf_counter()
    loader = _make_loader(loader_name, folder, settings)
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
                faults_after = tree_page_faults(tree)
            del batch, voxels
            asked_at = time.perf_counter()
        if epoch == 0:
            faults_before = tree_page_faults(tree)
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


def _make_loader(name: str, folder: str, settings: DemoSettings) -> DataLoader[dict[str, Any]]:
    import torch.utils.data

    import headrace

    kind = headrace.DataLoader if name == "headrace" else torch.utils.data.DataLoader
    data: Any = SlowVolumes(folder, settings.samples)  # a worker needs no torch for this one
    return kind(
        data,
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )


def _checksum(batch: dict[str, Any]) -> int:
    checksum = 0
    for name in sorted(batch):
        checksum = zlib.crc32(batch[name].numpy().data, checksum)
    return checksum


def tree_page_faults(tree: ProcessTree) -> int | None:
    """Return the page faults that living processes of a tree have had, or None where /proc does not tell."""
    faults = [one.minor_faults + one.major_faults for one in tree.sample()]
    return sum(faults) if faults else None


def tree_memory_bytes(tree: ProcessTree) -> int | None:
    """Return what all processes of a tree occupy, or None where the kernel does not tell.

    This is the sum of their PSS, with one correction: a shared-memory segment on its way from a worker to the loop
    is mapped by nobody for a while, but occupies memory all the same. So shared memory counts with what its segments
    have allocated where that is more than what is mapped.
    """
    private = mapped = num_told = 0
    segments: dict[tuple[int, int], int] = {}
    pids = [one.pid for one in tree.sample()]
    for pid in pids:
        lines = (line.split() for line in read_text(f"/proc/{pid}/smaps_rollup").splitlines()[1:])
        kib = {name: int(value) for name, value, *_ in lines}
        if kib:  # else it has just ended
            num_told += 1
            private += 1024 * (kib["Pss:"] - kib.get("Pss_Shmem:", 0))
            mapped += 1024 * kib.get("Pss_Shmem:", 0)
            segments.update(_shared_segments(pid))
    return private + max(mapped, sum(segments.values())) if num_told or not pids else None


def _shared_segments(pid: int) -> dict[tuple[int, int], int]:
    """Return the allocated bytes of each shared-memory file that a process holds open, by device and inode."""
    segments = {}
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return {}
    for link in links:
        try:
            if os.readlink(link).startswith(("/dev/shm/", "/memfd:")):
                entry = link.stat()
                segments[entry.st_dev, entry.st_ino] = 512 * entry.st_blocks
        except OSError:  # closed since we listed it
            continue
    return segments


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing is left behind, however our parent ends
    _, name, place, chosen, result_file = sys.argv
    measured = run_loop(name, place, DemoSettings(**json.loads(chosen)))
    Path(result_file).write_text(json.dumps(asdict(measured)))
