"""Copies to the device and waiting for it, as far as the host stands still for them; nothing without a device."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from .tape import now, tape
from .wrapping import Depth, replace

_H2D, _SYNC = int(EventKind.H2D), int(EventKind.SYNC)
_WORTH_NS = 2_000  # a scalar that is there already
_READS = {
    "item": ".item()",
    "tolist": ".tolist()",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "int()",
    "__bool__": "bool()",
}
_COPIES = ("to", "cuda", "cpu", "copy_")
_depth = Depth()


def time_device(torch: ModuleType) -> None:
    """Time copies and synchronisation where torch was built for a device."""
    if not (torch.version.cuda or getattr(torch.version, "hip", None) or getattr(torch.version, "xpu", None)):
        return
    time_tensors(torch.Tensor)
    replace(torch.cuda, "synchronize", _SYNC, "synchronize()", _depth)
    for name in ("Stream", "Event"):
        replace(getattr(torch.cuda, name), "synchronize", _SYNC, f"{name}.synchronize()", _depth)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        replace(accelerator, "synchronize", _SYNC, "synchronize()", _depth)


def time_tensors(tensor: Any) -> None:
    """Time what moves a tensor between host and device, and what asks a tensor on a device for its value."""
    for name in _COPIES:
        _time_copy(tensor, name)
    for name, what in _READS.items():
        _time_read(tensor, name, what)


def _time_copy(tensor: Any, name: str) -> None:
    """Time a method whose result may lie elsewhere than its source: by both is known what it was."""
    original = getattr(tensor, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        source = args[0] if name == "copy_" and args else self
        if _depth.calls or (getattr(source, "is_cpu", True) and name == "cpu"):
            return original(self, *args, **kwargs)
        _depth.calls = 1
        start = now()
        try:
            result = original(self, *args, **kwargs)
        finally:
            _depth.calls = 0
        duration = now() - start
        if getattr(source, "is_cpu", True):
            if not result.is_cpu:
                tape.write(_H2D, start, duration, result.numel() * result.element_size())
        elif result.is_cpu and duration >= _WORTH_NS:
            tape.write(_SYNC, start, duration, 0, tape.name(".cpu()" if name == "cpu" else f".{name}(cpu)"))
        return result

    setattr(tensor, name, method)


def _time_read(tensor: Any, name: str, what: str) -> None:
    original = getattr(tensor, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cpu or _depth.calls:
            return original(self, *args, **kwargs)
        _depth.calls = 1
        start = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            _depth.calls = 0
            duration = now() - start
            if duration >= _WORTH_NS:
                tape.write(_SYNC, start, duration, 0, tape.name(what))

    setattr(tensor, name, method)
