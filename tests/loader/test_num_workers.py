"""How many workers there are: none where nobody asked for them, as in torch; and what "auto" measures and says."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch.utils.data as torch_data
from torch.utils.data import Dataset, IterableDataset

import headrace
from headrace.errors import NotSupported

KINDS = {"torch": torch_data.DataLoader, "headrace": headrace.DataLoader}


class Stream(IterableDataset[int]):
    """Sixty samples, which it does not split among workers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(60))


class Numbers(Dataset[Any]):
    """Plain samples, of any cost."""

    def __init__(self, size: int = 60, cost_s: float = 0.0) -> None:
        self.size, self.cost_s = size, cost_s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.cost_s)
        return index


class AtHome(Numbers):
    """Holds what must not leave the process, and gives out samples that cannot: each says who made it."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.local = threading.Lock(), threading.local()
        self.rows = sqlite3.connect(":memory:")  # of this thread alone: another one may not use it
        self.rows.execute("create table samples (number int)")
        self.rows.executemany("insert into samples values (?)", [(number,) for number in range(self.size)])
        self.local.scale = 10

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            (number,) = self.rows.execute("select number from samples where number = ?", (index,)).fetchone()
        return {"number": self.local.scale * number, "pid": os.getpid(), "again": lambda: number, "lock": self.lock}


def keep(samples: list[Any]) -> list[Any]:
    return samples


class Curriculum(Numbers):
    """What a sample is depends on what the loop has set, as in a curriculum."""

    stage = 0

    def __getitem__(self, index: int) -> Any:
        return 1000 * self.stage + super().__getitem__(index)


# ------------------------------------------------------------------------------------------- left out


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterable_that_does_not_split_comes_once(kind: str) -> None:
    loader = KINDS[kind](Stream(), batch_size=4)
    assert [number for batch in loader for number in batch.tolist()] == list(range(60))
    assert loader.num_workers == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_must_not_leave_the_process_stays_in_it(kind: str) -> None:
    dataset = AtHome()
    samples = [sample for batch in KINDS[kind](dataset, batch_size=4, collate_fn=keep) for sample in batch]
    assert [sample["number"] for sample in samples] == [10 * number for number in range(60)]
    assert [sample["again"]() for sample in samples] == list(range(60))
    assert {sample["pid"] for sample in samples} == {os.getpid()}
    assert all(sample["lock"] is dataset.lock for sample in samples)
    dataset.rows.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_batch_sees_what_the_loop_has_changed(kind: str) -> None:
    dataset, seen = Curriculum(12, cost_s=0.001), []
    for batch in KINDS[kind](dataset, batch_size=4):
        seen += batch.tolist()
        dataset.stage += 1
    assert seen == [1000 * (number // 4) + number for number in range(12)]


def test_our_own_arguments_need_no_workers() -> None:
    loader = headrace.DataLoader(Numbers(), 4, on_error="quarantine", max_bad=3, memory="64MiB", backend="thread")
    assert [number for batch in loader for number in batch.tolist()] == list(range(60))
    stats = loader.stats()
    assert (stats.num_workers, stats.num_workers_reason, stats.backend) == (0, "num_workers=0", "in-process")
    assert repr(loader) == "<headrace.DataLoader of Numbers: batch 4, in-process>"


@pytest.mark.parametrize("number", [None, "4"], ids=str)
def test_what_is_no_number_is_refused_by_name(number: Any) -> None:
    with pytest.raises(TypeError, match=f'num_workers must be a whole number or "auto", got {number!r}'):
        headrace.DataLoader(Numbers(), num_workers=number)


# ------------------------------------------------------------------------------------------- "auto"


def test_auto_measures_and_says_what_it_chose(caplog: pytest.LogCaptureFixture) -> None:
    loader = headrace.DataLoader(Numbers(40, cost_s=0.01), 4, False, None, None, "auto")
    assert type(loader.num_workers) is int
    assert repr(loader) == "<headrace.DataLoader of Numbers: batch 4, workers to be measured>"
    assert loader.stats().num_workers_reason == "to be measured on the first samples"
    with caplog.at_level(logging.INFO, logger="headrace"):
        for epoch in range(2):
            assert [number for batch in loader for number in batch.tolist()] == list(range(40)), epoch
    stats = loader.stats()
    assert stats.num_workers == loader.num_workers > 1
    assert "is waiting" in stats.num_workers_reason
    assert repr(loader) == f"<headrace.DataLoader of Numbers: batch 4, {loader.num_workers} workers>"
    (said,) = [text for text in caplog.messages if 'num_workers="auto"' in text]
    assert said.endswith(stats.num_workers_reason)


def test_auto_stays_in_the_process_where_workers_would_cost_more_than_they_bring() -> None:
    loader = headrace.DataLoader([1.0] * 4000, 4, num_workers="auto")  # type: ignore[arg-type]  # a list will do
    for _ in range(2):
        assert sum(len(batch) for batch in loader) == 4000
        assert (loader.num_workers, loader.stats().backend) == (0, "in-process")
    assert loader.stats().num_workers_reason.startswith("in-process: a sample takes ")


class Together(Numbers):
    """Many quick samples at once: a list, or a batch that needs no collation."""

    def __getitems__(self, indices: list[int]) -> Any:
        time.sleep(0.0003 + 0.006 * (indices[0] == 0))  # the first of all opens a file
        return list(indices)


@pytest.mark.parametrize("settings", [{}, {"collate_fn": list}])
def test_auto_knows_the_time_of_a_sample_among_many_that_are_fetched_at_once(settings: dict[str, Any]) -> None:
    loader = headrace.DataLoader(Together(1 << 20), 256, num_workers="auto", **settings)
    next(iter(loader))
    assert loader.stats().num_workers_reason.startswith("in-process: a sample takes "), loader.stats()


class Counting(Numbers):
    """Samples that compute for 60 µs each, however many are asked for at once."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        end = time.perf_counter() + 6e-5 * len(indices)
        while time.perf_counter() < end:
            pass
        return list(indices)


