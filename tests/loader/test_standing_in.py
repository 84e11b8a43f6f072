"""Our workers in the place of those of a script's own torch loader: the same batches, draws and errors."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler, get_worker_info

from headrace.errors import BatchTooLarge
from headrace.loader import FedIterator, Feeding
from headrace.loader.workers import WorkersIterator


class Numbers(Dataset[Any]):
    def __init__(self, length: int = 60, bad: int = -1) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise ValueError(f"sample {index} is bad")
        return {"x": torch.full((3,), float(index)), "y": index}


class Batched(Numbers):
    """Makes its samples for the batch that they are asked with, as those do that pad to its longest."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [torch.full((max(indices),), float(index)) for index in indices]


class Stream(IterableDataset[Any]):
    """Splits itself, and draws."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(info.id, 40, info.num_workers):
            yield number, random.random(), float(torch.rand(())), float(np.random.rand())


class LazySampler:
    """Draws from the script's own generators whenever it is asked, as its own samplers do."""

    def __init__(self, length: int) -> None:
        self.length, self.passes = length, 0

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[list[int]]:
        self.passes += 1
        for _ in range(12):
            yield [random.randrange(self.length), int(np.random.randint(self.length)), int(torch.randint(60, ()))]


class EagerSampler(LazySampler):
    def __iter__(self) -> Iterator[list[int]]:
        self.passes += 1
        return iter(torch.randperm(self.length)[:60].reshape(20, 3).tolist())


def noisy(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples), random.random()


Make = Callable[[], "DataLoader[Any]"]
LOADERS: dict[str, Make] = {
    "shuffled": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2),
    "with a generator": lambda: DataLoader(
        Numbers(), batch_size=4, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(3)
    ),
    "persistent": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True),
    "with replacement": lambda: DataLoader(
        Numbers(), batch_size=5, sampler=RandomSampler(Numbers(), replacement=True, num_samples=70), num_workers=2
    ),
    "weighted": lambda: DataLoader(
        Numbers(), batch_size=4, drop_last=True, sampler=WeightedRandomSampler([1.0, 2.0] * 30, 50), num_workers=1
    ),
    "by batches": lambda: DataLoader(Batched(), batch_size=4, shuffle=True, num_workers=2),
    "one by one": lambda: DataLoader(Numbers(30), batch_size=None, shuffle=True, num_workers=2),
    "a lazy sampler": lambda: DataLoader(Numbers(), batch_sampler=LazySampler(60), num_workers=2),
    "an eager sampler": lambda: DataLoader(Numbers(), batch_sampler=EagerSampler(60), num_workers=1, prefetch_factor=5),
    "a stream": lambda: DataLoader(Stream(), batch_size=4, num_workers=2),
    "a stream with an own collation": lambda: DataLoader(Stream(), batch_size=4, num_workers=2, collate_fn=noisy),
    "a persistent stream": lambda: DataLoader(Stream(), batch_size=4, num_workers=2, persistent_workers=True),
}


def train(loader: Any, passes: int = 2) -> list[Any]:
    """Batches of some passes, between which and in which the script itself draws, and what it draws."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    seen: list[Any] = []
    for _ in range(passes):
        seen += ((plain(batch), random.random(), float(torch.rand(())), float(np.random.rand())) for batch in loader)
    return seen


def plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return [plain(value) for value in batch] if isinstance(batch, (list, tuple)) else batch


@pytest.fixture
def feeding(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes torch's loaders give our iterators; returns what is told."""

    def feed(stretch: int = 0) -> list[str]:
        said: list[str] = []

        def told(iterator: FedIterator, why: str, _before: Any) -> None:
            said.append(f"{why} {'ours' if iterator.is_ours else 'torchs'}")

        feeding = Feeding(told, stretch=stretch)
        make = lambda self: FedIterator(self, feeding)  # noqa: E731
        monkeypatch.setattr(DataLoader, "_get_iterator", make)
        return said

    return feed


@pytest.mark.parametrize("name", LOADERS)
def test_batches_and_draws_are_torchs(name: str, feeding: Callable[..., list[str]]) -> None:
    expected = train(LOADERS[name]())
    said = feeding()
    assert train(LOADERS[name]()) == expected
    assert said == ["begun ours"] * 2


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_a_stretch_of_torchs_changes_nothing(name: str, batches: int, feeding: Callable[..., list[str]]) -> None:
    expected = train(LOADERS[name](), passes=3)
    said = feeding(batches)
    assert train(LOADERS[name](), passes=3) == expected
    assert said[0] == ("begun ours" if name == "a persistent stream" else "begun torchs")
    assert said[-1] == "begun ours"
    if "stream" not in name:
        assert said[1] == "measured ours"


