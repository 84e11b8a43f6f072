"""Whatever a sample raises, it alone is blamed, its type is told, and its worker lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as torch_data
from torch.utils.data import Dataset

from headrace import DataLoader
from headrace.errors import NotSupported, WorkerLost
from headrace.model import describe_error

from ..engine.odd_errors import ODD, FormatsLate, StrRaises, WantsMore

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
EACH = pytest.mark.parametrize(("make", "name", "travels"), ODD, ids=[name for _, name, _ in ODD])
WAYS = [
    pytest.param({"num_workers": 0}, id="in-process"),
    pytest.param({"num_workers": 2, "backend": "process"}, id="process"),
    pytest.param({"num_workers": 2, "backend": "thread"}, id="thread", marks=pytest.mark.slow),
]
BAD = 13


class Raising(Dataset[Any]):
    """One of its samples raises."""

    def __init__(self, make: Callable[[], BaseException]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD:
            raise self.make()
        return torch.tensor([index])


class InOnePiece(Raising):
    """The same, fetched by the batch."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Rows(torch_data.IterableDataset[Any]):
    def __init__(self, make: Callable[[], BaseException]) -> None:
        self.make = make

    def __iter__(self) -> Any:
        inner = Raising(self.make)
        return map(inner.__getitem__, range(len(inner)))


def as_list(samples: list[Any]) -> list[int]:
    return [int(sample) for sample in samples]


def caught(run: Callable[[], object]) -> BaseException:
    try:
        run()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@EACH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Raising, InOnePiece])
def test_the_sample_alone_is_blamed(
    make: Callable[[], BaseException], name: str, travels: bool, way: dict[str, Any], kind: Any, tmp_path: Path
) -> None:
    for collate in (None, as_list):
        path = tmp_path / f"bad-{collate is None}.jsonl"
        loader = DataLoader(kind(make), 8, collate_fn=collate, on_error="quarantine", quarantine_file=path, **way)
        got = [int(value) for batch in loader for value in batch]
        assert got == [index for index in range(32) if index != BAD] + [0]
        (failure,) = loader.quarantine
        assert (failure.key, failure.kind, failure.tries) == (BAD, "exception", 1)
        assert failure.exception.endswith(name)
        assert "in __getitem__" in failure.traceback
        assert loader.stats().workers_lost == 0


@EACH
@pytest.mark.parametrize("way", WAYS)
def test_of_an_iterable_data_set_too(
    make: Callable[[], BaseException], name: str, travels: bool, way: dict[str, Any]
) -> None:
    way = {**way, "num_workers": min(1, way["num_workers"])}
    loader = DataLoader(Rows(make), 8, on_error="quarantine", **way)
    assert [int(value) for batch in loader for value in batch] == [index for index in range(32) if index != BAD]
    (failure,) = loader.quarantine
    assert failure.exception.endswith(name)
    assert loader.stats().workers_lost == 0


@EACH
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_raise_gives_the_type_that_torch_would(
    make: Callable[[], BaseException], name: str, travels: bool, backend: str
) -> None:
    iterator = iter(DataLoader(Raising(make), 8, num_workers=2, backend=backend))
    next(iterator)
    error = caught(lambda: next(iterator))
    assert type(error) is (type(make()) if travels else RuntimeError)
    if not travels:
        assert f"Caught {name} in DataLoader worker process" in str(error)
        assert "in __getitem__" in str(error)
    assert [int(value) for batch in iterator for value in batch] == list(range(16, 32))  # the worker lives


@pytest.mark.parametrize(
    "make", [lambda: WantsMore(404, "gone"), lambda: ValueError("broken"), lambda: KeyError("label")]
)
def test_the_same_type_and_text_as_torch(make: Callable[[], BaseException]) -> None:
    ours = caught(lambda: list(DataLoader(Raising(make), 8, num_workers=1)))
    torchs = caught(lambda: list(torch_data.DataLoader(Raising(make), 8, num_workers=1)))
    assert type(ours) is type(torchs)
    assert str(ours).splitlines()[0] == str(torchs).splitlines()[0]
    assert str(ours).splitlines()[-1] == str(torchs).splitlines()[-1]


