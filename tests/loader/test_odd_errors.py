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
WAYS = [
    pytest.param({"num_workers": 0}, id="in-process"),
    pytest.param({"num_workers": 2, "backend": "process"}, id="process"),
    pytest.param({"num_workers": 2, "backend": "thread"}, id="thread", marks=pytest.mark.slow),
]
BAD = 13
EVERY = {8 * number + BAD: make for number, (make, _, _) in enumerate(ODD)}  # one in each batch from the second on
NAMES = {8 * number + BAD: name for number, (_, name, _) in enumerate(ODD)}
HEALTHY = [index for index in range(8 * len(EVERY) + 24) if index not in EVERY]


class Raising(Dataset[Any]):
    """One of its samples raises, or each of several, an error of its own each."""

    def __init__(self, make: Callable[[], BaseException] | dict[int, Callable[[], BaseException]]) -> None:
        self.bad = make if isinstance(make, dict) else {BAD: make}

    def __len__(self) -> int:
        return 8 * len(self.bad) + 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self.bad:
            raise self.bad[index]()
        return torch.tensor([index])


class InOnePiece(Raising):
    """The same, fetched by the batch."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Rows(torch_data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        inner = Raising(EVERY)
        return map(inner.__getitem__, range(len(inner)))


def as_list(samples: list[Any]) -> list[int]:
    return [int(sample) for sample in samples]


def caught(run: Callable[[], object]) -> BaseException:
    try:
        run()
    except Exception as error:
        # the frames behind it would keep torch's iterator until the next collection, which then waits 5 s for a worker
        BaseException.__context__.__set__(error, None)  # type: ignore[attr-defined]
        return BaseException.with_traceback(error, None)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Raising, InOnePiece])
@pytest.mark.parametrize("collate", [None, as_list], ids=["slots", "general"])
def test_the_samples_alone_are_blamed(way: dict[str, Any], kind: Any, collate: Any, tmp_path: Path) -> None:
    loader = DataLoader(
        kind(EVERY),
        8,
        collate_fn=collate,
        on_error="quarantine",
        quarantine_file=tmp_path / "bad.jsonl",
        max_bad=len(EVERY),
        **way,
    )
    got = [int(value) for batch in loader for value in batch]
    assert got == HEALTHY + HEALTHY[: len(EVERY)]
    assert {failure.key: failure.exception.rpartition(".")[2] for failure in loader.quarantine} == NAMES
    for failure in loader.quarantine:
        assert (failure.kind, failure.tries) == ("exception", 1), failure
        assert "in __getitem__" in failure.traceback, failure
    assert len(loader.quarantine) == len(EVERY)
    assert loader.stats().workers_lost == 0


@pytest.mark.parametrize("way", WAYS)
def test_of_an_iterable_data_set_too(way: dict[str, Any]) -> None:
    way = {**way, "num_workers": min(1, way["num_workers"])}
    loader = DataLoader(Rows(), 8, on_error="quarantine", max_bad=len(EVERY), **way)
    assert [int(value) for batch in loader for value in batch] == HEALTHY
    assert [failure.exception.rpartition(".")[2] for failure in loader.quarantine] == list(NAMES.values())
    assert loader.stats().workers_lost == 0


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_raise_gives_the_type_that_torch_would(backend: str) -> None:
    loader = DataLoader(Raising(EVERY), 8, num_workers=2, backend=backend)
    iterator = iter(loader)
    assert next(iterator).flatten().tolist() == list(range(8))
    for make, name, travels in ODD:
        error = caught(lambda: next(iterator))
        assert type(error) is (type(make()) if travels else RuntimeError), name
        if not travels:
            assert f"Caught {name} in DataLoader worker process" in str(error)
            assert "in __getitem__" in str(error)
    assert [int(value) for batch in iterator for value in batch] == HEALTHY[-16:]
    assert loader.stats().workers_lost == 0


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
