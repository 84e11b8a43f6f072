"""Tar files for tests, as Python's tarfile and others write them, whole and damaged."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

BLOCK = 512


def write_tar(
    path: Path, members: Iterable[tuple[str, bytes]], *, form: int = tarfile.PAX_FORMAT, **known: object
) -> Path:
    """Write a tar with these members, in this order."""
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for attribute, value in known.items():
                setattr(info, attribute, value)
            archive.addfile(info, io.BytesIO(data))
    return path


def pairs(num: int, *, size: int = 700, first: int = 0) -> list[tuple[str, bytes]]:
    """Members of samples with a picture and a label each."""
    found = []
    for k in range(first, first + num):
        found += [(f"{k:04d}.jpg", bytes([k % 256]) * (size + k)), (f"{k:04d}.cls", str(k).encode())]
    return found


def expected(members: Iterable[tuple[str, bytes]], path: Path | str) -> list[dict[str, object]]:
    """The samples that members make by WebDataset's rule."""
    samples: dict[str, dict[str, object]] = {}
    for name, data in members:
        key, _, field = name.partition(".")
        samples.setdefault(key, {"__key__": key, "__url__": str(path)})[field] = data
    return list(samples.values())


def header_of(path: Path, name: str) -> int:
    """Where the header of a member begins."""
    with tarfile.open(path) as archive:
        return archive.getmember(name).offset


def data_of(path: Path, name: str) -> int:
    """Where the data of a member begins."""
    with tarfile.open(path) as archive:
        return archive.getmember(name).offset_data


def cut(path: Path, size: int) -> Path:
    """Cut a file."""
    with path.open("r+b") as file:
        file.truncate(size)
    return path


def overwrite(path: Path, offset: int, data: bytes) -> Path:
    """Put bytes in the place of others."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    return path
