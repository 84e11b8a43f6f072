"""Limits on a disk that are known: a control group that may read so many bytes, or do so many reads, a second.

Control groups of version 1 (`blkio.throttle.*`) and 2 (`io.max`). Needs to be root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/blkio")
_V2 = Path("/sys/fs/cgroup")


class NoLimitHere(Exception):
    """A limit cannot be set on this machine."""


class Limited:
    """A control group; commands run in it are held to its limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, command: list[str], *, timeout: float = 120.0) -> str:
        """Run a command inside, and return what it printed."""
        entering = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command]
        return subprocess.run(entering, check=True, capture_output=True, text=True, timeout=timeout).stdout


def disk_of(path: Path) -> str:
    """The number of the whole disk that a file lies on, as the limits want it."""
    status = os.stat(path)
    device = Path(f"/sys/dev/block/{os.major(status.st_dev)}:{os.minor(status.st_dev)}")
    if not device.exists():
        raise NoLimitHere(f"{path} is on no block device")
    folder = device.resolve()
    if (folder / "partition").exists():
        folder = folder.parent
    return (folder / "dev").read_text().strip()


@contextlib.contextmanager
def limited(path: Path, *, bytes_per_s: int | None = None, reads_per_s: int | None = None) -> Iterator[Limited]:
    """A control group that may read from a file's disk so much and no more; raises `NoLimitHere` where it cannot be."""
    disk = disk_of(path)
    is_v1 = (_V1 / "blkio.throttle.read_bps_device").exists()
    folder = (_V1 if is_v1 else _V2) / f"headrace-storage-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoLimitHere(f"no control group can be made: {error}") from error
    try:
        try:
            if is_v1:
                (folder / "blkio.throttle.read_bps_device").write_text(f"{disk} {bytes_per_s or 0}")
                (folder / "blkio.throttle.read_iops_device").write_text(f"{disk} {reads_per_s or 0}")
            else:
                limits = f"rbps={bytes_per_s or 'max'} riops={reads_per_s or 'max'}"
                (folder / "io.max").write_text(f"{disk} {limits}")
        except OSError as error:
            raise NoLimitHere(f"no limit can be set: {error}") from error
        yield Limited(folder)
    finally:
        folder.rmdir()
