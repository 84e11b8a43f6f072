"""What the host waits for outside its own process: copies to the device, the device itself, other ranks.

How long the device took for a copy is told by a pair of CUDA events around it, asked later and never waited for. A copy
is written down once its second event has passed, with the time between the two. Where events cannot be had it is
written at once, with the host's time alone: no CUDA yet, a graph that is being captured, too many copies under way.
After a failure no more events are tried. Two kinds of copies need none: a small one, for whatever holds its call up is
no copy; and one to a stream that has nothing to do, for there is nothing else that it could wait for.
"""

import atexit
import os
import sys
import threading
from collections import deque
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.model import LAUNCH_NS, EventKind, copy_arg

from ..tape import note, now, tape
from .wrapping import Inside, instead_of, replace, timed

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
_in_copy: Inside = set()  # or in a synchronisation
# Blocking copies are over when the next one begins. More than this many wait where the host runs far ahead.
_MOST_PENDING = 64
# A copy of so little takes the device less than a launch takes the host, on any bus. Its events would cost 17 µs.
SMALL_BYTES = 64 << 10
_SMALL_ARG = copy_arg(LAUNCH_NS)
_RANK, _RANKS = int(EventKind.RANK), int(EventKind.RANKS)
# Not the collectives of tensors: a compiler knows those by the function itself.
_HOST_CALLS = ("barrier", "monitored_barrier", "all_gather_object", "broadcast_object_list", "gather_object")
_said: set[tuple[int, int]] = set()  # process and rank: a fork is another process, and a group may come late


@dataclass
class Switch:
    """Whether the threads of a process may use events."""

    is_off: bool = False
    num_captures: int = 0  # of graphs: asking an event breaks a capture, also one of another thread


Mark = tuple[Any, Any] | int | None  # an event that was recorded, and on which stream; or one of these, with no event
_SMALL, _IDLE = 0, 1  # a small copy; one to a stream that had nothing to do


class CopyClock(threading.local):
    """The copies of each thread. `cuda` is `torch.cuda`, or what offers the same: events, streams, captures."""

    def __init__(self, cuda: Any, switch: Switch, kind: str = "cuda") -> None:
        self.kind = kind  # of device
        self._cuda, self._switch = cuda, switch
        # two events, and start, host's time and bytes of each copy
        self._pending: deque[tuple[Any, Any, int, int, int]] = deque()
        self._inherited: list[object] = []

    def begin(self, device: Any, num_bytes: int) -> Mark:
        """Mark where the device is before a copy to it; None: this copy is timed on the host alone."""
        if self._switch.is_off or self._switch.num_captures:
            return None
        try:
            cuda = self._cuda
            if not cuda.is_initialized() or cuda.is_current_stream_capturing():
                return None
            if num_bytes <= SMALL_BYTES:
                return _SMALL
            self._settle()
            if len(self._pending) >= _MOST_PENDING:
                return None
            stream = cuda.current_stream(device)
            if stream.query():
                return _IDLE
            event = cuda.Event(enable_timing=True)
            event.record(stream)
        except Exception as error:  # whatever it is, the copy itself comes next and says it if it matters
            self._give_up(error)
            return None
        return event, stream

    def end(self, mark: Mark, start_ns: int, duration_ns: int, num_bytes: int) -> None:
        """Write a copy down: now where nothing is to be learnt, else once the device is through with it."""
        if isinstance(mark, tuple) and duration_ns >= LAUNCH_NS and not self._switch.num_captures:
            try:
                event = self._cuda.Event(enable_timing=True)
                event.record(mark[1])
            except Exception as error:
                self._give_up(error)
            else:
                self._pending.append((mark[0], event, start_ns, duration_ns, num_bytes))
                return
        arg = _SMALL_ARG if mark == _SMALL else copy_arg(duration_ns) if mark == _IDLE else 0
        tape.write(_H2D, start_ns, duration_ns, num_bytes, arg)

    def close(self) -> None:
        """Write down what this thread has pending, with what is known by now. Safe to call twice."""
        try:
            if not self._switch.is_off and not self._switch.num_captures and self._cuda.is_initialized():
                self._settle()
        except Exception:
            self._switch.is_off = True
        self._write_rest()

    def forget(self) -> None:
        """In a fork: leave to the parent what is pending there. The events live on, for here nobody may end them."""
        self._inherited.append(self._pending)
        self._pending = deque()

    def _settle(self) -> None:
        """Write down those copies that the device is through with."""
        pending = self._pending
        while pending and pending[0][1].query():
            begin, end, *copy = pending[0]
            arg = copy_arg(round(1e6 * begin.elapsed_time(end)))
            pending.popleft()
            tape.write(_H2D, *copy, arg)

    def _give_up(self, error: Exception) -> None:
        if not self._switch.is_off:
            self._switch.is_off = True
            note(f"copies by CUDA events, so their times are upper bounds: {type(error).__name__}: {error}")
        self._write_rest()

    def _write_rest(self) -> None:
        while self._pending:
            tape.write(_H2D, *self._pending.popleft()[2:])