@pytest.mark.parametrize("make", [StrRaises, lambda: FormatsLate({"status": 503})])
def test_a_text_that_the_type_does_not_show_is_a_note(make: Callable[[], BaseException]) -> None:
    with pytest.raises((StrRaises, FormatsLate)) as info:
        list(DataLoader(Raising(make), 8, num_workers=1))
    (note,) = info.value.__notes__
    assert note.startswith("Caught ")
    assert "in __getitem__" in note


def test_one_of_ours_comes_whole_or_by_its_type() -> None:
    def holds(value: Any) -> NotSupported:
        error = NotSupported("no such codec", next_step="install it", codec="av1")
        error.held = value  # type: ignore[attr-defined]
        return error

    with pytest.raises(NotSupported) as info:
        list(DataLoader(Raising(lambda: holds(5)), 8, num_workers=1))
    assert (info.value.what, info.value.next_step, info.value.evidence) == (
        "no such codec",
        "install it",
        {"codec": "av1"},
    )
    with pytest.raises(NotSupported, match="no such codec"):
        list(DataLoader(Raising(lambda: holds(lambda: 0)), 8, num_workers=1))


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_what_is_no_exception_ends_the_worker(kind: type[BaseException], backend: str) -> None:
    loader = DataLoader(Raising(kind), 8, num_workers=2, backend=backend, on_error="quarantine")
    assert sum(len(batch) for batch in loader) == 32
    (failure,) = loader.quarantine
    assert (failure.key, failure.kind, failure.tries) == (BAD, "worker_lost", 3)
    with pytest.raises(WorkerLost):
        list(DataLoader(Raising(kind), 8, num_workers=2, backend=backend))
    for on_error in ("raise", "quarantine"):  # in the loop's own process it is the loop's, as under torch
        with pytest.raises(kind):
            list(DataLoader(Raising(kind), 8, num_workers=0, on_error=on_error))


class Unprintable(BaseException):
    def __str__(self) -> str:
        raise SystemExit(0)

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise ValueError("no cause")


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_one_that_cannot_be_printed_ends_the_worker_all_the_same(backend: str) -> None:
    loader = DataLoader(Raising(Unprintable), 8, num_workers=2, backend=backend, on_error="quarantine", timeout=30)
    assert sum(len(batch) for batch in loader) == 32
    assert [failure.key for failure in loader.quarantine] == [BAD]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stop_iteration_is_told_by_its_name(num_workers: int) -> None:
    loader = DataLoader(Raising(StopIteration), 8, num_workers=num_workers, on_error="quarantine")
    assert sum(len(batch) for batch in loader) == 32
    assert [failure.exception for failure in loader.quarantine] == ["StopIteration"]
    if num_workers:
        error = caught(lambda: list(DataLoader(Raising(StopIteration), 8, num_workers=num_workers)))
        assert type(error) is RuntimeError
        assert describe_error(error).message.startswith("Caught StopIteration in DataLoader worker process")


def test_a_collation_that_raises_an_odd_error(tmp_path: Path) -> None:
    def collate(samples: list[Any]) -> Any:
        raise StrRaises

    with pytest.raises(StrRaises):
        list(DataLoader(Raising(StrRaises), 4, num_workers=1, collate_fn=collate))


class TakesNothing(Exception):
    """Refuses everything that is written to it."""

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError("read only")


class TracebackIsReadOnly(Exception):
    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize("kind", [TakesNothing, TracebackIsReadOnly])
def test_in_process_an_error_is_raised_as_it_is(kind: type[Exception]) -> None:
    """Nothing of ours on its way writes to it."""
    loader = DataLoader(Raising(lambda: kind("x")), 8)
    assert type(caught(lambda: list(loader))) is kind
