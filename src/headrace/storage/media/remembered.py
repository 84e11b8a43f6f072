"""The depth that a probe found, kept for later loaders of this machine: a small file in the user's cache folder.

It is written only when asked for (`headrace storage --remember`). What is kept holds for one host and one storage: the
host's name, the device or the server, and the layers above it are its key. It is forgotten after 30 days, for disks are
replaced and networks change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model import cache_folder

if TYPE_CHECKING:
    from .kinds import StorageKind
    from .probe_result import ProbeResult

MAX_AGE_S = 30 * 86400.0
_SCHEMA = "headrace/remembered-depth/1"


@dataclass(frozen=True, kw_only=True)
class RememberedDepth:
    """What was measured, and when."""

    io_depth: int
    bytes_per_s: float
    read_bytes: int | None  # None: whole small files
    measured_at_s: float  # seconds since 1970

    def age_s(self, now_s: float | None = None) -> float:
        return (time.time() if now_s is None else now_s) - self.measured_at_s


def remember(result: ProbeResult) -> Path | None:
    """Keep the depth that a probe found, and return the file; None where it found none, or nothing can be written."""
    ladder = {reading.depth: reading for reading in result.ladder}
    reading = ladder.get(result.suggestion.io_depth)
    if not result.suggestion.is_measured or reading is None:
        return None
    kept = RememberedDepth(
        io_depth=result.suggestion.io_depth,
        bytes_per_s=reading.bytes_per_s,
        read_bytes=reading.read_bytes,
        measured_at_s=time.time(),
    )
    path = _file_of(result.kind)
    document = {"schema": _SCHEMA, "storage": result.kind.name, "device": result.kind.device, **asdict(kept)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    except OSError:
        return None
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False, indent=1)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        return None
    return path


def recall(kind: StorageKind, *, now_s: float | None = None) -> RememberedDepth | None:
    """What is kept of a storage; None where there is nothing, where it is too old, or not what we wrote."""
    try:
        document = json.loads(_file_of(kind).read_text(encoding="utf-8"))
        if document["schema"] != _SCHEMA or document["storage"] != kind.name:
            return None
        kept = RememberedDepth(
            io_depth=int(document["io_depth"]),
            bytes_per_s=float(document["bytes_per_s"]),
            read_bytes=None if document["read_bytes"] is None else int(document["read_bytes"]),
            measured_at_s=float(document["measured_at_s"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    is_usable = kept.io_depth >= 1 and 0 <= kept.age_s(now_s) <= MAX_AGE_S
    return kept if is_usable else None


def _file_of(kind: StorageKind) -> Path:
    key = "\0".join((platform.node(), kind.device, kind.name))
    return cache_folder() / "storage" / f"{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:20]}.json"
