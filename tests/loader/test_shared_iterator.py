"""One iterator that several threads of the training process ask: every batch comes once, whoever gets it."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.utils.data import Dataset

from headrace import DataLoader
from headrace.errors import NotSupported

from ..engine.datasets import Streamed
from .test_forked_children import in_child

SAMPLES, BATCH = 1200, 4


class Numbers(Dataset[int]):
    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        time.sleep(self._seconds)
        return index


@pytest.fixture
def _hasty_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_hasty_switches")
@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (Numbers(), {}),
        (Numbers(), {"backend": "thread"}),
        (Numbers(), {"num_workers": "auto"}),
        (Numbers(), {"num_workers": 0, "on_error": "quarantine"}),
        (Streamed("number", SAMPLES), {}),
    ],
    ids=["processes", "threads", "auto", "in-process", "iterable"],
)
def test_several_threads_ask_and_every_sample_comes_once(dataset: Any, arguments: dict[str, Any]) -> None:
    loader: DataLoader[Any] = DataLoader(dataset, BATCH, **{"num_workers": 2, **arguments})
    iterator = iter(loader)

    def take_all() -> list[int]:
        return [int(value) for batch in iterator for value in batch]

    with ThreadPoolExecutor(4) as threads:
        taken = [threads.submit(take_all) for _ in range(4)]
        assert sorted(number for one in taken for number in one.result(60)) == list(range(SAMPLES))
    assert not loader.quarantine


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_forked_child_waits_for_no_thread_that_it_has_not(num_workers: int) -> None:
    iterator = iter(DataLoader(Numbers(0.3), 1, num_workers=num_workers))
    for _ in range(max(1, num_workers)):  # those that come together
        next(iterator)

    def ask() -> None:
        if num_workers:
            with pytest.raises(NotSupported, match="forked child"):
                next(iterator)
        else:
            assert next(iterator) > 0

    inside = threading.Thread(target=lambda: next(iterator))
    inside.start()
    time.sleep(0.1)  # it is inside, and stays there for a sample
    assert inside.is_alive()
    in_child(ask)
    inside.join()


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_who_waits_while_another_thread_closes_is_at_the_end(backend: str) -> None:
    iterator: Any = iter(DataLoader(Numbers(1.0), 4, num_workers=1, backend=backend))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: list(iterator))
        time.sleep(0.3)
        iterator.close()
        assert waiting.result(30) == []


@pytest.mark.usefixtures("_hasty_switches")
@pytest.mark.parametrize("options", [{}, {"collate_fn": list}, {"on_error": "quarantine"}], ids=str)
def test_who_is_at_work_while_another_thread_closes_is_at_the_end(
    options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """At whatever moment; and the workers that end then are no lost ones, to be replaced."""
    draw, numbers = random.Random(4), list(range(100_000))
    with ThreadPoolExecutor(1) as threads:
        for _ in range(6):
            iterator: Any = iter(DataLoader(numbers, 8, num_workers=2, **options))  # type: ignore[arg-type]
            working = threads.submit(lambda: sum(1 for _ in iterator))  # noqa: B023 - it is waited for here
            time.sleep(0.1 * draw.random())
            iterator.close()
            working.result(30)
    assert capfd.readouterr().err == ""


def test_an_iterator_is_not_asked_inside_of_its_own_next() -> None:
    class Failing(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 5:
                raise ValueError("bad")
            return index

    iterator: Any = iter(DataLoader(Failing(), 2, num_workers=2, on_error=lambda failure: next(iterator)))
    with pytest.raises(NotSupported, match="inside of its own"):
        list(iterator)
