"""Real processes: what they hold is seen, each page once, and what grows is named."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.memory.arena import Arena
from headrace.forensics.memory import Growth, GrowthKind, MemoryWatch, WorkerMemory, find_growth, read_worker_memory

MIB = 1 << 20
FORK = multiprocessing.get_context("fork")


@contextmanager
def child(work: Callable[[int], object]) -> Iterator[tuple[int, Callable[[int], None]]]:
    """A process that does `work(n)` on demand, keeps the result, and then waits."""
    ours, theirs = FORK.Pipe()

    def run(pipe: Connection) -> None:
        kept = []
        while True:
            number = pipe.recv()
            if number < 0:
                return
            kept.append(work(number))
            pipe.send(number)

    process = FORK.Process(target=run, args=(theirs,))
    process.start()
    theirs.close()

    def tell(number: int) -> None:
        ours.send(number)
        assert ours.recv() == number

    try:
        assert process.pid is not None
        yield process.pid, tell
    finally:
        ours.send(-1)
        process.join(60)
        process.close()
        ours.close()


def take(size: int) -> mmap.mmap:
    """Memory that is fresh: malloc might hand out pages that a large parent had freed, which a fork shares."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    memory[:] = b"x" * size
    return memory


def test_the_tree_is_what_its_processes_hold_each_page_once() -> None:
    ballast = take(64 * MIB)  # shared with the fork: must not count twice
    with child(take) as (pid, tell):
        watch = MemoryWatch(os.getpid(), every_s=0.0)
        first = watch.sample(0.0, (pid,))
        assert first is not None
        tell(48 * MIB)
        sample = watch.sample(0.1, (pid,))
        assert sample is not None
        assert sample.tree_bytes - first.tree_bytes == pytest.approx(48 * MIB, rel=0.1)
        assert psutil.Process(pid).memory_info().rss > 64 * MIB + 48 * MIB  # which counts the shared ballast again
        assert sample.own_bytes[pid] == pytest.approx(48 * MIB, rel=0.2)
    assert len(ballast) == 64 * MIB
    sample = watch.sample(0.2, (pid,))
    assert sample is not None
    assert pid not in sample.own_bytes  # gone


@pytest.mark.parametrize("is_forked", [True, False])
def test_the_cheap_look_knows_what_a_fork_shares(is_forked: bool) -> None:
    ballast = take(64 * MIB)
    context = FORK if is_forked else multiprocessing.get_context("spawn")
    process = context.Process(target=time.sleep, args=(60,))
    process.start()
    assert process.pid is not None
    try:
        watch = MemoryWatch(os.getpid(), is_forked=is_forked)
        sample = watch.sample(1.0, (process.pid,))
        assert sample is not None
        own_bytes, info = sample.own_bytes[process.pid], psutil.Process(process.pid).memory_info()
        if is_forked:
            assert info.rss - info.shared > 64 * MIB
            assert own_bytes < 16 * MIB
        else:
            assert own_bytes > 0
    finally:
        process.kill()
        process.join()
        process.close()
    assert len(ballast) == 64 * MIB


def test_a_look_is_taken_when_due_and_kept_for_a_while() -> None:
    watch = MemoryWatch(os.getpid(), every_s=0.25, keep_s=1.0)
    taken = [watch.sample(step / 20, ()) is not None for step in range(60)]
    assert sum(taken) == 12
    ring = watch.recent()
    assert [s.at_s for s in ring] == sorted(s.at_s for s in ring)
    assert ring[-1].at_s - ring[0].at_s <= 1.0
    assert ring[-1].available_bytes is not None
    assert ring[-1].total_bytes == psutil.virtual_memory().total


