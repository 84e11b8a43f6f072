"""What is recorded of tasks that are over in no time: one in so many, and the samples as without us."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from headrace.launch import hooks_worker
from headrace.launch.tape import tape
from headrace.model import EventKind

SHORT_NS, LONG_NS = 50_000, 20_000_000
durations = st.lists(st.sampled_from([SHORT_NS, LONG_NS]), max_size=60)


def looked_at(durations_ns: list[int]) -> list[bool]:
    """Say of each task whether its resources were recorded, and check what was recorded of it."""
    written: list[tuple[int, ...]] = []
    before, tape.write = tape.write, lambda *record: written.append(record)
    try:
        resources, found = hooks_worker._Resources(), []
        for number, duration_ns in enumerate(durations_ns):
            resources.start()
            resources.write(number, duration_ns)
            of_task = [record for record in written if record[0] == EventKind.CPU]
            found.append(bool(of_task))
            assert all(record[1:3] == (number, duration_ns) for record in of_task)
            written.clear()
        return found
    finally:
        tape.write = before


def test_a_process_holds_the_files_of_its_resources_open_once() -> None:
    looked_at([LONG_NS])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        looked_at([LONG_NS])
    assert len(os.listdir("/proc/self/fd")) == before


def test_of_short_tasks_the_first_and_one_in_eight_are_looked_at() -> None:
    found = looked_at([SHORT_NS] * 64)
    assert [number for number, looks in enumerate(found) if looks] == [*range(8), *range(8, 64, 8)]


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
    monkeypatch.setattr(hooks_worker, "_task", hooks_worker._Task())
    monkeypatch.setattr(tape, "write", lambda kind, *_: kinds.append(kind))
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
        assert written.count(EventKind.FETCH) == written.count(EventKind.COLLATE) == 1
        if fetcher.dataset is dataset:
            was_plain = True
            assert EventKind.SAMPLE not in written
        elif was_plain:
            assert EventKind.SAMPLE in written
            return
    pytest.fail(f"after 5000 tasks: plain at some time {was_plain}, and never timed again")


def test_samples_that_take_their_time_are_all_timed(written: list[int]) -> None:
    fetcher = hooked(Numbers(0.0005))
    for _ in range(20):
        fetcher.fetch([3, 4])
    assert written.count(EventKind.SAMPLE) == 40