@pytest.mark.parametrize("name", ["shuffled", "persistent", "a lazy sampler", "one by one"])
@pytest.mark.parametrize("at", [0, 5])
def test_what_fails_in_ours_goes_on_with_torchs(
    name: str, at: int, feeding: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, count = train(LOADERS[name]()), 0
    take = WorkersIterator._next_batch

    def fails(self: WorkersIterator) -> Any:
        nonlocal count
        if count == at:
            raise BatchTooLarge("a batch does not fit", batch="3 GiB", budget="1 GiB")
        count += 1
        return take(self)

    monkeypatch.setattr(WorkersIterator, "_next_batch", fails)
    said = feeding()
    assert train(LOADERS[name]()) == expected
    assert said[1].startswith("BatchTooLarge: a batch does not fit")
    assert said[1].endswith("torchs")


@pytest.mark.parametrize("name", ["shuffled", "persistent"])
def test_what_cannot_take_over_leaves_it_to_torchs(
    name: str, feeding: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: WorkersIterator, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    expected = train(LOADERS[name](), passes=3)
    monkeypatch.setattr(WorkersIterator, "_launch", no_room)
    said = feeding(5)
    assert train(LOADERS[name](), passes=1) == expected[: len(expected) // 3]
    assert said[0] == "begun torchs"
    assert said[1].startswith("OSError: [Errno 28] No space left on device")


def test_a_pass_of_persistent_workers_that_cannot_begin_is_torchs(
    feeding: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, begin = train(LOADERS["persistent"](), passes=3), WorkersIterator._begin_epoch

    def fails(self: WorkersIterator, loader: Any, first_iter: bool) -> None:
        begin(self, loader, first_iter)
        if not first_iter:
            raise RuntimeError("no more")

    monkeypatch.setattr(WorkersIterator, "_begin_epoch", fails)
    said = feeding()
    assert train(LOADERS["persistent"](), passes=3) == expected
    assert said == ["begun ours", "RuntimeError: no more torchs", "begun torchs"]


@pytest.mark.parametrize("stretch", [0, 1000])
def test_persistent_workers_end_with_their_loader_and_not_as_garbage(
    stretch: int, feeding: Callable[..., list[str]]
) -> None:
    said = feeding(stretch)
    loader = LOADERS["persistent"]()
    train(loader, passes=1)
    assert said == ["begun torchs" if stretch else "begun ours"]
    iterator: Any = loader._iterator
    workers, ended = list(iterator._workers), weakref.ref(iterator.inner)
    gc.disable()
    try:
        del loader, iterator
        assert ended() is None
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


def test_what_cannot_begin_leaves_the_draws_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, begun = train(LOADERS["shuffled"]()), DataLoader._get_iterator

    def no_room(self: WorkersIterator, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    def fed(self: Any) -> Any:
        try:
            return FedIterator(self, Feeding(lambda *_: None))
        except OSError:
            return begun(self)

    monkeypatch.setattr(WorkersIterator, "_launch", no_room)
    monkeypatch.setattr(DataLoader, "_get_iterator", fed)
    assert train(LOADERS["shuffled"]()) == expected


def test_an_error_of_a_sample_is_raised_as_torchs_and_the_loop_may_go_on(feeding: Callable[..., list[str]]) -> None:
    def passed(loader: Any) -> list[Any]:
        seen: list[Any] = []
        iterator = iter(loader)
        while True:
            try:
                seen.append(plain(next(iterator)))
            except StopIteration:
                return seen
            except ValueError as error:
                seen.append(str(error).partition("\n")[0].rstrip("0123456789."))

    make = lambda: DataLoader(Numbers(bad=22), batch_size=4, num_workers=2)  # noqa: E731
    expected = passed(make())
    assert expected[5] == "Caught ValueError in DataLoader worker process "
    said = feeding()
    assert passed(make()) == expected
    assert said == ["begun ours"]


def test_the_script_sees_its_own_loader(feeding: Callable[..., list[str]]) -> None:
    feeding()
    loader = LOADERS["persistent"]()
    iterator: Any = iter(loader)
    assert type(loader) is DataLoader
    assert loader._iterator is iterator
    assert isinstance(iterator, torch.utils.data.dataloader._BaseDataLoaderIter)
    assert len(iterator) == len(loader) == 15
    assert [worker.is_alive() for worker in iterator._workers] == [True, True]
    iterator._shutdown_workers()
    assert not any(worker.is_alive() for worker in iterator._workers)


def test_a_draw_is_noticed_however_late(feeding: Callable[..., list[str]]) -> None:
    class Late(Numbers):
        def __getitem__(self, index: int) -> Any:
            end = index / (random.random() + 1) if index == 55 else index
            return torch.tensor(float(end)) + sum(range(20_000)) * 0  # slow enough to be seeded without a look

    said = feeding()
    assert len(list(DataLoader(Late(), batch_size=4, num_workers=1))) == 15
    assert said == ["begun ours", "drew ours"]
