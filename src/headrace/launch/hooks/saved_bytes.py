"""How many bytes a save has written, from what it was told to write to."""

from __future__ import annotations

import os
from typing import Any

_NAMES = ("f", "filename", "checkpoint_id")


def target_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what it is saved to: the second argument, or one that has a name; None where neither is there."""
    target = next((kwargs[name] for name in _NAMES if kwargs.get(name) is not None), None)
    return args[1] if target is None and len(args) > 1 else target


def saved_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the size of the file that was written; of a distributed checkpoint, of this rank's files in its folder.

    0 where it is neither a path nor a file with a position.
    """
    target = target_of(args, kwargs)
    if isinstance(target, (str, bytes, os.PathLike)):
        if not os.path.isdir(target):
            return os.path.getsize(target)
        own = f"__{os.environ.get('RANK', '0')}_"
        with os.scandir(os.fsdecode(target)) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name.startswith(own))
    position = getattr(target, "tell", None)
    return int(position()) if position is not None else 0
