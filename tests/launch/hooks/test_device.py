"""Copies timed by the device's events: the copy apart from the wait before it, and nothing that disturbs a training."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.launch.hooks import device as hooks_device
from headrace.launch.hooks.device import CopyClock, Switch, watch_captures
from headrace.model import LAUNCH_NS, EventKind, copied_ns, copy_arg

from ..cuda_fake import FakeCuda, NotReady, check_events

Copy = tuple[float, float, int, float | None]  # start, host's time, bytes, device's time
LARGE = 2 * hooks_device.SMALL_BYTES


class Copies:
    """What was written, instead of a lane."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[tuple[int, int, int, int]] = []
        self.notes: list[str] = []
        monkeypatch.setattr(hooks_device.tape, "write", self._write)
        monkeypatch.setattr(hooks_device, "note", self.notes.append)

    def _write(self, kind: int, start: int, duration: int, value: int = 0, arg: int = 0) -> None:
        assert kind == EventKind.H2D
        self.records.append((start, duration, value, arg))

    def take(self) -> list[Copy]:
        records, self.records = self.records, []
        return [
            (start / 1e9, duration / 1e9, value, (arg - 1) / 1e6 if arg else None)
            for start, duration, value, arg in records
        ]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(monkeypatch)


def copy(clock: CopyClock, cuda: FakeCuda, seconds: float, *, device: int = 0, num_bytes: int = LARGE) -> None:
    """Do what the hook does around a copy that blocks."""
    mark = clock.begin(device, num_bytes)
    start_s = cuda.now_s
    host_s = cuda.copy(seconds, device)
    clock.end(mark, round(start_s * 1e9), round(host_s * 1e9), num_bytes)


def test_a_copy_behind_work_is_told_from_its_wait(copies: Copies) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    cuda.work(0.3)
    copy(clock, cuda, 0.1)
    assert copies.take() == []  # it is asked for later
    copy(clock, cuda, 0.2)
    assert copies.take() == [pytest.approx((100.0, 0.4, LARGE, 0.1))]
    clock.close()
    assert copies.take() == [pytest.approx((100.4, 0.2, LARGE, 0.2))]
    clock.close()
    assert copies.take() == []


def test_devices_have_their_own_events(copies: Copies) -> None:
    cuda = FakeCuda(num_devices=2)
    clock = CopyClock(cuda, Switch())
    cuda.work(1.0, device=1)
    for device in (0, 1, 1, 0):
        copy(clock, cuda, 0.1, device=device)
    clock.close()
    assert [device for *_, device in copies.take()] == pytest.approx([0.1] * 4)


def test_a_copy_to_an_idle_stream_needs_no_events(copies: Copies) -> None:
    cuda = FakeCuda()
    cuda.look_busy = False
    clock = CopyClock(cuda, Switch())
    copy(clock, cuda, 0.1)
    assert copies.take() == [pytest.approx((100.0, 0.1, LARGE, 0.1))], "written at once, all of it a copy"
    assert not cuda.events
    cuda.work(0.3)
    copy(clock, cuda, 0.1)
    clock.close()
    assert copies.take() == [pytest.approx((100.1, 0.4, LARGE, 0.1))]


def test_a_new_stream_of_the_device_is_seen(copies: Copies) -> None:
    cuda = FakeCuda(num_devices=2)
    clock = CopyClock(cuda, Switch())
    for device in (0, None, "cuda", "cuda:0", torch.device("cuda"), torch.device("cuda:0"), 1, "cuda:1"):
        clock.begin(device, LARGE)
    cuda.streams[0] = type(cuda.streams[0])(cuda, 0)  # the training goes to another stream
    cuda.work(0.3)
    copy(clock, cuda, 0.1)
    clock.close()
    assert copies.take() == [pytest.approx((100.0, 0.4, LARGE, 0.1))]


def test_what_the_device_is_not_through_with_is_not_waited_for(copies: Copies) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    for number in range(hooks_device._MOST_PENDING):
        mark = clock.begin(0, LARGE)
        cuda.work(0.5)
        clock.end(mark, number, 60_000, LARGE)  # does not block
    assert copies.take() == []
    assert clock.begin(0, LARGE) is None, "enough are under way"
    clock.end(None, 7, 60_000, LARGE)
    assert copies.take() == [(pytest.approx(7e-9), pytest.approx(6e-5), LARGE, None)]
    cuda.now_s += 1.25
    clock.begin(0, LARGE)
    assert [device for *_, device in copies.take()] == pytest.approx([0.5, 0.5])
    clock.close()  # the script ends while the device still works
    assert [device for *_, device in copies.take()] == [None] * (hooks_device._MOST_PENDING - 2)


