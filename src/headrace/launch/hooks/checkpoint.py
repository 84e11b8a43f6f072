"""Checkpoints: `torch.save`, distributed ones, safetensors, and what is done with a file that was just saved.

Nested saves are one. Afterwards a script brings the file to disk, gives it its name, copies it.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from .wrapping import Depth, replace, timed

_KIND = int(EventKind.CHECKPOINT)
_COMPLETIONS = ("staging_completion", "upload_completion")
checkpoint_depth = Depth()
_TARGETS = ("f", "filename", "checkpoint_id")  # what `save` functions call the place to save to
_MOST_FILES = 64  # that are remembered; a sharded checkpoint has dozens
_FOLDER_SETS = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
_SIZE_FROM = 64 << 10  # bytes: below, files of the same size are no rarity
_SIZE_SLACK = 4096
Key = tuple[int, int]  # device, inode


def time_save(torch: ModuleType) -> None:
    """Time `torch.save`, by both of its names, and what is done with its file afterwards."""
    replace(torch, "save", _KIND, "torch.save", checkpoint_depth, _saved)
    torch.serialization.save = torch.save
    _time_files()


def time_distributed_save(saver: ModuleType) -> None:
    """Time the part of distributed saves for which the training waits.

    What an asynchronous save does in its own thread or process is nobody's wait; asking for its result is.
    """
    for name in ("save", "async_save", "save_state_dict"):
        replace(saver, name, _KIND, f"torch.distributed.checkpoint.{name}", checkpoint_depth, _saved)
    original: Any = saver.async_save

    @functools.wraps(original)
    def async_save(*args: Any, **kwargs: Any) -> Any:
        response = original(*args, **kwargs)
        for future in (response, *(getattr(response, name, None) for name in _COMPLETIONS)):
            if isinstance(future, Future):
                replace(future, "result", _KIND, "async_save().result", checkpoint_depth)
        return response

    saver.async_save = async_save  # type: ignore[attr-defined]


def time_safetensors(safetensors: ModuleType) -> None:
    """Time what Hugging Face's libraries save with."""
    for name in ("save_file", "save_model"):
        replace(safetensors, name, _KIND, f"safetensors.{name}", checkpoint_depth, _saved)


def _saved(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return how much was saved, and remember where."""
    size = saved_bytes(args, kwargs)
    saved_files.add(target_of(args, kwargs), size)
    return size


def target_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what it is saved to: the second argument, or one that has a name; None where neither is there."""
    target = next((kwargs[name] for name in _TARGETS if kwargs.get(name) is not None), None)
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


class SavedFiles:
    """The files that were saved last, and their folders, by device and inode: a name may change, these do not."""

    def __init__(self) -> None:
        self._keys: dict[Key, None] = {}  # the oldest first
        self._sizes: dict[int, None] = {}  # of what was saved into memory, to be written by the script itself

    def __repr__(self) -> str:
        return f"SavedFiles({len(self._keys)})"

    def __bool__(self) -> bool:
        return bool(self._keys or self._sizes)

    def add(self, target: Any, size: int = 0) -> None:
        """Remember what was saved to: a path, or a file; of one in memory, how much."""
        try:
            if isinstance(target, (str, bytes, os.PathLike)):
                self._remember(self._keys, _key(os.stat(target)))
                if not os.path.isdir(target):
                    self._add_folder_of(target)
                return
            fileno = getattr(target, "fileno", None)
            if fileno is not None:
                self._remember(self._keys, _key(os.fstat(fileno())))
                if isinstance(name := getattr(target, "name", None), (str, bytes)):
                    self._add_folder_of(name)
                return
        except Exception:  # `io.UnsupportedOperation`: it lies in memory. Or whatever a user's object is
            pass
        if size >= _SIZE_FROM:
            self._remember(self._sizes, size)

    def has(self, at: Any) -> bool:
        """Whether a path or a descriptor is a saved file or its folder; a file as large as what was saved is one."""
        try:
            found = os.stat(at.fileno() if hasattr(at, "fileno") else at)
            if _key(found) in self._keys:
                return True
            if any(0 <= found.st_size - size <= _SIZE_SLACK for size in [*self._sizes]):
                self._remember(self._keys, _key(found))
                return True
        except Exception:  # the call itself will say what is wrong with its argument
            pass
        return False

    def _add_folder_of(self, path: str | bytes | os.PathLike[Any]) -> None:
        self._remember(self._keys, _key(os.stat(os.path.dirname(os.path.abspath(path)))))

    @staticmethod
    def _remember(known: dict[Any, None], one: Any) -> None:
        known.pop(one, None)
        known[one] = None
        while len(known) > _MOST_FILES:
            known.pop(next(iter(known)), None)


saved_files = SavedFiles()


def _time_files() -> None:
    """Time what is done to saved files, once for the process.

    `os.fsync`, `os.replace`, `shutil.copyfile` and their like are timed as part of the checkpoint where the file, or
    the folder that it lies in, is one that was just saved. Of other files the calls go on as they are.
    """
    for name in ("fsync", "fdatasync"):
        _replace_on_saved(os, name, f"os.{name}", ("fd",))
    for name in ("rename", "replace"):
        _replace_on_saved(os, name, f"os.{name}", ("src", "dst"))
    for name in ("copyfile", "copytree", "move"):  # `copy` and `copy2` come here
        _replace_on_saved(shutil, name, f"shutil.{name}", ("src", "dst"))


def _replace_on_saved(owner: Any, name: str, what: str, names: Sequence[str]) -> None:
    """Time a function where its first argument is a saved file; what its second one names is such a file then, too."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "__wrapped_by_headrace__"):
        return
    timing = timed(original, _KIND, what, checkpoint_depth)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not saved_files or not saved_files.has(args[0] if args else kwargs.get(names[0])):
            return original(*args, **kwargs)
        result = timing(*args, **kwargs)
        if len(names) > 1:
            saved_files.add(args[1] if len(args) > 1 else kwargs.get(names[1]))
        return result

    wrapper.__wrapped_by_headrace__ = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)
    for known in (getattr(os, one, None) for one in _FOLDER_SETS):
        if known is not None and original in known:  # by these a script asks what a function can do
            known.add(wrapper)


def _key(found: os.stat_result) -> Key:
    return found.st_dev, found.st_ino