def test_auto_takes_no_sample_for_quicker_than_it_is_because_batches_come_in_parts() -> None:
    loader = headrace.DataLoader(Counting(1 << 20), 16, num_workers="auto")
    next(iter(loader))
    assert "in-process" not in loader.stats().num_workers_reason


@pytest.mark.parametrize("asked", [{"timeout": 60}, {"worker_init_fn": int}], ids=str)
def test_auto_keeps_a_worker_for_what_only_workers_do(asked: dict[str, Any]) -> None:
    loader = headrace.DataLoader([1.0] * 400, 4, num_workers="auto", **asked)  # type: ignore[arg-type]
    for _ in range(2):
        assert sum(len(batch) for batch in loader) == 400
    stats = loader.stats()
    assert (loader.num_workers, stats.num_workers_reason) == (1, f"1, which {next(iter(asked))}= needs")


def _loaded_by_auto() -> tuple[list[int], str, str]:
    told = io.StringIO()
    logging.basicConfig(stream=told, level=logging.INFO, force=True)
    loader = headrace.DataLoader(Numbers(40, cost_s=0.01), 4, num_workers="auto")
    got = [number for _ in range(2) for batch in loader for number in batch.tolist()]
    return got, loader.stats().num_workers_reason, told.getvalue()


def test_auto_stays_in_a_process_that_may_have_no_children() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        got, reason, told = pool.apply(_loaded_by_auto)
    assert (got, reason) == ([*range(40), *range(40)], "in-process: a daemonic process may have no workers")
    assert told.count('num_workers="auto" chose in-process: a daemonic process') == 1


def _refused_by_auto(**settings: Any) -> str:
    try:
        list(headrace.DataLoader([*range(40)], num_workers="auto", **settings))  # type: ignore[arg-type]
    except NotSupported as error:
        return error.what
    return ""


@pytest.mark.parametrize("settings", [{"timeout": 5}, {"worker_init_fn": abs}])
def test_auto_is_refused_in_such_a_process_for_what_needs_workers(settings: dict[str, Any]) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert "need workers" in pool.apply(_refused_by_auto, kwds=settings)


def test_auto_is_refused_for_what_torchs_own_loader_runs() -> None:
    with pytest.raises(NotSupported, match="a data pipe runs in torch's own loader"):
        headrace.DataLoader(torch_data.datapipes.map.SequenceWrapper(range(60)), num_workers="auto")


@pytest.mark.parametrize("kind", [Stream, torch_data.datapipes.iter.IterableWrapper])
def test_auto_is_refused_where_workers_may_repeat_each_other(kind: Any) -> None:
    dataset = kind() if kind is Stream else kind(range(60))
    with pytest.raises(NotSupported, match="an IterableDataset") as caught:
        headrace.DataLoader(dataset, batch_size=4, num_workers="auto")
    assert caught.value.evidence == {"dataset": type(dataset).__name__}
    assert caught.value.next_step.startswith("num_workers=0, or a number")
    for number in (0, 1):
        loader = headrace.DataLoader(Stream(), batch_size=4, num_workers=number)
        assert [one for batch in loader for one in batch.tolist()] == list(range(60))
