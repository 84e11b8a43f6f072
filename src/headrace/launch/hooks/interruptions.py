"""What a loop does besides training: checkpoints, what is done with a file that was just saved, and logs.

`torch.save`, distributed saves, safetensors; nested ones are one. Afterwards a script brings the file to disk, gives it
its name, copies it. Logs: handlers of `logging` by their class, loguru, TensorBoard, wandb, tqdm.
"""

import functools
import logging
import os
import shutil
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import tape
from .wrapping import Inside, instead_of, outermost, replace, timed

_CHECKPOINT, _LOGGING = int(EventKind.CHECKPOINT), int(EventKind.LOGGING)
_COMPLETIONS = ("staging_completion", "upload_completion")
in_checkpoint: Inside = set()
in_logging: Inside = set()
_TARGETS = ("f", "filename", "checkpoint_id")  # what `save` functions call the place to save to
_MOST_FILES = 64  # that are remembered; a sharded checkpoint has dozens
_FOLDER_SETS = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
_saved_files: dict[tuple[int, int], None] = {}  # by device and inode, the oldest first: a name may change, these do not

_WORTH_NS = 20_000  # a short line: many of them become one event
_TOGETHER_NS = 1_000_000
_OFTEN = {"loguru._handler": ("Handler", "emit", "loguru"), "tqdm.std": ("tqdm", "display", "tqdm")}


def time_save(torch: ModuleType) -> None:
    """Time `torch.save`, by both of its names, and what is done with its file afterwards."""
    replace(torch, "save", _CHECKPOINT, "torch.save", in_checkpoint, saved_bytes)
    torch.serialization.save = torch.save
    for name in ("fsync", "fdatasync", "rename", "replace"):
        _replace_on_saved(os, name)
    _replace_on_saved(shutil, "copyfile")  # the other ways to copy or move a file come here


def time_distributed_save(saver: ModuleType) -> None:
    """Time the part of distributed saves for which the training waits; asking an asynchronous one for its result is."""
    for name in ("save", "async_save", "save_state_dict"):
        replace(saver, name, _CHECKPOINT, f"torch.distributed.checkpoint.{name}", in_checkpoint, saved_bytes)
    original: Any = saver.async_save

    @instead_of(saver, "async_save")
    def async_save(*args: Any, **kwargs: Any) -> Any:
        response = original(*args, **kwargs)
        for future in (response, *(getattr(response, name, None) for name in _COMPLETIONS)):
            if isinstance(future, Future):
                replace(future, "result", _CHECKPOINT, "async_save().result", in_checkpoint)
        return response


def time_safetensors(safetensors: ModuleType) -> None:
    for name in ("save_file", "save_model"):
        replace(safetensors, name, _CHECKPOINT, f"safetensors.{name}", in_checkpoint, saved_bytes)


def saved_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return how much was written: a file, or of a distributed checkpoint this rank's files; 0: not known.

    Where it was saved to, the second argument or one that has a name, is remembered.
    """
    named = (kwargs[name] for name in _TARGETS if kwargs.get(name) is not None)
    target = next(named, args[1] if len(args) > 1 else None)
    _remember(target)
    if isinstance(target, (str, bytes, os.PathLike)):
        if not os.path.isdir(target):
            return os.path.getsize(target)
        own = f"__{os.environ.get('RANK', '0')}_"
        with os.scandir(os.fsdecode(target)) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name.startswith(own))
    position = getattr(target, "tell", None)
    return int(position()) if position is not None else 0


def _remember(target: Any) -> None:
    if (key := _key(target)) is not None:
        _saved_files[key] = _saved_files.pop(key, None)
        while len(_saved_files) > _MOST_FILES:
            _saved_files.pop(next(iter(_saved_files)), None)


def _key(target: Any) -> tuple[int, int] | None:
    """Return what tells a file from others, of a path, a descriptor or a file; None where it is none of these."""
    try:
        found = os.stat(target.fileno() if hasattr(target, "fileno") else target)
    except Exception:  # a file in memory, or whatever a user's object is
        return None
    return found.st_dev, found.st_ino


def _replace_on_saved(owner: Any, name: str) -> None:
    """Time a function where its first argument is a saved file; what its second one names is such a file then, too."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "__wrapped_by_headrace__"):
        return
    timing = timed(original, _CHECKPOINT, f"{owner.__name__}.{name}", in_checkpoint)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _saved_files or _key(args[0] if args else kwargs.get("src", kwargs.get("fd"))) not in _saved_files:
            return original(*args, **kwargs)
        result = timing(*args, **kwargs)
        _remember(args[1] if len(args) > 1 else kwargs.get("dst"))
        return result

    wrapper.__wrapped_by_headrace__ = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)
    for known in (getattr(os, one, None) for one in _FOLDER_SETS):
        if known is not None and original in known:  # by these a script asks what a function can do
            known.add(wrapper)


# ---------------------------------------------------------------------------------------- logs


def _timed_often(function: Any, what: str) -> Any:
    """Time a method that is called for every line, microseconds summed up; an empty `what` is the object's class."""
    small: dict[str, int] = {}  # many short writes, told of as one event when they have become worth it

    def tell(start: int, duration: int, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        name = what or f"{type(args[0]).__module__}.{type(args[0]).__qualname__}"
        if duration >= _WORTH_NS:
            tape.write(_LOGGING, start, duration, 1, tape.name(name))
        elif (total_ns := small.pop(name, 0) + duration) >= _TOGETHER_NS:
            tape.write(_LOGGING, start + duration - total_ns, total_ns, 0, tape.name(name))
        else:
            small[name] = total_ns

    return outermost(function, in_logging, tell)


def time_logging(_torch: ModuleType) -> None:
    logging.Handler.handle = _timed_often(logging.Handler.handle, "")  # type: ignore[method-assign]


def time_lines(module: ModuleType) -> None:
    """Time what loguru's sinks take, and what it takes tqdm to draw its bar."""
    cls, method, what = _OFTEN[module.__name__]
    setattr(getattr(module, cls), method, _timed_often(getattr(getattr(module, cls), method), what))


def time_summary_writer(writer: ModuleType) -> None:
    cls = writer.SummaryWriter
    for name in dir(cls):
        if name.startswith("add_") or name in {"flush", "close"}:
            replace(cls, name, _LOGGING, "tensorboard", in_logging)
