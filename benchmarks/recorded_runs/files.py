"""The files of a training: plain ones, arrays of which one is damaged, tar shards; cold, on a disk."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from .drawing import Drawn


def make_data(drawn: Drawn, folder: Path) -> dict[str, str]:
    """Write what a training reads; returns where, as its spec says it."""
    if drawn.damage:
        make_arrays(folder / "files", *drawn.files, drawn.damage)
    elif drawn.files[0]:
        make_files(folder / "files", *drawn.files)
    if drawn.shards[0]:
        make_shards(folder / "shards", *drawn.shards)
    return {name: str(folder / name) for name in ("files", "shards") if (folder / name).is_dir()}


def make_files(folder: Path, count: int, size: int) -> None:
    """Write the files that a training reads, and let go of them in the page cache."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        _write_cold(folder / f"{number:04d}.bin", os.urandom(size))


def make_arrays(folder: Path, count: int, size: int, damage: str) -> None:
    """Write arrays, compressed, and damage one of them: `cut` short, or with some bytes `flipped`."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        with open(folder / f"{number:04d}.npz", "wb") as file:
            np.savez_compressed(file, values=rng.integers(0, 99, size // 8))
    path = folder / f"{count // 2:04d}.npz"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        middle = len(data) // 2
        data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    path.write_bytes(data)


def make_shards(folder: Path, count: int, num_samples: int, size: int) -> None:
    """Write tar shards, and let go of them in the page cache."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as archive:
            for sample in range(num_samples):
                member = tarfile.TarInfo(f"{sample:05d}.bin")
                member.size = size
                archive.addfile(member, io.BytesIO(os.urandom(size)))
        _write_cold(folder / f"shard-{number:04d}.tar", whole.getvalue())


def _write_cold(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder on a disk that can be throttled, not on a tmpfs."""
    return tempfile.TemporaryDirectory(prefix="headrace-runs-", dir="/var/tmp")
