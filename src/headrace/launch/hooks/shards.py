"""Shards: every tar archive that is opened for reading, by the script itself or by a library that reads shards."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import now, tape
from .wrapping import Depth

_SHARD_OPEN = int(EventKind.SHARD_OPEN)
_MOST_NAMES = 64  # a process may open thousands of shards: their names would fill its lane
_depth = Depth()
_named: set[str] = set()


def time_archives(tarfile: ModuleType) -> None:
    """Time `tarfile.open`, by both of its names; writing an archive is left alone."""
    original = tarfile.TarFile.open.__func__

    @functools.wraps(original)
    def open_archive(cls: Any, name: Any = None, mode: str = "r", fileobj: Any = None, *args: Any, **more: Any) -> Any:
        if _depth.calls or not mode.startswith("r"):
            return original(cls, name, mode, fileobj, *args, **more)
        _depth.calls = 1
        is_archive = True
        start = now()
        try:
            return original(cls, name, mode, fileobj, *args, **more)
        except tarfile.ReadError:
            is_archive = False  # some ask `tarfile.is_tarfile` of every file
            raise
        finally:
            _depth.calls = 0
            if is_archive:
                number = _number_of(name or getattr(fileobj, "name", None))
                tape.write(_SHARD_OPEN, start, now() - start, 0, number)

    tarfile.TarFile.open = classmethod(open_archive)
    tarfile.open = tarfile.TarFile.open  # type: ignore[attr-defined]


def _number_of(path: Any) -> int:
    """The number of a shard's name; 0 for one without a name, and for those that come after the first ones."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return 0
    text = os.path.basename(os.fsdecode(path))
    if text not in _named:
        if len(_named) >= _MOST_NAMES:
            return 0
        _named.add(text)
    return tape.name(text)
