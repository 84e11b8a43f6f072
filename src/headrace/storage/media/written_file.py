"""A file to test storage with, written for the test and removed whatever happens."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import UnusableInput
from headrace.model import format_bytes

_CHUNK = 4 << 20
_LEAVE_FREE = 1 << 30  # a full file system would stop whatever else writes there


@contextlib.contextmanager
def written_test_file(folder: Path, size: int) -> Iterator[Path]:
    """Write a file of random bytes, which nothing can compress, through to the storage; remove it at the end."""
    free = os.statvfs(folder)
    free_bytes = free.f_bavail * free.f_frsize
    if free_bytes < size + _LEAVE_FREE:
        raise UnusableInput(
            f"no test file is written to {folder}: too little is free there",
            asked=format_bytes(size),
            free=format_bytes(free_bytes),
            kept_free=format_bytes(_LEAVE_FREE),
            next_step="a smaller --write-test",
        )
    try:
        fd, name = tempfile.mkstemp(prefix=".headrace-storage-", dir=folder)
    except OSError as error:
        raise UnusableInput(f"cannot write to {folder}: {error.strerror or error}") from error
    path = Path(name)
    try:
        try:
            for start in range(0, size, _CHUNK):
                _write_all(fd, os.urandom(min(_CHUNK, size - start)))
            os.fsync(fd)
        except OSError as error:
            raise UnusableInput(f"cannot write the test file to {folder}: {error.strerror or error}") from error
        finally:
            os.close(fd)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
