"""`tune="online"` in a real loader: the same batches, more workers where the loop waits, and what cannot be refused."""

from __future__ import annotations

import copy
import logging
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.datapipes.map import SequenceWrapper

from headrace import DataLoader
from headrace.errors import NotSupported
from headrace.model import EventKind, Lever
from headrace.signals.recording import Recorder, close_lane, read_run
from headrace.storage.reading import Extent, read_extent

from ..storage.slow_fuse import slow_file

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Slow(Dataset[Any]):
    """Samples that wait: as many workers as wait at once bring more of them."""

    def __init__(self, size: int = 10_000, cost_s: float = 0.01) -> None:
        self.size, self.cost_s = size, cost_s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.cost_s)
        return np.full((8,), index, np.int64)


class Stream(IterableDataset[int]):
    """Some numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def grow(loader: DataLoader[Any], *, until: int = 1, step_s: float = 0.0, within_s: float = 40.0) -> list[int]:
    """Iterate until there are so many adjustments; returns the samples that came."""
    came: list[int] = []
    deadline = time.monotonic() + within_s
    for batch in loader:
        came += batch[:, 0].tolist()
        time.sleep(step_s)
        if len(loader.stats().adjustments) >= until or time.monotonic() > deadline:
            break
    return came


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_loop_that_waits_gets_more_workers_and_the_same_samples(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="headrace")
    loader = DataLoader(Slow(), batch_size=8, num_workers=1, tune="online", backend=backend)
    came = grow(loader, until=3)
    assert came == list(range(len(came)))
    stats = loader.stats()
    first = stats.adjustments[0]
    assert (first.lever, first.before, first.after) == (Lever.WORKERS, 1, 2)
    assert f'tune="online": {first.said().en}' in caplog.text
    assert loader.num_workers >= 2  # the next epoch begins with them, though the loop has left this one
    assert stats.num_workers_reason == 'set by tune="online"'


def test_what_was_found_outlives_an_epoch() -> None:
    loader = DataLoader(Slow(240), batch_size=8, num_workers=1, tune="online")
    for _ in range(12):
        list(loader)
        if loader.num_workers > 1:
            break
    assert loader.num_workers > 1
    assert loader.stats().num_workers_reason == 'set by tune="online"'
    assert len(list(loader)) == 30


def test_a_loop_that_does_not_wait_gives_workers_back() -> None:
    loader = DataLoader(Slow(cost_s=0.0005), batch_size=4, num_workers=6, tune="online", persistent_workers=True)
    came = grow(loader, step_s=0.02)
    assert came == list(range(len(came)))
    assert loader.stats().adjustments[0].after < 6


def test_decisions_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(tmp_path / "run") as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        loader = DataLoader(Slow(), batch_size=8, num_workers=1, tune="online")
        grow(loader)
        close_lane()
    run = read_run(tmp_path / "run")
    (event, *_) = run.events_of(EventKind.TUNED)
    assert run.name_of(event["pid"], event["arg"]) == "WORKERS WAITS"


class Ragged(Slow):
    """Samples of several lengths, which lie in blocks of their workers."""

    def __getitem__(self, index: int) -> Any:
        return np.zeros((index % 3 + 1) << 18, np.float32)


def keep(samples: list[Any]) -> list[Any]:
    return samples


def test_what_workers_kept_is_given_back_when_they_have_gone() -> None:
    loader = DataLoader(Ragged(), batch_size=4, num_workers=4, memory="96MiB", collate_fn=keep)
    batches = iter(loader)
    for _ in range(12):
        next(batches)
    pool = batches._feed.pool
    loader.resize(num_workers=1, prefetch_batches=1)
    deadline = time.monotonic() + 30
    while len(pool.processes) > 1 and time.monotonic() < deadline:
        next(batches)
    before = pool.arena.used_bytes()
    pool.trim()
    assert pool.arena.used_bytes() < before - (1 << 20)  # at once: of those that are gone, nobody else would


class Far(Dataset[Any]):
    """Samples in a file whose server takes its time for each read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __len__(self) -> int:
        return 1 << 20

    def extents(self, index: int) -> tuple[Extent, ...]:
        return (Extent(self.path, (index * 7919 % 4096) << 20, 1 << 16),)

    def __getitem__(self, index: int) -> Any:
        return np.full((8,), len(read_extent(self.extents(index)[0])), np.int64)


