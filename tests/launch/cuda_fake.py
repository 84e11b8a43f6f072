"""Events, streams and captures of a device that is not here: the part of `torch.cuda` that timing copies uses.

Time on it is what a test says it is. A stream passes its marks in order, up to the moment that the device has come to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NotReady(RuntimeError):
    """What torch raises where an event is asked that has not passed, or that was never recorded."""


@dataclass
class Stream:
    cuda: FakeCuda
    device_index: int
    busy_until_s: float = 0.0

    def query(self) -> bool:
        self.cuda.fail("query")
        return not self.cuda.look_busy and self.cuda.now_s >= self.busy_until_s


class Event:
    """As `torch.cuda.Event`: passes when its stream has done all that was given to it before."""

    def __init__(self, cuda: FakeCuda, *, enable_timing: bool = False) -> None:
        assert enable_timing
        self._cuda = cuda
        self.at_s: float | None = None
        self.device_index: int | None = None  # the one it was first recorded on, as with torch

    def record(self, stream: Stream) -> None:
        self._cuda.fail("record")
        assert self.device_index in (None, stream.device_index), "an event belongs to a device"
        self.device_index = stream.device_index
        self.at_s = max(self._cuda.now_s, stream.busy_until_s)

    def query(self) -> bool:
        self._cuda.fail("query")
        return self.at_s is None or self._cuda.now_s >= self.at_s

    def elapsed_time(self, end: Event) -> float:
        self._cuda.fail("elapsed_time")
        if self.at_s is None or end.at_s is None or not end.query():
            raise NotReady("device not ready")
        return 1e3 * (end.at_s - self.at_s)

    def synchronize(self) -> None:
        raise AssertionError("nobody may wait for the device on our behalf")


class FakeCuda:
    """As `torch.cuda`."""

    def __init__(self, num_devices: int = 1) -> None:
        self.now_s = 100.0
        self.streams = [Stream(self, index) for index in range(num_devices)]
        self.look_busy = True  # as behind a kernel so short that a test need not count it
        self.is_up = True
        self.is_capturing = False
        self.events: list[Event] = []
        self.fails = ""  # which call

    def fail(self, call: str) -> None:
        assert not self.is_capturing, f"{call} breaks the capture"
        if call == self.fails:
            raise RuntimeError(f"CUDA error: {call}")

    def Event(self, *, enable_timing: bool = False) -> Event:
        self.events.append(Event(self, enable_timing=enable_timing))
        return self.events[-1]

    def is_initialized(self) -> bool:
        return self.is_up

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing

    def current_stream(self, device: Any = None) -> Stream:
        assert self.is_up, "this would start CUDA"
        if isinstance(device, str):
            device = int(device.partition(":")[2] or 0)
        return self.streams[getattr(device, "index", device) or 0]

    def work(self, seconds: float, device: int = 0) -> None:
        """Give the device something to do, and go on."""
        stream = self.streams[device]
        stream.busy_until_s = max(self.now_s, stream.busy_until_s) + seconds

    def copy(self, seconds: float, device: int = 0) -> float:
        """Copy as a call that blocks does; return how long the host stood still."""
        start_s = self.now_s
        self.work(seconds, device)
        self.now_s = self.streams[device].busy_until_s
        return self.now_s - start_s


def check_events(make: Callable[[], Any], stream: Any) -> None:
    """Check what timing copies asks of events, whoever makes them."""
    begin, end = make(), make()
    for _ in range(2):  # they may be used again
        begin.record(stream)
        end.record(stream)
        while not end.query():
            pass
        assert begin.elapsed_time(end) >= 0
    try:
        make().elapsed_time(make())
    except (RuntimeError, ValueError):
        return
    raise AssertionError("events that were never recorded have no time between them")
