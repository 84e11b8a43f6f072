"""The files that another process has open: how far it has read them, and on what kind of file system they lie."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

# File systems whose server may stop answering.
NETWORK_KINDS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "afs", "9p", "virtiofs", "orangefs")
)


@dataclass(frozen=True, kw_only=True)
class OpenFile:
    """One descriptor: a path, or what the kernel calls it ("socket:[123]", "pipe:[45]")."""

    fd: int
    path: str
    position: int
    size: int | None
    kind: str  # "file", "socket", "pipe", "other"
    file_system: str  # "" where it is not known

    @property
    def is_remote(self) -> bool:
        """Whether reading it may wait for a server: a network file system, or one in user space (FUSE)."""
        return self.file_system in NETWORK_KINDS or self.file_system.partition(".")[0] in {"fuse", "fuseblk"}


def read_open_files(pid: int, *, root: Path = Path("/")) -> tuple[OpenFile, ...]:
    """The open files of a process by descriptor; empty where they may not be seen."""
    folder = root / f"proc/{pid}"
    try:
        fds = sorted(int(name) for name in os.listdir(folder / "fd"))
    except OSError:
        return ()
    systems = _file_systems(folder / "mountinfo")
    found = (_read_file(folder, fd, systems) for fd in fds)
    return tuple(file for file in found if file is not None)


def _read_file(folder: Path, fd: int, systems: dict[int, str]) -> OpenFile | None:
    link = folder / "fd" / str(fd)
    try:
        path = os.readlink(link)
        fields = dict(line.split(":", 1) for line in (folder / f"fdinfo/{fd}").read_text().splitlines() if ":" in line)
    except OSError:  # closed meanwhile
        return None
    position, mount = int(fields.get("pos", "0")), int(fields.get("mnt_id", "-1"))
    file_system = systems.get(mount, "")
    kind, size = "other", None
    if path.startswith("socket:"):
        kind = "socket"
    elif path.startswith("pipe:"):
        kind = "pipe"
    elif path.startswith("/"):
        kind = "file"
        remote = OpenFile(fd=fd, path=path, position=0, size=None, kind=kind, file_system=file_system).is_remote
        if file_system and not remote:  # to ask a server that does not answer would hang us too
            size = _size(link)
    return OpenFile(fd=fd, path=path, position=position, size=size, kind=kind, file_system=file_system)


def _size(link: Path) -> int | None:
    try:
        result = os.stat(link)
    except OSError:
        return None
    return result.st_size if stat.S_ISREG(result.st_mode) else None


def _file_systems(path: Path) -> dict[int, str]:
    """File system by mount number."""
    found = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        left, _, right = line.partition(" - ")
        if left and right:
            found[int(left.split()[0])] = right.split()[0]
    return found