def test_a_call_that_is_a_launch_is_written_at_once(copies: Copies) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    cuda.work(5.0)
    clock.end(clock.begin(0, LARGE), 1, 20_000, LARGE)
    assert [(size, device) for *_, size, device in copies.take()] == [(LARGE, None)]


def test_a_small_copy_needs_no_events_to_be_told_from_its_wait(copies: Copies) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    cuda.work(0.3)
    copy(clock, cuda, 1e-5, num_bytes=hooks_device.SMALL_BYTES)
    copy(clock, cuda, 1e-5, num_bytes=8)
    assert cuda.events == []
    waiting, launch = copies.records
    assert copied_ns(waiting[1], waiting[3]) == LAUNCH_NS
    assert copied_ns(launch[1], launch[3]) == launch[1]
    copies.take()
    cuda.is_up = False  # the copy that starts CUDA takes long for another reason
    copy(clock, cuda, 1.0, num_bytes=8)
    assert [device for *_, device in copies.take()] == [None]


def test_nothing_starts_cuda_or_touches_a_capture(copies: Copies) -> None:
    cuda = FakeCuda()
    switch = Switch()
    clock = CopyClock(cuda, switch)
    cuda.is_up = False
    copy(clock, cuda, 0.1)
    cuda.is_up = True
    copy(clock, cuda, 0.1)
    assert [device for *_, device in copies.take()] == [None]
    cuda.is_capturing = True  # this thread
    copy(clock, cuda, 0.1)
    switch.num_captures = 1  # and another: the fake lets nobody ask an event from here on
    copy(clock, cuda, 0.1)
    clock.close()
    assert [device for *_, device in copies.take()] == [None, None, None]
    assert copies.notes == []


@pytest.mark.parametrize("call", ["record", "query", "elapsed_time"])
def test_an_event_that_fails_costs_no_copy(copies: Copies, call: str) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    copy(clock, cuda, 0.1, num_bytes=LARGE + 1)
    cuda.fails = call
    copy(clock, cuda, 0.1, num_bytes=LARGE + 2)
    cuda.fails = ""
    copy(clock, cuda, 0.1, num_bytes=LARGE + 3)
    clock.close()
    assert sorted(size for _, _, size, _ in copies.take()) == [LARGE + 1, LARGE + 2, LARGE + 3]
    assert len(copies.notes) == 1
    assert "upper bounds" in copies.notes[0]
    assert f"CUDA error: {call}" in copies.notes[0]


def test_threads_write_their_own_copies_and_a_failure_is_everybody_s(copies: Copies) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    copy(clock, cuda, 0.1, num_bytes=LARGE + 1)

    def other() -> None:
        copy(clock, cuda, 0.1, num_bytes=LARGE + 2)
        assert copies.take() == []
        cuda.fails = "record"
        copy(clock, cuda, 0.1, num_bytes=LARGE + 3)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert sorted(size for _, _, size, _ in copies.take()) == [LARGE + 2, LARGE + 3]
    cuda.fails = ""
    assert clock.begin(0, LARGE) is None
    clock.close()
    assert [size for _, _, size, _ in copies.take()] == [LARGE + 1]


def test_a_fork_leaves_the_copies_and_their_events_to_its_parent(copies: Copies) -> None:
    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch())
    copy(clock, cuda, 0.1)
    clock.forget()
    cuda.fails = "query"  # of another process's event
    clock.close()
    assert (copies.take(), copies.notes) == ([], [])
    cuda.fails = ""
    copy(clock, cuda, 0.1)
    assert len(cuda.events) == 4


def test_captures_are_counted_also_those_that_fail() -> None:
    switch = Switch()

    class Graph:
        def capture_begin(self, pool: object = None) -> object:
            if pool == "bad":
                raise RuntimeError(pool)
            return pool

        def capture_end(self) -> None:
            assert switch.num_captures == 1
            raise RuntimeError("the capture was invalidated")

    watch_captures(Graph, switch)
    with pytest.raises(RuntimeError, match="bad"):
        Graph().capture_begin("bad")
    assert switch.num_captures == 0
    assert Graph().capture_begin(pool=3) == 3
    assert switch.num_captures == 1
    with pytest.raises(RuntimeError, match="invalidated"):
        Graph().capture_end()
    assert switch.num_captures == 0


