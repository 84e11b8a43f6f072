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
_depth = Depth()


def time_device(torch: ModuleType) -> None:
    """Time copies and synchronisation where torch was built for a device."""
    if not (torch.version.cuda or getattr(torch.version, "hip", None) or getattr(torch.version, "xpu", None)):
        return
    for name in ("to", "cuda", "copy_"):
        _time_copy(torch.Tensor, name)
    for name in ("item", "tolist", "cpu", "__float__", "__bool__"):
        _time_read(torch.Tensor, name)
    replace(torch.cuda, "synchronize", _SYNC, "synchronize", Depth())


def _time_copy(tensor: Any, name: str) -> None:
    original = getattr(tensor, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _depth.calls:
            return original(self, *args, **kwargs)
        if not self.is_cpu and name != "copy_":
            if name == "to" and args and args[0] == "cpu":
                return _read(original, self, "to('cpu')", args, kwargs)
            return original(self, *args, **kwargs)
        start = now()
        result = original(self, *args, **kwargs)
        is_copy = not result.is_cpu and (name != "copy_" or bool(args and getattr(args[0], "is_cpu", False)))
        if is_copy:
            tape.write(_H2D, start, now() - start, result.nbytes)
        return result

    setattr(tensor, name, method)


def _time_read(tensor: Any, name: str) -> None:
    original = getattr(tensor, name)
    what = {"__float__": "float()", "__bool__": "bool()"}.get(name, f".{name}()")

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cpu or _depth.calls:
            return original(self, *args, **kwargs)
        return _read(original, self, what, args, kwargs)

    setattr(tensor, name, method)


def _read(original: Any, tensor: Any, what: str, args: Any, kwargs: Any) -> Any:
    _depth.calls = 1
    start = now()
    try:
        return original(tensor, *args, **kwargs)
    finally:
        _depth.calls = 0
        duration = now() - start
        if duration >= _WORTH_NS:
            tape.write(_SYNC, start, duration, 0, tape.name(what))
