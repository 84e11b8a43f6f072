"""Checkpoints: `torch.save`, distributed checkpoints, safetensors. Nested saves are one."""

from __future__ import annotations

import functools
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from .saved_bytes import saved_bytes, target_of
from .saved_files import saved_files, time_files
from .wrapping import Depth, replace

_KIND = int(EventKind.CHECKPOINT)
_COMPLETIONS = ("staging_completion", "upload_completion")
checkpoint_depth = Depth()


def time_save(torch: ModuleType) -> None:
    """Time `torch.save`, by both of its names, and what is done with its file afterwards."""
    replace(torch, "save", _KIND, "torch.save", checkpoint_depth, _saved)
    torch.serialization.save = torch.save
    time_files(checkpoint_depth)


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
