"""The files of W1 and W3 as tar shards, made on first use: six of them, as plain as `tarfile` writes them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from synthetic import ensure, num_samples

NUM_SHARDS = 6


def ensure_shards(workload: str, size: str) -> list[Path]:
    """Return the shards of "sa1b" (JPEG + NPZ) or "small" (3 KB + label), made where they are missing."""
    folder = ensure(workload, size) / workload / "tar"
    folder.mkdir(parents=True, exist_ok=True)
    num = num_samples(workload, size)
    paths = [folder / f"{number:05d}.tar" for number in range(NUM_SHARDS)]
    for number, path in enumerate(paths):
        if not path.exists():
            chosen = range(num * number // NUM_SHARDS, num * (number + 1) // NUM_SHARDS)
            write_tar(path, _members(workload, folder.parent, chosen))
    return paths


def _members(workload: str, folder: Path, chosen: range) -> Iterator[tuple[str, bytes]]:
    if workload == "small":
        rows = np.load(folder / "x.npy", mmap_mode="r")
        for k in chosen:
            yield f"{k:06d}.x", rows[k].tobytes()
            yield f"{k:06d}.cls", str(k % 10).encode()
    else:
        for k in chosen:
            for ending in ("jpg", "npz"):
                yield f"{k:06d}.{ending}", (folder / "loose" / f"{k:06d}.{ending}").read_bytes()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], **known: float) -> None:
    """Write a tar under a temporary name, then give it its own."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with tarfile.open(temporary, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for attribute, value in known.items():
                setattr(info, attribute, value)
            archive.addfile(info, io.BytesIO(data))
    temporary.replace(path)


def warm_shards(paths: Iterable[Path]) -> None:
    """Read the shards once, so that they are in the page cache."""
    for path in paths:
        with path.open("rb") as file:
            while file.read(8 << 20):
                pass
