"""Which mount a path lies on, from the kernel's table of mounts (/proc/self/mountinfo).

The format is the one of proc(5): `id parent major:minor root mount-point options [tags] - type source super-options`.
Blanks and backslashes inside a field are written as three octal digits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_OCTAL = re.compile(rb"\\([0-7]{3})")
_NOT_ESCAPED_COLON = re.compile(r"(?<!\\):")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of the table."""

    mount_id: int
    parent_id: int
    device: str  # "259:2"; a major of 0 means that there is no block device of this number
    root: str  # what of the file system is mounted here: not "/" for bind mounts and subvolumes
    mount_point: str
    fs_type: str  # "ext4", "nfs4", "fuse.sshfs"
    source: str
    options: Mapping[str, str] = field(default_factory=dict)  # of the file system; one without a value has ""

    @property
    def is_bind(self) -> bool:
        """Whether only a folder of a file system is mounted here (a subvolume of btrfs looks alike, and is not one)."""
        return self.root not in ("/", "") and self.fs_type not in ("btrfs", "cgroup", "cgroup2", "nsfs")

    def layers(self) -> tuple[str, ...]:
        """The folders that an overlay shows as one, the one written to first; empty for any other file system."""
        if self.fs_type != "overlay":
            return ()
        lower = [path for name in ("lowerdir", "lowerdir+") for path in _paths(self.options.get(name, ""))]
        return (*_paths(self.options.get("upperdir", "")), *lower)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Read the table of mounts. Lines that are not of the format are passed over: a kernel may add new kinds."""
    return tuple(mount for mount in map(_parse_line, text.splitlines()) if mount is not None)


def read_mounts(proc_root: Path = Path("/proc")) -> tuple[Mount, ...]:
    """The mounts that this process sees; empty where the table cannot be read."""
    try:
        return parse_mountinfo((proc_root / "self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return ()


def mount_of(path: str, mounts: Iterable[Mount], *, mount_id: int | None = None) -> Mount | None:
    """The mount that an absolute path without links lies on.

    A mount may hide another one at the same place, and the table's order does not always tell which is on top:
    `mount_id`, if it is known, decides. Else it is the last one of the longest mount point.
    """
    best = None
    for mount in mounts:
        if mount_id is not None and mount.mount_id == mount_id:
            return mount
        if _is_below(path, mount.mount_point) and (best is None or len(mount.mount_point) >= len(best.mount_point)):
            best = mount
    return best


def mount_id_of(path: str, proc_root: Path = Path("/proc")) -> int | None:
    """The id of the mount that a path is reached through, as the kernel tells it for an open file; None: not told."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for line in (proc_root / "self/fdinfo" / str(fd)).read_text().splitlines():
            if line.startswith("mnt_id:"):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    finally:
        os.close(fd)
    return None


def _parse_line(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not separator or len(left) < 6 or len(right) < 2 or not (left[0].isdigit() and left[1].isdigit()):
        return None
    return Mount(
        mount_id=int(left[0]),
        parent_id=int(left[1]),
        device=left[2],
        root=_unescape(left[3]),
        mount_point=_unescape(left[4]),
        fs_type=_unescape(right[0]),
        source=_unescape(right[1]),
        options=_options(right[2] if len(right) > 2 else ""),
    )


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in filter(None, text.split(",")):
        name, _, value = option.partition("=")
        value = _unescape(value)
        # `lowerdir+=` comes once for each layer
        found[name] = f"{found[name]}:{value}" if name.endswith("+") and name in found else value
    return found


def _paths(text: str) -> list[str]:
    """The folders of an overlay's option; `::` starts those that hold data only."""
    return [path.replace("\\:", ":") for path in _NOT_ESCAPED_COLON.split(text) if path]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    raw = text.encode("utf-8", "surrogateescape")
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), raw).decode("utf-8", "surrogateescape")


def _is_below(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)