@pytest.fixture
def hooked() -> tuple[type[torch.Tensor], FakeCuda, CopyClock]:
    """Tensors whose copies to "meta", a device on every machine, are timed by the fake's events."""

    class Timed(torch.Tensor):
        pass

    cuda = FakeCuda()
    clock = CopyClock(cuda, Switch(), kind="meta")
    hooks_device.time_tensors(Timed, clock)
    return Timed, cuda, clock


CALLS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "name": (lambda tensor, _: tensor.to("meta"), True),
    "device": (lambda tensor, _: tensor.to(torch.device("meta")), True),
    "keyword": (lambda tensor, _: tensor.to(dtype=torch.float64, device="meta"), True),
    "other": (lambda tensor, there: tensor.to(there), True),
    "other by keyword": (lambda tensor, there: tensor.to(tensor=there), True),
    "into": (lambda tensor, there: there.copy_(tensor), True),
    "type alone": (lambda tensor, _: tensor.to(torch.float64), False),
    "host": (lambda tensor, _: tensor.to("cpu"), False),
    "between hosts": (lambda tensor, _: tensor.copy_(tensor.clone()), False),
    "on the device": (lambda _, there: there.to(torch.float64), False),
    "back": (lambda _, there: there.cpu(), False),
    "a name that is none": (lambda tensor, _: tensor.to("meat"), False),
}


@pytest.mark.parametrize("call", CALLS)
def test_events_surround_copies_to_the_device_and_nothing_else(
    hooked: tuple[type[torch.Tensor], FakeCuda, CopyClock], copies: Copies, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, cuda, clock = hooked
    ticks = iter(range(0, 10**12, 10**8))
    monkeypatch.setattr(hooks_device, "now", lambda: next(ticks))  # each call takes 0.1 s on the host
    tensor = torch.ones(LARGE // 4).as_subclass(kind)
    there = torch.empty(LARGE // 4, device="meta").as_subclass(kind)
    made, is_copy = CALLS[call]
    try:
        made(tensor, there)
    except (RuntimeError, NotImplementedError):
        assert call in ("back", "a name that is none")
    assert bool(cuda.events) == is_copy
    assert copies.records == []
    clock.close()
    assert [device for *_, device in copies.take()] == ([0.0] if is_copy else [])


def test_a_copy_that_fails_is_none(hooked: tuple[type[torch.Tensor], FakeCuda, CopyClock], copies: Copies) -> None:
    kind, _, clock = hooked
    tensor = torch.ones(LARGE).as_subclass(kind)
    for _ in range(3):
        with pytest.raises(TypeError):
            tensor.to("meta", non_blocking=True, no_such_word=1)
    clock.close()
    assert copies.take() == []


def test_what_torch_refuses_is_refused_by_torch(hooked: tuple[type[torch.Tensor], FakeCuda, CopyClock]) -> None:
    kind, cuda, _ = hooked
    there: Any = torch.empty(3, device="meta").as_subclass(kind)
    with pytest.raises(TypeError, match="must be Tensor"):
        there.copy_([1, 2, 3])
    assert cuda.events == []


@given(host_ns=st.integers(0, 10**12), device_ns=st.integers(0, 10**13))
def test_a_copy_is_never_longer_than_its_call(host_ns: int, device_ns: int) -> None:
    arg = copy_arg(device_ns)
    assert 0 < arg < 1 << 32
    assert 0 <= copied_ns(host_ns, arg) <= host_ns
    assert copied_ns(host_ns, 0) == host_ns


def test_the_fake_keeps_the_contract_of_events() -> None:
    cuda = FakeCuda()
    check_events(lambda: cuda.Event(enable_timing=True), cuda.current_stream())
    cuda.work(1.0)
    late = cuda.Event(enable_timing=True)
    late.record(cuda.current_stream())
    assert not late.query()
    with pytest.raises(NotReady):
        late.elapsed_time(late)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_torch_keeps_the_contract_of_events() -> None:
    """In a process of its own: CUDA keeps files open for as long as a process lives."""
    script = """
import cuda_fake, torch
stream = torch.cuda.current_stream("cuda")
assert stream.device_index == torch.cuda.current_device()
cuda_fake.check_events(lambda: torch.cuda.Event(enable_timing=True), stream)
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
