"""A loader that reads ahead gives what it would give without, whatever dies on the way."""

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

import headrace
from headrace.storage.reading import Extent, close_files, read_extent

DEADLINE_S = 60.0


class Packed(Dataset[Any]):
    """Samples that lie one after the other in a few files, as members of tar shards do."""

    def __init__(self, folder: Path, *, num_samples: int = 240, size: int = 40_000, bad: frozenset[int] = frozenset()):
        self.folder, self.size, self.bad, self.num_samples = str(folder), size, bad, num_samples
        draw = random.Random(1)
        for shard in range(3):
            data = draw.randbytes(512 + (num_samples // 3) * (size + 512))
            (folder / f"{shard}.tar").write_bytes(data)

    def __len__(self) -> int:
        return self.num_samples

    def extents(self, index: int) -> tuple[Extent, ...]:
        per_shard = self.num_samples // 3
        path = os.path.join(self.folder, f"{index // per_shard}.tar")
        at = 512 + (index % per_shard) * (self.size + 512)
        return Extent(path, at, self.size // 2), Extent(path, at + self.size // 2, self.size // 2)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        first, second = (read_extent(extent) for extent in self.extents(index))
        if index in self.bad:
            raise ValueError(f"sample {index} is bad")
        return index, np.concatenate([np.frombuffer(first, np.uint8), np.frombuffer(second, np.uint8)])


@pytest.fixture(autouse=True)
def _closes_files() -> Iterator[None]:
    yield
    close_files()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packed")


@pytest.fixture(scope="module")
def packed(folder: Path) -> Packed:
    return Packed(folder)


def loader_of(dataset: Any, **settings: Any) -> headrace.DataLoader[Any]:
    defaults: dict[str, Any] = {"batch_size": 8, "io_depth": 4, "num_workers": 2}
    return headrace.DataLoader(dataset, **{**defaults, **settings})


def seen_of(loader: headrace.DataLoader[Any], dataset: Packed) -> list[int]:
    seen: list[int] = []
    for indices, data in loader:
        seen += indices.tolist()
        for index, row in zip(indices.tolist(), data.numpy(), strict=True):
            check(dataset, index, row)
    return seen


def check(dataset: Packed, index: int, row: Any) -> None:
    first, _ = dataset.extents(index)
    with open(first.path, "rb") as file:
        file.seek(first.offset)
        assert row.tobytes() == file.read(dataset.size)


def wait_for(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.005)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_workers": 0},
        {"shuffle": True},
        {"backend": "thread"},
        {"batch_size": None, "num_workers": 1},
        pytest.param({"multiprocessing_context": "spawn"}, marks=pytest.mark.slow),
        {"num_workers": "auto"},
        {"drop_last": True, "batch_size": 7, "in_order": False},
    ],
    ids=str,
)
def test_every_sample_once_and_right(packed: Packed, settings: dict[str, Any]) -> None:
    loader = loader_of(packed, **settings)
    if settings.get("batch_size", 8) is None:
        seen = []
        for index, row in loader:
            seen.append(index)
            check(packed, index, row.numpy())
    else:
        seen = seen_of(loader, packed)
    expected = 238 if settings.get("drop_last") else 240
    assert len(set(seen)) == len(seen) == expected
    if not settings.get("shuffle") and settings.get("in_order", True):
        assert seen == list(range(240))
    reader = loader.stats().reader
    assert reader is not None
    assert reader.hits + reader.self_reads >= 2 * expected


@pytest.mark.parametrize("settings", [{}, {"num_workers": 0}, {"persistent_workers": True}], ids=str)
def test_the_shuffled_order_is_the_same_as_without(packed: Packed, settings: dict[str, Any]) -> None:
    def order(io_depth: int) -> list[int]:
        torch.manual_seed(5)
        loader = loader_of(packed, shuffle=True, io_depth=io_depth, **settings)
        return [index for _ in range(2) for indices, _ in loader for index in indices.tolist()]

    assert order(0) == order(4)


@pytest.mark.parametrize("settings", [{"num_workers": 0}, {"persistent_workers": True}], ids=str)
def test_workers_find_what_was_read_ahead(packed: Packed, settings: dict[str, Any]) -> None:
    loader = loader_of(packed, **settings)
    deadline = time.monotonic() + DEADLINE_S
    while True:  # the reader may start later than the workers: then they read for themselves at first
        for number, _ in enumerate(loader):
            if number == 2:
                iterator: Any = next(iter(loader._live))
                wait_for(lambda: iterator.snapshot().reader.reads, "the first read")  # noqa: B023
        stats = loader.stats().reader
        assert stats is not None
        if stats.hits:
            break
        assert time.monotonic() < deadline
    assert stats.hit_bytes >= stats.hits * packed.size // 2
    assert stats.bytes_read >= 0.9 * stats.hit_bytes


def test_through_subsets_and_concatenations(packed: Packed) -> None:
    both: Any = ConcatDataset([Subset(packed, range(100, 140)), packed])
    loader = loader_of(Subset(both, [0, 39, 40, 41, 279]), batch_size=5)
    (batch,) = list(loader)
    assert batch[0].tolist() == [100, 139, 0, 1, 239]
    assert loader.stats().reader is not None


class Breaks:
    """A sampler that gives some batches and then fails."""

    def __iter__(self) -> Iterator[list[int]]:
        for first in range(0, 40, 8):
            yield list(range(first, first + 8))
        raise KeyError("the sampler is broken")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_a_sampler_raises_comes_in_its_place(packed: Packed, num_workers: int) -> None:
    def run(io_depth: int) -> list[int]:
        loader = headrace.DataLoader(packed, batch_sampler=Breaks(), num_workers=num_workers, io_depth=io_depth)
        seen: list[int] = []
        with pytest.raises(KeyError, match="the sampler is broken"):
            seen.extend(index for indices, _ in loader for index in indices.tolist())
        return seen

    seen = run(2)
    if num_workers == 0:
        assert seen == run(0) == list(range(40))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("at", [0, 12])
def test_killing_the_reader_changes_nothing(packed: Packed, num_workers: int, at: int) -> None:
    loader = loader_of(packed, num_workers=num_workers)
    seen: list[int] = []
    for number, (indices, data) in enumerate(loader):
        if number == at:
            iterator: Any = next(iter(loader._live))
            os.kill(iterator._reading.reader.pid, signal.SIGKILL)
        seen += indices.tolist()
        for index, row in zip(indices.tolist(), data.numpy(), strict=True):
            check(packed, index, row)
    assert seen == list(range(240))
    stats = loader.stats().reader
    assert stats is not None
    assert not stats.is_alive


def test_killing_workers_and_the_reader_under_quarantine(folder: Path) -> None:
    dataset = Packed(folder, bad=frozenset({17, 100, 230}))
    loader = loader_of(dataset, on_error="quarantine", max_bad=5)
    seen: list[int] = []
    for number, (indices, data) in enumerate(loader):
        iterator: Any = next(iter(loader._live))
        if number in (2, 12):
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
        if number == 8:
            os.kill(iterator._reading.reader.pid, signal.SIGKILL)
        seen += indices.tolist()
        for index, row in zip(indices.tolist(), data.numpy(), strict=True):
            check(dataset, index, row)
    assert set(seen) == set(range(240)) - {17, 100, 230}
    assert sorted(failure.key for failure in loader.quarantine) == [17, 100, 230]
    assert len(seen) == 240


def test_an_epoch_that_is_left_early_and_one_more(packed: Packed) -> None:
    loader = loader_of(packed, persistent_workers=True)
    for _ in range(3):
        for number, _batch in enumerate(loader):
            if number == 4:
                break
    assert seen_of(loader, packed) == list(range(240))


class Files(Dataset[Any]):
    def __init__(self, folder: Path) -> None:
        self.samples = [(str(folder / f"{number}.bin"), number) for number in range(40)]
        for path, number in self.samples:
            Path(path).write_bytes(bytes([number]) * 5000)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, np.fromfile(self.samples[index][0], np.uint8)


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_loose_files_are_brought_into_the_cache(tmp_path: Path, is_function: bool, num_workers: int) -> None:
    dataset = Files(tmp_path)
    paths = [Path(path) for path, _ in dataset.samples]
    readahead: Any = (lambda index: paths[index]) if is_function else True
    loader = loader_of(Subset(dataset, range(40)), readahead=readahead, num_workers=num_workers)
    iterator = iter(loader)
    batches = [next(iterator)]
    wait_for(lambda: (r := loader.stats().reader) and r.files, "a file")
    batches += list(iterator)
    assert [int(i) for indices, _ in batches for i in indices] == list(range(40))
    assert all((data == indices[:, None]).all() for indices, data in batches)


def test_what_cannot_be_is_said(packed: Packed, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="io_depth must be a whole number from 0"):
        headrace.DataLoader(packed, io_depth=-1)
    with pytest.raises(TypeError, match="readahead must be True, or a function"):
        headrace.DataLoader(packed, readahead="data")  # type: ignore[arg-type]
    plain: Any = torch.utils.data.TensorDataset(torch.arange(3))
    with pytest.raises(ValueError, match="give a function that returns the path"):
        list(headrace.DataLoader(plain, num_workers=0, readahead=True))
    with caplog.at_level(logging.WARNING):
        list(headrace.DataLoader(plain, num_workers=0, io_depth=7))
    assert "io_depth=7 has no effect: TensorDataset does not say where its samples lie" in caplog.text


def test_what_lies_in_the_page_cache_is_not_read_ahead_by_itself(
    packed: Packed, caplog: pytest.LogCaptureFixture
) -> None:
    for shard in range(3):
        (Path(packed.folder) / f"{shard}.tar").read_bytes()
    with caplog.at_level(logging.INFO):
        loader = loader_of(packed, io_depth=None)
        assert seen_of(loader, packed) == list(range(240))
    assert loader.stats().reader is None
    assert "nothing is read ahead" in caplog.text
    with caplog.at_level(logging.INFO):
        assert len(seen_of(loader_of(packed, io_depth=3), packed)) == 240
    assert "extents are read ahead, 3 reads of up to" in caplog.text


def test_workers_that_cannot_be_started_leave_no_reader(packed: Packed) -> None:
    loader = loader_of(packed, multiprocessing_context="spawn", worker_init_fn=lambda _: None)
    with pytest.warns(UserWarning, match="pickle error"), pytest.raises((AttributeError, TypeError)) as caught:
        iter(loader)
    # the traceback holds the iterator, as `sys.last_value` of a notebook does
    assert [child for child in psutil.Process().children() if "reader_process" in " ".join(child.cmdline())] == []
    del caught


@pytest.mark.parametrize("options", [{}, {"on_error": "quarantine"}], ids=str)
def test_ctrl_c_while_samples_are_planned_ends_no_epoch_in_the_process(folder: Path, options: dict[str, Any]) -> None:
    class Struck(Packed):
        is_struck = True

        def extents(self, index: int) -> tuple[Extent, ...]:
            if index == 200 and self.is_struck and self.is_planned:
                self.is_struck = False
                raise KeyboardInterrupt
            return super().extents(index)

        is_planned = False

    dataset = Struck(folder)
    iterator = iter(loader_of(dataset, num_workers=0, **options))
    seen, interrupts, dataset.is_planned = list[int](), 0, True
    while True:
        try:
            seen += next(iterator)[0].tolist()
        except KeyboardInterrupt:
            interrupts += 1
        except StopIteration:
            break
    assert interrupts == 1
    assert seen == list(range(240))


def test_what_a_sampler_raises_comes_in_its_place_and_ctrl_c_at_once(packed: Packed) -> None:
    class Raising:
        """Asked again, it goes on, but for Ctrl-C."""

        def __init__(self, error: BaseException) -> None:
            self.at, self.error = 0, error

        def __iter__(self) -> Iterator[list[int]]:
            return self

        def __next__(self) -> list[int]:
            self.at += 1
            if self.at == 6:
                raise self.error
            if self.at > 10:
                raise StopIteration
            return [self.at]

    def take(error: BaseException) -> list[Any]:
        iterator = iter(loader_of(packed, num_workers=0, batch_size=1, batch_sampler=Raising(error)))
        got = list[Any]()
        while True:
            try:
                got += next(iterator)[0].tolist()
            except StopIteration:
                return got
            except headrace.NotSupported:
                return [*got, "the sampler cannot be asked again"]
            except (ValueError, KeyboardInterrupt) as raised:
                got.append(type(raised))

    assert take(ValueError("no more")) == [1, 2, 3, 4, 5, ValueError, 7, 8, 9, 10]
    assert take(KeyboardInterrupt()) == [1, KeyboardInterrupt, 2, 3, 4, 5, "the sampler cannot be asked again"]
