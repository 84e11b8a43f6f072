"""A training that goes on: one sample is broken, one kills its worker, one hangs; the epoch keeps its shape.

    python examples/survive_bad_samples.py

Prints what was left out and why, and the account of the epoch.
"""

from __future__ import annotations

import logging
import os
import time

import numpy as np
import numpy.typing as npt

import headrace
from headrace import DataLoader


class Scans:
    """Scans of which three are bad, each in its own way."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> npt.NDArray[np.float32]:
        if index == 17:
            raise ValueError("scan_0017.npz: the header is cut off")
        if index == 40:
            os.abort()  # what a decoder in native code does on damaged data
        if index == 63:
            time.sleep(3600)  # a read from a file server that is gone
        return np.full((8, 8), index, dtype=np.float32)


def main() -> None:
    logging.basicConfig(level=logging.ERROR)  # WARNING shows each death with its evidence, and stacks of what hangs
    loader: DataLoader[npt.NDArray[np.float32]] = DataLoader(
        Scans(),  # any map-style data set will do
        batch_size=8,
        num_workers=2,
        on_error="quarantine",
        timeout=1.0,
    )
    started = time.perf_counter()
    sizes = [len(batch) for batch in loader]
    print(f"{len(sizes)} batches of {set(sizes)} samples in {time.perf_counter() - started:.1f} s")
    failure: headrace.SampleFailure
    for failure in loader.quarantine:
        print(f"left out: {failure}")
    print(loader.stats().account, f"workers lost: {loader.stats().workers_lost}")


if __name__ == "__main__":
    main()