def watch_captures(graph: Any, switch: Switch) -> None:
    """Count the captures that are under way, whichever thread makes them. `graph` is `torch.cuda.CUDAGraph`."""
    begin, end = graph.capture_begin, graph.capture_end

    @instead_of(graph, "capture_begin")
    def capture_begin(*args: Any, **kwargs: Any) -> Any:
        switch.num_captures += 1
        try:
            return begin(*args, **kwargs)
        except BaseException:
            switch.num_captures -= 1
            raise

    @instead_of(graph, "capture_end")
    def capture_end(*args: Any, **kwargs: Any) -> Any:
        try:
            return end(*args, **kwargs)
        finally:
            switch.num_captures = max(0, switch.num_captures - 1)


_HOST_CLOCK = CopyClock(None, Switch(is_off=True), kind="")  # no events: copies are timed on the host alone


def time_device(torch: ModuleType) -> None:
    """Time copies and synchronisation where torch was built for a device."""
    has_cuda = bool(torch.version.cuda or getattr(torch.version, "hip", None))  # ROCm goes by the same names
    if not (has_cuda or getattr(torch.version, "xpu", None)):
        return
    clock = _HOST_CLOCK
    if has_cuda:  # a clock by the device, for all threads of this process and its forks
        switch = Switch()
        clock = CopyClock(torch.cuda, switch)
        if hasattr(torch.cuda, "CUDAGraph"):
            watch_captures(torch.cuda.CUDAGraph, switch)
        atexit.register(clock.close)  # the last copies of the main thread
        os.register_at_fork(after_in_child=clock.forget)
    time_tensors(torch.Tensor, clock)
    replace(torch.cuda, "synchronize", _SYNC, "synchronize()", _in_copy)
    for name in ("Stream", "Event"):
        replace(getattr(torch.cuda, name), "synchronize", _SYNC, f"{name}.synchronize()", _in_copy)
    replace(getattr(torch, "accelerator", None), "synchronize", _SYNC, "synchronize()", _in_copy)


def time_tensors(tensor: Any, clock: CopyClock = _HOST_CLOCK) -> None:
    """Time what moves a tensor between host and device, and what asks a tensor on a device for its value."""
    for name in _COPIES:
        _time_copy(tensor, name, clock)
    for name, what in _READS.items():
        _time_read(tensor, name, what)


def _time_copy(tensor: Any, name: str, clock: CopyClock) -> None:
    """Time a method whose result may lie elsewhere than its source: by both is known what it was."""
    original = getattr(tensor, name)

    @instead_of(tensor, name)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        source = args[0] if name == "copy_" and args else self
        is_from_host = getattr(source, "is_cpu", True)
        thread = threading.get_ident()
        if thread in _in_copy or (is_from_host and name == "cpu"):
            return original(self, *args, **kwargs)
        _in_copy.add(thread)
        mark = None
        try:
            if is_from_host and hasattr(source, "element_size"):  # else torch is about to say what is wrong
                device = self.device if name == "copy_" else _destination(args, kwargs)
                if _is_of(clock.kind, device, is_certain=name == "cuda"):
                    mark = clock.begin(device, _bytes_of(source))
            start = now()
            result = original(self, *args, **kwargs)
            duration = now() - start
        finally:
            _in_copy.discard(thread)
        if is_from_host:
            if not result.is_cpu:
                clock.end(mark, start, duration, _bytes_of(result))
        elif result.is_cpu and duration >= _WORTH_NS:
            tape.write(_SYNC, start, duration, 0, tape.name(".cpu()" if name == "cpu" else f".{name}(cpu)"))
        return result


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
    timing = timed(original, _SYNC, what, _in_copy, least_ns=_WORTH_NS)

    @instead_of(tensor, name)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (original if self.is_cpu else timing)(self, *args, **kwargs)


def time_collectives(distributed: ModuleType) -> None:
    """Time the calls in which a host waits for the other ranks."""
    inside: Inside = set()
    for name in _HOST_CALLS:
        replace(distributed, name, _RANKS, f"{name}()", inside)


def say_rank() -> None:
    """Write the rank down, once it is known; nothing for a training of one process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
    else:  # as the launcher said
        said = (os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", ""))
        rank, world = map(int, said) if all(map(str.isdigit, said)) else (0, 1)
    if world > 1 and (key := (os.getpid(), rank)) not in _said:
        _said.add(key)
        tape.write(_RANK, now(), 0, rank, world)
