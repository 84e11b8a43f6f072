"""The data set of the demo: small compressed volumes on a disk that is slow on purpose."""

import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

SHAPE = (64, 96, 96)  # int16: 1.1 MiB a sample, about 4 ms to inflate
SAMPLE_BYTES = 2 * SHAPE[0] * SHAPE[1] * SHAPE[2]
SLOWEST_READ_MS = 20
FASTEST_READ_MS = 10


class VolumeSample(TypedDict):
    """One sample: what a segmentation or classification data set would return."""

    volume: NDArray[np.int16]
    label: int
    index: int


def read_seconds(index: int) -> float:
    """Return how long the simulated disk takes for a sample: a function of its index alone, so both loaders pay it.

    >>> all(FASTEST_READ_MS <= 1000 * read_seconds(i) <= SLOWEST_READ_MS for i in range(100))
    True
    """
    spread = (index * 2654435761 % 2**32) / 2**32  # Knuth's multiplicative hash: even, and without a pattern
    return (FASTEST_READ_MS + (SLOWEST_READ_MS - FASTEST_READ_MS) * spread) / 1000


class SlowVolumes:
    """A map-style data set over the files that `write_volumes` made."""

    def __init__(self, folder: str, num_samples: int) -> None:
        self.folder = folder
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> VolumeSample:
        time.sleep(read_seconds(index))
        with np.load(_path(self.folder, index)) as arrays:
            return {"volume": arrays["volume"], "label": int(arrays["label"]), "index": index}


def write_volumes(folder: str, num_samples: int, *, each: Callable[[int], None] = lambda _: None) -> None:
    """Write the samples, each one different, and tell `each` the index of the next one."""
    z, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    bright = 1000 * np.exp(-((z - 30) ** 2 / 200 + (y - 40) ** 2 / 400 + (x - 60) ** 2 / 300))
    random = np.random.default_rng(0)
    noise = random.integers(0, 4, SHAPE, dtype=np.int16)  # like a scanner's: it keeps the volume from vanishing in zip
    for index in range(num_samples):
        each(index)
        body = np.roll(bright.astype(np.int16), shift=(3 * index, 5 * index), axis=(1, 2)) + noise
        body[0, 0, 0] = index
        with zipfile.ZipFile(_path(folder, index), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, array in (("volume", body), ("label", np.int64(index % 2))):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.asanyarray(array))


def _path(folder: str, index: int) -> Path:
    return Path(folder) / f"volume-{index:05d}.npz"