@pytest.mark.root
def test_reads_in_flight_grow_from_what_was_asked_for(tmp_path: Path) -> None:
    try:
        with slow_file(tmp_path, servers=16, latency_s=0.02) as path:
            loader = DataLoader(Far(path), batch_size=8, num_workers=2, io_depth=1, tune="online")
            assert set(grow(loader, until=2)) == {1 << 16}
            moved = [one for one in loader.stats().adjustments if one.lever is Lever.DEPTH]
            del loader
    except OSError as why:
        pytest.skip(str(why))
    assert moved[-1].after > moved[0].before >= 1


def test_left_out_workers_are_measured_first() -> None:
    loader = DataLoader(Slow(64), batch_size=8, tune="online")
    assert len(list(loader)) == 8
    assert loader.num_workers > 1
    assert "usable processors" in loader.stats().num_workers_reason
    in_process = DataLoader(list(range(64)), batch_size=8, tune="online")  # type: ignore[arg-type]
    assert len(list(in_process)) == 8
    assert in_process.stats().backend == "in-process"
    assert in_process.stats().adjustments == ()


def test_left_out_without_tuning_is_none() -> None:
    assert DataLoader(Slow()).num_workers == 0
    assert DataLoader(Slow()).stats().num_workers_reason == "num_workers=0"


def test_another_loader_over_the_same_samples_goes_on() -> None:
    loader = DataLoader(Slow(), batch_size=8, num_workers=1, tune="online")
    grow(loader)
    other = DataLoader(Slow(64), batch_size=8, num_workers=1, tune="online")
    other._tune_on(loader)
    assert other.num_workers == 2
    assert len(list(other)) == 8
    assert other.stats().adjustments[0].after == 2


def test_a_copy_and_another_process_begin_anew() -> None:
    loader = DataLoader(Slow(64), batch_size=8, num_workers=2, tune="online")
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert len(list(other)) == 8


def test_two_iterators_at_once_do_not_judge_each_other() -> None:
    loader = DataLoader(Slow(64), batch_size=8, num_workers=2, tune="online")
    assert [len(one) for one, _ in zip(loader, loader, strict=True)] == [8] * 8


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dataset": Stream(), "num_workers": 2}, "which samples come together in a batch"),
        ({"dataset": Stream()}, "which samples come together in a batch"),
        ({"dataset": SequenceWrapper([1, 2]), "num_workers": 2}, "a data pipe runs in torch's own loader"),
        ({"dataset": Slow(), "num_workers": 2, "assign": "fixed"}, "assign='fixed' runs in torch's own loader"),
        ({"dataset": Slow(), "num_workers": 0}, "num_workers=0 fetches samples in the training process"),
    ],
)
def test_what_cannot_be_tuned_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotSupported, match=reason) as caught:
        DataLoader(**settings, tune="online")
    assert caught.value.next_step


def test_other_ways_to_tune_are_not_known() -> None:
    with pytest.raises(ValueError, match="there is 'online'"):
        DataLoader(Slow(), tune="offline")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_resize_while_workers_are_being_started_leaves_as_many_as_it_says(backend: str) -> None:
    loader = DataLoader(Slow(), batch_size=2, num_workers=4, tune="online", backend=backend)
    batches = iter(loader)
    while not any(one.lever is Lever.WORKERS for one in loader.stats().adjustments):
        next(batches)
    (*_, told) = loader.stats().adjustments
    loader.resize(num_workers=told.after)
    for _ in range(10):
        next(batches)
        if loader.stats().adjustments[-1] != told:
            break
        assert batches._feed.pool.num_workers <= told.after