def test_a_zombie_and_a_stranger_are_no_processes(tmp_path: Path) -> None:
    process = FORK.Process(target=os._exit, args=(0,))
    process.start()
    assert process.pid is not None
    deadline = time.monotonic() + 60
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    sample = MemoryWatch(os.getpid()).sample(0.0, (process.pid, 2**22 + 1))
    process.join()
    process.close()
    assert sample is not None
    assert list(sample.own_bytes) == [os.getpid()]
    nothing = MemoryWatch(1, root=tmp_path).sample(0.0, (2,))
    assert nothing is not None
    assert (nothing.own_bytes, nothing.available_bytes) == ({}, None)


def look(pid: int, at_s: float) -> WorkerMemory:
    holdings = read_worker_memory(pid, at_s)
    assert holdings is not None
    return holdings


def grow_in(pid: int, tell: Callable[[int], None], numbers: list[int]) -> list[Growth]:
    history = []
    for second, number in enumerate(numbers):
        tell(number)
        history.append(look(pid, float(second)))
    return find_growth(history, at_least_bytes=8 * MIB)


def test_a_heap_that_grows() -> None:
    with child(take) as (pid, tell):
        (growth,) = grow_in(pid, tell, [4 * MIB] * 8)
    assert growth.kind is GrowthKind.HEAP
    assert growth.grown_bytes == pytest.approx(28 * MIB, rel=0.15)
    assert growth.bytes_per_s == pytest.approx(4 * MIB, rel=0.15)


def test_shared_pages_that_become_private() -> None:
    ballast = take(64 * MIB)

    def write_into(part: int) -> None:
        for page in range(part * 4 * MIB, (part + 1) * 4 * MIB, 4096):
            ballast[page] = 1

    with child(write_into) as (pid, tell):
        found = grow_in(pid, tell, list(range(8)))
    assert [growth.kind for growth in found] == [GrowthKind.COPY_ON_WRITE]
    # the first look comes before the first write is done, or behind it
    assert found[0].grown_bytes == pytest.approx(30 * MIB, rel=0.15)


def test_queued_data_is_nobodys_heap() -> None:
    arena = Arena.create(64 * MIB)

    def fill(part: int) -> None:
        arena.view(part * 4 * MIB, 4 * MIB)[:] = b"y" * (4 * MIB)

    with child(fill) as (pid, tell):
        found = grow_in(pid, tell, list(range(8)))
    arena.close()
    assert found == []


def test_a_burst_and_a_plateau_are_no_growth() -> None:
    with child(take) as (pid, tell):
        assert grow_in(pid, tell, [16 * MIB, 1, 1, 1, 1, 1, 1, 1]) == []
        assert grow_in(pid, tell, [1, 1, 1, 1, 64 * MIB, 1, 1, 1]) == []


def test_gone_is_none() -> None:
    assert read_worker_memory(2**22 + 1, 0.0) is None


def steadily(start: int, step: int, noise: list[int]) -> list[WorkerMemory]:
    return [WorkerMemory(at_s=t * 10.0, heap_bytes=start + t * step + n, shared_bytes=0) for t, n in enumerate(noise)]


@given(
    start=st.integers(0, 10**10),
    step=st.integers(32 * MIB, 512 * MIB),
    noise=st.lists(st.integers(0, 16 * MIB), min_size=6, max_size=40),
)
def test_a_leak_is_found_through_noise(start: int, step: int, noise: list[int]) -> None:
    (growth,) = find_growth(steadily(start, step, noise))
    assert growth.kind is GrowthKind.HEAP
    assert growth.bytes_per_s == pytest.approx(step / 10, rel=0.75)


@given(start=st.integers(0, 10**10), noise=st.lists(st.integers(0, 48 * MIB), min_size=6, max_size=40))
def test_noise_alone_is_no_leak(start: int, noise: list[int]) -> None:
    assert find_growth(steadily(start, 0, noise)) == []


def test_the_warm_up_does_not_count() -> None:
    history = steadily(0, 0, [0, 200 * MIB, 400 * MIB, *[600 * MIB] * 7])
    assert find_growth(history, skip_s=30.0) == []
