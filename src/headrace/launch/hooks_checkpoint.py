"""Checkpoints: `torch.save`, distributed checkpoints, safetensors. Nested saves are one."""

from __future__ import annotations

from types import ModuleType

from headrace.model import EventKind

from .saved_bytes import saved_bytes
from .wrapping import Depth, replace

_KIND = int(EventKind.CHECKPOINT)
_depth = Depth()


def time_save(torch: ModuleType) -> None:
    """Time `torch.save`, by both of its names."""
    replace(torch, "save", _KIND, "torch.save", _depth, saved_bytes)
    torch.serialization.save = torch.save


def time_distributed_save(saver: ModuleType) -> None:
    """Time the part of distributed saves for which the training waits."""
    for name in ("save", "async_save", "save_state_dict"):
        replace(saver, name, _KIND, f"torch.distributed.checkpoint.{name}", _depth, saved_bytes)


def time_safetensors(safetensors: ModuleType) -> None:
    """Time what Hugging Face's libraries save with."""
    for name in ("save_file", "save_model"):
        replace(safetensors, name, _KIND, f"safetensors.{name}", _depth, saved_bytes)
