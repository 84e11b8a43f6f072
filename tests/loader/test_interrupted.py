"""An exception comes out of `next` at any moment (Ctrl-C, a signal handler's), is caught, and the loop goes on."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import random
import re
import signal
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from operator import call
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

import headrace
from headrace import DataLoader

SAMPLES, BATCH = 800, 8


class Alarm(Exception):
    """What the signal handler raises."""


class Drawing(Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, float]:
        time.sleep(0.0003)
        return index, random.random()


@pytest.fixture
def _alarms() -> Iterator[None]:
    """A handler that raises, wherever the main thread is."""

    def ring(*_: object) -> None:
        raise Alarm

    time.sleep(0.05)  # one of the test before that came in a callback is handled a little later: not with this handler
    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _take(iterator: Iterator[Any], chance: random.Random) -> tuple[list[Any], int, bool]:
    """All batches; in every tenth `next` the alarm rings. What it raises is caught, and the loop goes on."""
    got: list[Any] = []
    caught = asked = 0
    while True:
        asked, before = asked + 1, len(got)
        try:
            if asked % 10 == 0:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.0005))
                time.sleep(chance.choice([0, 0.0002]))
            got.extend(islice(iterator, 1))  # in one step: the alarm cannot ring between `next` and the list
            if len(got) == before:
                return [(index.tolist(), drawn.tolist()) for index, drawn in got], caught, True
        except Alarm:
            caught += 1
        except headrace.NotSupported:  # it rang just as the sampler gave a batch: that is said, not passed over
            return [(index.tolist(), drawn.tolist()) for index, drawn in got], caught, False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.usefixtures("_alarms")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may ring inside a `__del__`
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"on_error": "quarantine"},
        {"persistent_workers": True},
        {"collate_fn": lambda s: _collate(s)},
        {"backend": "thread"},
    ],
    ids=["plain", "quarantine", "persistent", "collation", "threads"],
)
def test_every_batch_comes_once_and_is_the_same_whatever_interrupts_next(options: dict[str, Any]) -> None:
    torch.manual_seed(5)
    batches = [list(range(at, at + BATCH)) for at in range(0, SAMPLES, BATCH)]  # no generator that an alarm could end
    calm = DataLoader(Drawing(), batch_sampler=batches, num_workers=2, **options)
    expected = [[(i.tolist(), d.tolist()) for i, d in calm] for _ in range(3)]
    torch.manual_seed(5)
    loader = DataLoader(Drawing(), batch_sampler=batches, num_workers=2, **options)
    caught, whole, chance = 0, 0, random.Random(7)
    for epoch in expected:
        got, num, is_whole = _take(iter(loader), chance)
        if options.get("backend") == "thread":  # what they draw depends on timing, and they say so
            got, epoch = [(indices, 0) for indices, _ in got], [(indices, 0) for indices, _ in epoch]
        assert got == (epoch if is_whole else epoch[: len(got)])
        assert not is_whole or loader.stats().account.delivered == SAMPLES
        caught, whole = caught + num, whole + is_whole
    assert caught > 2
    assert whole >= 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_handler_raises_as_a_batch_leaves_next_loses_no_batch() -> None:
    """It raises in the frame of `next` alone, so also behind all that `next` calls."""
    frames, caught, got = {type(iter(DataLoader(Slow(), num_workers=1))).__next__.__code__}, 0, list[int]()

    def ring(_: int, frame: Any) -> None:
        if frame is not None and frame.f_code in frames:
            raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    iterator = iter(DataLoader(torch.arange(12_000), 1, num_workers=1))
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        while len(got) < 12_000:
            with contextlib.suppress(Alarm):
                for batch in iterator:
                    got.append(int(batch))
                break
            caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert got == list(range(12_000))
    assert caught > 0


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        return index


class SlowStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        time.sleep(1)
        yield from range(100)


@pytest.mark.usefixtures("_alarms")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_timer_that_raises_all_the_time_does_not_hold_up_the_loop() -> None:
    """A batch takes longer than the timer gives it: alarms ring while the loop waits, and cost no worker."""
    iterator: Any = iter(DataLoader(Slow(), batch_size=BATCH, num_workers=1, prefetch_factor=1))
    caught, pids, got = 0, set[int](), list[torch.Tensor]()
    while len(got) < 240 // BATCH:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.04)
            got.extend(islice(iterator, 1))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            caught += 1
            pids.add(iterator._workers[0].pid)
    assert torch.cat(got).tolist() == list(range(240))
    assert caught > 10
    assert len(pids) <= 1 + caught // 4
    assert list(iterator) == []


@pytest.mark.usefixtures("_alarms")
def test_a_stream_goes_on_where_the_loop_was_only_waiting() -> None:
    iterator = iter(DataLoader(SlowStream(), batch_size=BATCH, num_workers=1))
    signal.setitimer(signal.ITIMER_REAL, 0.15)
    with pytest.raises(Alarm):
        next(iterator)
    assert torch.cat(list(iterator)).tolist() == list(range(100))


@pytest.mark.usefixtures("_alarms")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_that_are_started_anew_stay_whatever_rings_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator: Any = iter(DataLoader(Slow(), batch_size=BATCH, num_workers=2))
    got, open_anew = next(iterator).tolist(), iterator._open_anew

    def ring_meanwhile() -> Any:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
        return open_anew()

    monkeypatch.setattr(iterator, "_open_anew", ring_meanwhile)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with monkeypatch.context() as patch:
            patch.setattr(iterator._feed, "_collect", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        with pytest.raises(Alarm):
            next(iterator)
        workers = [process.pid for process in iterator._workers]
        got += next(iterator).tolist()
        assert [process.pid for process in iterator._workers] == workers
    assert len(os.listdir("/proc/self/fd")) <= before
    assert got + [i for batch in iterator for i in batch.tolist()] == list(range(240))


def _workers_left() -> list[Any]:
    """All children but the helpers that multiprocessing keeps for as long as the interpreter lives."""
    helpers = re.compile("multiprocessing.(resource_tracker|forkserver)")
    return [child for child in psutil.Process().children() if not helpers.search(" ".join(child.cmdline()))]


@pytest.mark.usefixtures("_alarms")
@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "closed"])
def test_no_worker_stays_when_an_alarm_rings_as_it_is_started_or_ended(
    is_dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(Slow(), batch_size=BATCH, num_workers=2)
    fork = os.fork

    def fork_and_ring() -> int:
        pid = fork()
        if pid:
            signal.raise_signal(signal.SIGALRM)
        return pid

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", fork_and_ring)
        with pytest.raises(Alarm):
            iter(loader)
    assert multiprocessing.active_children() == _workers_left() == []
    iterator: Any = iter(loader)
    pipes = iterator._feed.pool.pipes
    wake = pipes.wake
    monkeypatch.setattr(pipes, "wake", lambda count: [signal.raise_signal(signal.SIGALRM), wake(count)])
    with pytest.raises(Alarm):  # noqa: PT012  # it comes a moment after the callback
        if is_dropped:
            del iterator
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                time.sleep(0.001)  # no long one: what interrupts the main thread from another one ends no sleep
        iterator.close()
    assert multiprocessing.active_children() == _workers_left() == []


@pytest.mark.usefixtures("_alarms")
def test_an_alarm_that_waits_while_a_batch_goes_is_not_lost() -> None:
    """It rang in a long step of C: the first code of Python after it must be the loop's, not a callback's."""
    iterator = iter(DataLoader(Slow(), batch_size=BATCH, num_workers=1))
    held = [next(iterator) for _ in range(3)]  # the first one is collated before slots are known
    with pytest.raises(Alarm):
        deque(map(call, [partial(_thread.interrupt_main, signal.SIGALRM), held.clear]), 0)
    assert len(list(iterator)) == 240 // BATCH - 3


@pytest.mark.usefixtures("_alarms")
def test_an_alarm_inside_on_error_is_no_error_of_the_sample() -> None:
    class Failing(Drawing):
        def __getitem__(self, index: int) -> tuple[int, float]:
            if index == 100:
                raise ValueError("bad")
            return super().__getitem__(index)

    calls: list[Any] = []

    def on_error(failure: headrace.SampleFailure) -> Any:
        calls.append(failure.key)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGALRM)
        return headrace.SKIP

    iterator, got = iter(DataLoader(Failing(), batch_size=BATCH, num_workers=2, on_error=on_error)), list[int]()
    with pytest.raises(Alarm):
        got.extend(i for batch in iterator for i in batch[0].tolist())
    got += [i for batch in iterator for i in batch[0].tolist()]
    assert got == [*range(100), *range(101, SAMPLES), 0]


def _collate(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples)


def test_ctrl_c_inside_on_error_and_the_loop_goes_on() -> None:
    calls: list[Any] = []

    def on_error(failure: headrace.SampleFailure) -> Any:
        calls.append(failure.key)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return headrace.SKIP

    class Failing(Drawing):
        def __getitem__(self, index: int) -> tuple[int, float]:
            if index == 100:
                raise ValueError("bad")
            return super().__getitem__(index)

    iterator = iter(DataLoader(Failing(), batch_size=BATCH, num_workers=2, on_error=on_error))
    got: list[int] = []
    interrupts = 0
    while True:
        try:
            got += next(iterator)[0].tolist()
        except KeyboardInterrupt:
            interrupts += 1
        except StopIteration:
            break
    assert interrupts == 1
    assert calls == [100, 100]
    assert got == [*range(100), *range(101, SAMPLES), 0]


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_after_an_interrupted_epoch_another_one_is_whole(
    persistent_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(Drawing(), batch_size=BATCH, num_workers=2, persistent_workers=persistent_workers)
    for _ in range(2):
        iterator = iter(loader)
        for _ in range(20):
            next(iterator)
        monkeypatch.setattr(iterator._feed, "_refill", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert [i for batch in loader for i in batch[0].tolist()] == list(range(SAMPLES))


def test_an_error_that_comes_with_its_batch_each_time_does_not_stop_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator = iter(DataLoader(Drawing(), batch_size=BATCH, num_workers=2))
    take = iterator._next_on_host

    def fail() -> Any:
        batch = take()
        if 100 in batch[0]:
            raise MemoryError("pinning")
        return batch

    monkeypatch.setattr(iterator, "_next_on_host", fail)
    got: list[int] = []
    errors = 0
    while True:
        try:
            got += next(iterator)[0].tolist()
        except MemoryError:
            errors += 1
        except StopIteration:
            break
    assert errors == 1
    assert got == [i for i in range(SAMPLES) if not 96 <= i < 104]


def test_what_was_counted_and_who_was_sent_home_is_known_to_new_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Drawing(), batch_size=BATCH, num_workers=1)
    iterator: Any = iter(loader)
    for _ in range(20):
        next(iterator)
    num_bytes = iterator._feed.figures.bytes_written()
    iterator._feed.guard.retired = 1  # memory was short, and no longer is
    with monkeypatch.context() as patch:
        patch.setattr(iterator._feed, "_collect", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    next(iterator)
    assert iterator._feed.figures.bytes_written() >= num_bytes > 0
    for _ in range(20):
        next(iterator)
    assert loader.stats().num_workers == 2


class Interrupted(Sampler[int]):
    """Ctrl-C while it works."""

    def __iter__(self) -> Iterator[int]:
        yield from range(100)
        raise KeyboardInterrupt

    def __len__(self) -> int:
        return SAMPLES


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(100)


def test_what_cannot_go_on_says_so() -> None:
    iterator = iter(DataLoader(Drawing(), batch_size=BATCH, num_workers=2, sampler=Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        list(iterator)
    for _ in range(2):
        with pytest.raises(headrace.NotSupported, match="the sampler cannot be asked again"):
            next(iterator)


def test_a_sampler_that_raises_by_itself_loses_no_batch() -> None:
    def sampler() -> Iterator[list[int]]:
        yield from ([at, at + 1] for at in range(0, 20, 2))
        raise ValueError("no more")

    iterator = iter(DataLoader(Drawing(), batch_sampler=sampler(), num_workers=2))  # type: ignore[arg-type]
    got: list[int] = []
    errors = 0
    while True:
        try:
            got += next(iterator)[0].tolist()
        except ValueError:
            errors += 1
        except StopIteration:
            break
    assert errors == 1
    assert got == list(range(20))


def test_a_stream_that_was_interrupted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator = iter(DataLoader(Stream(), batch_size=BATCH, num_workers=1))
    next(iterator)
    with monkeypatch.context() as patch:
        patch.setattr(iterator, "_next_on_host", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    with pytest.raises(headrace.NotSupported, match="iterators cannot be asked again"):
        next(iterator)


@pytest.mark.parametrize("options", [{}, {"on_error": lambda _: headrace.RAISE}], ids=["plain", "guarded"])
@pytest.mark.parametrize(("num_workers", "backend"), [("auto", "auto"), (0, "auto"), (2, "auto"), (2, "thread")])
def test_the_error_of_a_sample_ends_its_batch_alone(num_workers: Any, backend: str, options: dict[str, Any]) -> None:
    class Failing(Dataset[int]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> int:
            if index == 20:
                raise ValueError("bad")
            return index

    iterator = iter(DataLoader(Failing(), batch_size=BATCH, num_workers=num_workers, backend=backend, **options))
    got: list[int] = []
    errors = 0
    while True:
        try:
            got += next(iterator).tolist()
        except ValueError:
            errors += 1
        except StopIteration:
            break
    assert errors == 1
    assert got == [i for i in range(64) if not 16 <= i < 24]


@pytest.mark.parametrize("in_order", [True, False])
def test_an_error_beside_a_batch_on_its_way_to_the_device_costs_no_batch(
    in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a batch that failed comes after the loader saw another one ready, and before it takes it."""

    class Failing(Dataset[int]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> int:
            if index == 20:
                raise ValueError("bad")
            return index

    batches = [*(list(range(at, at + 8)) for at in range(0, 56, 8)), list(range(56, 62)), [62, 63]]
    loader = DataLoader(Failing(), batch_sampler=batches, num_workers=2, device="cpu", in_order=in_order)
    iterator: Any = iter(loader)
    receive, late, has_ready = iterator._feed.pool.pipes.receive, list[Any](), type(iterator._feed).has_ready.fget

    def receive_late() -> list[Any]:
        results = receive()
        late.extend(result for result in results if result.seq == 2)
        if iterator._feed.scheduler.batches.keys() <= {2}:  # the machine was busy, and never was another one ready
            return [late.pop() for _ in late[:]]
        return [result for result in results if result.seq != 2]

    def see_and_let_come(feed: Any) -> bool:
        is_ready: bool = has_ready(feed)
        if is_ready and late:
            monkeypatch.setattr(feed.pool.pipes, "receive", lambda: [late.pop() for _ in late[:]] + receive())
        return is_ready

    if not in_order:
        monkeypatch.setattr(iterator._feed.pool.pipes, "receive", receive_late)
        monkeypatch.setattr(type(iterator._feed), "has_ready", property(see_and_let_come))
    got: list[int] = []
    errors = 0
    while True:
        try:
            got += next(iterator).tolist()
        except ValueError:
            errors += 1
        except StopIteration:
            break
        account = loader.stats().account
        assert account.delivered == len(got) + 8 * errors
    assert errors == 1
    assert sorted(got) == [i for i in range(64) if not 16 <= i < 24]


class SlowNumbers:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        time.sleep(0.005)
        return index


def test_what_a_signal_raises_condemns_no_sample_in_process() -> None:
    loader: Any = headrace.DataLoader(SlowNumbers(), 8, num_workers=0, on_error="quarantine")
    before = signal.signal(signal.SIGALRM, _raise_tick)
    iterator, ticks = iter(loader), 0
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        while True:
            try:
                next(iterator)
            except Tick:
                ticks += 1
            except StopIteration:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks
    assert not loader.quarantine


class Tick(Exception):
    pass


def _raise_tick(*_: object) -> None:
    raise Tick


class TwentyOne(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(21)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_an_exception_in_the_code_of_torch_loses_no_batch(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It strikes behind our part of `next`, in the mark for torch's profiler: the batch was taken, and not given."""
    leave, calls = torch.autograd.profiler.record_function.__exit__, 0

    def leave_and_raise(self: Any, *args: Any) -> None:
        nonlocal calls
        calls += 1
        leave(self, *args)
        if calls == 2:
            raise Tick

    monkeypatch.setattr(torch.autograd.profiler.record_function, "__exit__", leave_and_raise)
    iterator, got = iter(DataLoader(TwentyOne(), batch_size=7, num_workers=1, backend=backend)), list[int]()
    while True:
        try:
            got += next(iterator).tolist()
        except Tick:
            pass
        except StopIteration:
            break
    assert calls > 2
    assert got == list(range(21))


@pytest.mark.parametrize("strikes_at", range(1, 15))
def test_what_strikes_behind_a_call_of_next_loses_nothing(strikes_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython runs signal handlers behind calls: whichever of these raises, the batch in hand comes all the same."""
    calls = count(1)

    def get_ident() -> int:
        if next(calls) == strikes_at:
            raise KeyboardInterrupt
        return _thread.get_ident()

    monkeypatch.setattr("headrace.loader.workers.get_ident", get_ident)
    iterator = iter(DataLoader(list(range(24)), 4, num_workers=1))
    seen: list[int] = []
    while len(seen) < 100:
        try:
            seen += next(iterator).tolist()
        except KeyboardInterrupt:
            continue
        except StopIteration:
            break
    assert seen == list(range(24))
