"""Batches to the accelerator: slots registered as page-locked memory, copies on a stream of their own."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .memory import Arena

_log = logging.getLogger(__name__)


class HostRegistration:
    """Page-locks ranges of the arena for CUDA, so that copies from slots need no copy on the host."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._ranges: list[int] = []

    def add(self, offset: int, size: int) -> None:
        """Register a range; where the driver refuses, batches still work, only as ordinary memory."""
        import torch

        address = np.frombuffer(self._arena.map, np.uint8, 1, offset).ctypes.data
        code = int(torch.cuda.cudart().cudaHostRegister(address, size, 0))
        if code == 0:
            self._ranges.append(address)
        else:
            _log.warning("CUDA cannot page-lock %d MiB of batch slots (error %d): copies are slower", size >> 20, code)

    def close(self) -> None:
        """Unregister; nothing may copy from the ranges any more."""
        import torch

        for address in self._ranges:
            torch.cuda.cudart().cudaHostUnregister(address)
        self._ranges.clear()


class DeviceCopier:
    """Copies batches on a side stream, one batch ahead where it is ready, and keeps the source until it is read."""

    def __init__(self, device: Any) -> None:
        import torch

        self.device = torch.device(device)
        cuda: Any = torch.cuda
        self._stream: Any = cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._ahead: deque[tuple[Any, Any, Any]] = deque()  # (batch on the device, event, source)
        self._sources: deque[tuple[Any, Any]] = deque()  # (event, source) of copies under way

    def start(self, batch: Any) -> None:
        """Begin the copy of a batch; `take` gives it out in the same order."""
        import torch

        if self._stream is None:
            self._ahead.append((_map_tensors(batch, lambda t: t.to(self.device)), None, None))
            return
        cuda: Any = torch.cuda
        with cuda.stream(self._stream):
            copy = _map_tensors(batch, lambda t: t.to(self.device, non_blocking=True))
            event = cuda.Event()
            event.record(self._stream)
        self._ahead.append((copy, event, batch))

    @property
    def num_ahead(self) -> int:
        return len(self._ahead)

    def take(self) -> Any:
        """The oldest copied batch, safe to use on the current stream."""
        import torch

        batch, event, source = self._ahead.popleft()
        if event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(event)
            _map_tensors(batch, lambda t: t.record_stream(stream) or t)
            self._sources.append((event, source))
            del source
        self.collect()
        return batch

    def collect(self) -> None:
        """Let go of sources whose copies are done: their slots become free."""
        while self._sources and self._sources[0][0].query():
            self._sources.popleft()

    def close(self) -> None:
        """Wait until nothing is being copied."""
        if self._stream is not None:
            self._stream.synchronize()
        self._ahead.clear()
        self._sources.clear()


def _map_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to every tensor of a nested batch, keeping its containers."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return type(value)((k, _map_tensors(v, function)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_tensors(v, function) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map_tensors(v, function) for v in value)
    return value
