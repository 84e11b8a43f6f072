"""What is recorded of tasks that are over in no time: one in so many, and the samples as without us."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from headrace.launch.hooks import worker as hooks_worker
from headrace.launch.tape import tape
from headrace.model import EventKind
from headrace.signals import SHORT_TASK_NS, TaskPace, TaskUsage

SHORT_NS, LONG_NS = 50_000, 20_000_000
durations = st.lists(st.sampled_from([SHORT_NS, LONG_NS]), max_size=60)


def looked_at(durations_ns: list[int], *, apart_ns: int = 0) -> list[bool]:
    """Say of each task whether its resources are looked at, as a hook asks for it; tasks begin `apart_ns` apart."""
    pace, next_look, found, start_ns = TaskPace(times_samples=False), 0, [], 10**12
    for number, duration_ns in enumerate(durations_ns):
        found.append(number >= next_look)
        if found[-1]:
            assert pace.looks(number)
            next_look = pace.looked(number, start_ns, duration_ns)
        elif duration_ns >= SHORT_TASK_NS:
            next_look = pace.long_task(number)
        start_ns += max(apart_ns, duration_ns)
    return found


def test_a_process_holds_the_files_of_its_resources_open_once(written: list[int]) -> None:
    for number in range(50):
        resources = TaskUsage(tape)
        resources.start()
        resources.write(1, LONG_NS)
        if number == 0:
            before = len(os.listdir("/proc/self/fd"))
    assert written.count(EventKind.CPU) == 50
    assert len(os.listdir("/proc/self/fd")) == before


def test_of_short_tasks_the_first_are_looked_at_and_then_fewer_and_fewer() -> None:
    places = [number for number, looks in enumerate(looked_at([SHORT_NS] * 4000)) if looks]
    assert places[:8] == [*range(8)]
    assert [b - a for a, b in pairwise(places[7:14])] == [16, 32, 64, 128, 256, 256]


def test_tasks_that_come_seldom_are_looked_at_more_often() -> None:
    places = [number for number, looks in enumerate(looked_at([SHORT_NS] * 400, apart_ns=10_000_000)) if looks]
    assert max(b - a for a, b in pairwise(places)) == 16  # of 10 ms each: one look in 160 ms


@given(durations)
def test_a_task_after_a_long_one_is_looked_at(durations_ns: list[int]) -> None:
    found = looked_at(durations_ns)
    assert all(found[number] for number, before in enumerate(durations_ns[:-1], 1) if before == LONG_NS)


@given(durations.filter(len))
def test_how_long_a_task_takes_does_not_decide_whether_it_is_looked_at(durations_ns: list[int]) -> None:
    assert looked_at([*durations_ns[:-1], SHORT_NS]) == looked_at([*durations_ns[:-1], LONG_NS])


class Numbers:
    """Samples that come after some time, or at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __getitem__(self, index: int) -> int:
        if self.seconds:
            time.sleep(self.seconds)
        return index * index


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    kinds: list[int] = []
    monkeypatch.setattr(hooks_worker, "_task", SimpleNamespace(number=-1, samples=0, samples_ns=0))
    monkeypatch.setattr(tape, "write", lambda kind, *_: kinds.append(kind))
    monkeypatch.setattr(tape, "keep", lambda kind, *_: kinds.append(kind))
    return kinds


def hooked(dataset: Any) -> Any:
    fetcher = _MapDatasetFetcher(dataset, True, list, False)  # type: ignore[no-untyped-call]
    hooks_worker._time_fetcher(fetcher)
    return fetcher


def test_tiny_samples_are_fetched_without_us_and_looked_at_again(written: list[int]) -> None:
    dataset = Numbers(0.0)
    fetcher = hooked(dataset)
    was_plain = False
    for task in range(1, 5000):
        written.clear()
        assert fetcher.fetch([task, task + 1]) == [task * task, (task + 1) ** 2]
        assert fetcher.dataset is dataset  # whoever looks at the fetcher between two tasks sees what the user gave
        assert written.count(EventKind.FETCH) == written.count(EventKind.COLLATE) == 1
        if EventKind.SAMPLE not in written:
            was_plain = True
        elif was_plain:
            return
    pytest.fail(f"after 5000 tasks: plain at some time {was_plain}, and never timed again")


def test_a_data_set_that_somebody_put_into_the_fetcher_stays_there(written: list[int]) -> None:
    fetcher = hooked(Numbers(0.0))
    fetcher.fetch([1])
    fetcher.dataset = other = Numbers(0.0)
    for _ in range(1000):
        fetcher.fetch([3])
        assert fetcher.dataset is other


def test_samples_that_take_their_time_are_all_timed(written: list[int]) -> None:
    fetcher = hooked(Numbers(0.0005))
    for _ in range(20):
        fetcher.fetch([3, 4])
    assert written.count(EventKind.SAMPLE) == 40


def test_a_sample_that_fails_is_written_down_also_where_samples_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 7:
                raise ValueError("damaged")
            return super().__getitem__(index)

    samples: list[int] = []
    monkeypatch.setattr(hooks_worker, "_task", SimpleNamespace(number=-1, samples=0, samples_ns=0))
    monkeypatch.setattr(tape, "keep", lambda *_: None)
    monkeypatch.setattr(tape, "write", lambda *event: samples.append(event[3]) if event[0] == EventKind.SAMPLE else 0)
    fetcher = hooked(Damaged(0.0))
    for _ in range(8):  # the first are timed, however short
        fetcher.fetch([1, 2])
        samples.clear()
    fetcher.fetch([5, 6])
    assert not samples
    with pytest.raises(ValueError, match="damaged"):
        fetcher.fetch([6, 7, 8])
    assert samples == [7]


def test_what_a_data_set_makes_of_an_index_is_not_taken_for_that_of_the_sample() -> None:
    class Shuffled(Numbers):
        def __getitem__(self, index: int) -> int:
            index = 10 - index
            raise ValueError(f"damaged: {index}")

    for indices in ([3, 7], [3, 8]):
        with pytest.raises(ValueError, match="damaged") as raised:
            _MapDatasetFetcher(Shuffled(0.0), True, list, False).fetch(indices)
        assert hooks_worker._failed_at(raised.value, indices) == -1
