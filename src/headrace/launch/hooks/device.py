"""Copies to the device and waiting for it, as far as the host stands still for them; nothing without a device."""

from __future__ import annotations

import atexit
import functools
import os
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import now, tape
from .copy_clock import CopyClock, Switch, watch_captures
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
_HOST_CLOCK = CopyClock(None, Switch(is_off=True), kind="")  # no events: copies are timed on the host alone


def time_device(torch: ModuleType) -> None:
    """Time copies and synchronisation where torch was built for a device."""
    has_cuda = bool(torch.version.cuda or getattr(torch.version, "hip", None))  # ROCm goes by the same names
    if not (has_cuda or getattr(torch.version, "xpu", None)):
        return
    time_tensors(torch.Tensor, _device_clock(torch) if has_cuda else _HOST_CLOCK)
    replace(torch.cuda, "synchronize", _SYNC, "synchronize()", _depth)
    for name in ("Stream", "Event"):
        replace(getattr(torch.cuda, name), "synchronize", _SYNC, f"{name}.synchronize()", _depth)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        replace(accelerator, "synchronize", _SYNC, "synchronize()", _depth)


def _device_clock(torch: ModuleType) -> CopyClock:
    """Return the clock of copies by the device, for all threads of this process and its forks."""
    cuda, switch = torch.cuda, Switch()
    clock = CopyClock(cuda, switch, raw_stream=getattr(torch._C, "_cuda_getCurrentRawStream", None))
    if hasattr(cuda, "CUDAGraph"):
        watch_captures(cuda.CUDAGraph, switch)
    atexit.register(clock.close)  # the last copies of the main thread
    os.register_at_fork(after_in_child=clock.forget)
    return clock


def time_tensors(tensor: Any, clock: CopyClock = _HOST_CLOCK) -> None:
    """Time what moves a tensor between host and device, and what asks a tensor on a device for its value."""
    for name in _COPIES:
        _time_copy(tensor, name, clock)
    for name, what in _READS.items():
        _time_read(tensor, name, what)


def _time_copy(tensor: Any, name: str, clock: CopyClock) -> None:
    """Time a method whose result may lie elsewhere than its source: by both is known what it was."""
    original = getattr(tensor, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        source = args[0] if name == "copy_" and args else self
        is_from_host = getattr(source, "is_cpu", True)
        if _depth.calls or (is_from_host and name == "cpu"):
            return original(self, *args, **kwargs)
        _depth.calls = 1
        mark = None
        try:
            if is_from_host and hasattr(source, "element_size"):  # else torch is about to say what is wrong
                device = self.device if name == "copy_" else _destination(args, kwargs)
                if _is_of(clock.kind, device, is_certain=name == "cuda"):
                    mark = clock.begin(device, _bytes_of(source))
            start = now()
            result = original(self, *args, **kwargs)
            duration = now() - start
        except BaseException:
            clock.drop(mark)
            raise
        finally:
            _depth.calls = 0
        if is_from_host:
            if result.is_cpu:
                clock.drop(mark)
            else:
                clock.end(mark, start, duration, _bytes_of(result))
        elif result.is_cpu and duration >= _WORTH_NS:
            tape.write(_SYNC, start, duration, 0, tape.name(".cpu()" if name == "cpu" else f".{name}(cpu)"))
        return result

    setattr(tensor, name, method)


def _bytes_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what `to` or `cuda` was given for a device: a name, a number, a device, a tensor's; or none of these."""
    said = kwargs.get("device")
    if said is None:
        said = args[0] if args else kwargs.get("tensor")
    return getattr(said, "device", said)


def _is_of(kind: str, device: Any, *, is_certain: bool) -> bool:
    """Whether a device is of a kind, as far as that is said; `is_certain`: there is no other it could be."""
    if isinstance(device, str):
        return device.partition(":")[0] == kind
    if device is None or isinstance(device, int):
        return is_certain or type(device) is int
    return getattr(device, "type", None) == kind


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
