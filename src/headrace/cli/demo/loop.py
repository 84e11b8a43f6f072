"""One measured run of the demo's training loop, in a process of its own, and the data set that it loads.

`headrace demo` starts it as `python -m headrace.cli.demo.loop LOADER FOLDER SETTINGS RESULT_FILE`.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
import zipfile
import zlib
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from headrace.signals.system import read_rollup, walk_tree

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
    epochs: int = 2


@dataclass(frozen=True, kw_only=True)
class LoopResult:
    """What one run measured. Waits are all but the first, epoch after epoch."""

    first_batch_s: float
    waits_s: list[float]
    samples_per_s: float
    memory_before_bytes: int | None
    checksums: list[int]


class SlowVolumes:
    """A map-style data set over the files that `write_volumes` made."""

    def __init__(self, folder: str, num_samples: int) -> None:
        self.folder, self.num_samples = folder, num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        # How long the disk takes is a function of the index alone, so both loaders pay it. Knuth's multiplicative
        # hash: even, and without a pattern.
        spread = (index * 2654435761 % 2**32) / 2**32
        time.sleep((FASTEST_READ_MS + (SLOWEST_READ_MS - FASTEST_READ_MS) * spread) / 1000)
        with np.load(_path(self.folder, index)) as arrays:
            return {"volume": arrays["volume"], "label": index % 2, "index": index}


def write_volumes(folder: str, num_samples: int) -> None:
    """Write the samples, small compressed volumes, each one different."""
    noise = np.random.default_rng(0).integers(0, 64, SHAPE, dtype=np.int16)
    for index in range(num_samples):
        # not savez_compressed, which takes four times as long to make them as small as they can be
        with zipfile.ZipFile(_path(folder, index), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open("volume.npy", "w") as member:
                np.lib.format.write_array(member, np.roll(noise, index))


def _path(folder: str, index: int) -> Path:
    return Path(folder) / f"volume-{index:05d}.npz"


def run_loop(loader_name: str, folder: str, settings: DemoSettings) -> LoopResult:
    """Train a small model over the data set in a folder and measure what the loop saw of its loader."""
    import torch
    import torch.utils.data

    import headrace

    torch.set_num_threads(1)  # on the machine of a demo the cores belong to the workers
    weights = torch.zeros(int(np.prod([-(-length // _EVERY) for length in SHAPE])), 2, requires_grad=True)
    kind = headrace.DataLoader if loader_name == "headrace" else torch.utils.data.DataLoader
    data: Any = SlowVolumes(folder, settings.samples)  # a worker needs no torch for this one
    memory_before_bytes = tree_memory_bytes(os.getpid())

    arrivals: list[float] = []
    waits_s: list[float] = []
    checksums: list[int] = []
    asked_at = time.perf_counter()
    loader = kind(
        data,
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )
    for _ in range(settings.epochs):
        for batch in loader:
            arrivals.append(time.perf_counter())
            waits_s.append(arrivals[-1] - asked_at)
            # All bytes, as a copy to a device would read them; this is also what shows that batches are identical.
            checksums.append(0)
            for name in sorted(batch):
                checksums[-1] = zlib.crc32(batch[name].numpy().data, checksums[-1])
            voxels = batch["volume"][:, ::_EVERY, ::_EVERY, ::_EVERY].flatten(1).float()
            loss = torch.nn.functional.cross_entropy(voxels @ weights, batch["label"])
            # By hand: a torch optimizer imports the compiler, which costs a second and leaves a folder behind.
            (gradient,) = torch.autograd.grad(loss, [weights])
            with torch.no_grad():
                weights.sub_(1e-6 * gradient)
            del batch, voxels
            asked_at = time.perf_counter()
        asked_at = time.perf_counter()

    delivered = settings.epochs * settings.samples - settings.batch_size
    del loader
    gc.collect()  # the workers end before we do
    return LoopResult(
        first_batch_s=waits_s[0],
        waits_s=waits_s[1:],
        samples_per_s=delivered / (arrivals[-1] - arrivals[0]),
        memory_before_bytes=memory_before_bytes,
        checksums=checksums,
    )


def tree_memory_bytes(pid: int) -> int | None:
    """Return what a process and all below it occupy, or None where the kernel does not tell.

    This is the sum of their PSS, with one correction: a shared-memory segment on its way from a worker to the loop
    is mapped by nobody for a while, but occupies memory all the same. So shared memory counts with what its segments
    have allocated where that is more than what is mapped.
    """
    pids = [one.pid for one in walk_tree([pid])]
    told = [rollup for rollup in map(read_rollup, pids) if rollup is not None]
    segments: dict[tuple[int, int], int] = {}  # allocated bytes by device and inode
    for link in (link for one in pids for link in glob(f"/proc/{one}/fd/*")):
        try:
            if os.readlink(link).startswith(("/dev/shm/", "/memfd:")):
                entry = os.stat(link)
                segments[entry.st_dev, entry.st_ino] = 512 * entry.st_blocks
        except OSError:  # closed since we listed it
            continue
    mapped = sum(rollup.shared_pss_bytes for rollup in told)
    private = sum(rollup.pss_bytes for rollup in told) - mapped
    return private + max(mapped, sum(segments.values())) if told else None


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing is left behind, however our parent ends
    _, name, place, chosen, result_file = sys.argv
    measured = run_loop(name, place, DemoSettings(**json.loads(chosen)))
    Path(result_file).write_text(json.dumps(asdict(measured)))
