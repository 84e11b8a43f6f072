"""The same batches as torch's own loader, bit for bit, whatever the data set, sampler, workers or backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import headrace

from ..engine.datasets import FITTING, OTHERS, RAGGED, Batched, Mapped, Ready, Streamed, gather, pad, pass_on
from ..engine.sameness import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SAMPLERS = (
    "sequential", "shuffle", "shuffle with generator", "own", "weighted", "tuples", "distributed", "varying batches",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that decides what a loader gives."""

    kind: str = "map"
    layout: str = "array"
    collation: str = "default"
    sampler: str = "sequential"
    size: int = 23
    batch_size: int | None = 4
    drop_last: bool = False
    num_workers: int = 2
    backend: str = "process"
    start_method: str = "fork"
    in_order: bool = True
    persistent_workers: bool = False
    epochs: int = 1
    break_at: int | None = None  # batches of each epoch but the last
    resizes: tuple[tuple[int, int], ...] = ()  # (after this many batches, to this many workers)
    seed: int = 0

    def dataset(self) -> Any:
        kinds: dict[str, Callable[[], Any]] = {
            "map": lambda: Mapped(self.layout, self.size),
            "getitems": lambda: Batched(self.layout, self.size),
            "ready": lambda: Ready(self.layout, self.size),
            "stream": lambda: Streamed(self.layout, self.size),
            "uneven stream": lambda: Streamed(self.layout, self.size, is_uneven=True),
        }
        return kinds[self.kind]()

    @property
    def is_stream(self) -> bool:
        return self.kind.endswith("stream")

    def arguments(self, dataset: Any) -> dict[str, Any]:
        chosen: dict[str, Any] = {"batch_size": self.batch_size}
        generator = torch.Generator().manual_seed(self.seed)
        if self.batch_size is not None:
            chosen["drop_last"] = self.drop_last
        if not self.is_stream:
            chosen |= {
                "sequential": dict,
                "shuffle": lambda: {"shuffle": True},
                "shuffle with generator": lambda: {"shuffle": True, "generator": generator},
                "own": lambda: {"sampler": Zigzag(self.size)},
                "weighted": lambda: {"sampler": WeightedRandomSampler(range(1, self.size + 1), 2 * self.size)},
                "tuples": lambda: {"sampler": [(i, str(i)) for i in range(self.size)]},
                "distributed": lambda: {"sampler": DistributedSampler(dataset, 3, rank=1, seed=self.seed)},
                "varying batches": lambda: {"batch_sampler": Varying(self.size)},
            }[self.sampler]()
        if "batch_sampler" in chosen:
            chosen.pop("drop_last", None), chosen.pop("batch_size")
        collations = {"default": None, "gather": gather, "pad": pad, "pass on": pass_on}
        return {**chosen, "collate_fn": collations[self.collation]}


class Zigzag:
    """A sampler of the user's own: no torch class, other indices in each epoch."""

    def __init__(self, size: int) -> None:
        self.size, self.epoch = size, 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter([(i * 7 + self.epoch) % self.size for i in range(self.size)])


class Varying:
    """Batches of many sizes, an empty one not among them: `default_collate` has nothing for those."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[list[int]]:
        at = 0
        for number in range(1000):
            size = (1, 5, 2, 9)[number % 4]
            if at >= self.size:
                return
            yield list(range(at, min(self.size, at + size)))
            at += size


# ------------------------------------------------------------------------------------------- running a case


@dataclass
class Raised:
    """What came instead of a batch."""

    kind: type[BaseException]
    last_line: str


def epoch_of(loader: Any, case: Case, epoch: int, resize: Callable[[int], None] | None) -> list[Any]:
    """One epoch: batches, and errors where a batch raised."""
    if isinstance(getattr(loader, "sampler", None), DistributedSampler):
        loader.sampler.set_epoch(epoch)
    found: list[Any] = []
    iterator = iter(loader)
    resizes = dict(case.resizes)
    while True:
        if resize is not None and len(found) in resizes:
            resize(resizes[len(found)])
        if case.break_at == len(found) and epoch + 1 < case.epochs:
            break
        try:
            found.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            found.append(Raised(type(error), str(error).strip().splitlines()[-1]))
            error.__traceback__ = None  # it would keep the iterator, and its processes, until the next collection
    del iterator
    return found


def run(make: Callable[..., Any], case: Case, *, workers: int, **ours: Any) -> list[list[Any]]:
    torch.manual_seed(case.seed)
    dataset = case.dataset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loader = make(
            dataset,
            num_workers=workers,
            multiprocessing_context=case.start_method if workers else None,
            persistent_workers=case.persistent_workers and workers > 0,
            **case.arguments(dataset),
            **ours,
        )
        resize = (lambda n: loader.resize(num_workers=n)) if ours and workers else None
        return [epoch_of(loader, case, epoch, resize) for epoch in range(case.epochs)]


def check(case: Case) -> None:
    """Run a case with both loaders and compare all that comes out."""
    # without workers torch collates a mixed batch otherwise than with them: only with them is it the oracle for ours
    theirs = run(DataLoader, case, workers=case.num_workers)
    ours = run(
        headrace.DataLoader,
        case,
        workers=case.num_workers,
        in_order=case.in_order,
        backend=case.backend,
        memory="64MiB",
    )
    assert len(ours) == len(theirs)
    for epoch, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if case.in_order:
            assert_same_batches(one, other, f"epoch {epoch}")
        elif case.break_at is None or epoch + 1 == case.epochs:
            assert_same_batches(sorted(one, key=_rank), sorted(other, key=_rank), f"epoch {epoch}")


def _rank(batch: Any) -> tuple[bool, str]:
    """Puts batches that came in any order into the same one; errors last, for their texts may differ."""
    return isinstance(batch, Raised), batch.kind.__name__ if isinstance(batch, Raised) else repr(batch)


def assert_same_batches(ours: list[Any], theirs: list[Any], where: str) -> None:
    assert len(ours) == len(theirs), f"{where}: {len(ours)} batches, not {len(theirs)}"
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(other, Raised):
            assert isinstance(one, Raised), f"{where}, batch {number}: {other}"
            assert one.kind is other.kind, f"{where}, batch {number}"
            # for shapes that differ, torch's text depends on an accident of its buffer
            if "resize storage" not in other.last_line and "equal size" not in other.last_line:
                assert one.last_line == other.last_line, f"{where}, batch {number}"
        else:
            assert not isinstance(one, Raised), f"{where}, batch {number}: {one}"
            assert_same(one, other, f"{where}, batch {number}")


# ------------------------------------------------------------------------------------------- drawn cases


@st.composite
def map_cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["map", "map", "getitems", "ready"]))
    layout = draw(st.sampled_from([*FITTING, *FITTING, *OTHERS, *RAGGED]))
    batch_size = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 50, None]))
    collation = "default"
    if kind == "ready" and batch_size:
        collation = "pass on"
    elif layout in RAGGED or draw(st.integers(0, 4)) == 0:
        collation = draw(st.sampled_from(["gather", "pad"])) if layout in ("ragged", "unpicklable") else "gather"
        collation = "pass on" if batch_size is None and layout != "unpicklable" else collation
        collation = "pad" if batch_size is None and layout == "unpicklable" else collation
    if batch_size is None and collation == "pad":
        layout = "number"
    workers = draw(st.sampled_from([1, 2, 2, 3, 4]))
    epochs = draw(st.sampled_from([1, 1, 3]))
    return Case(
        kind=kind,
        layout=layout,
        collation=collation,
        sampler=draw(st.sampled_from(SAMPLERS if batch_size else SAMPLERS[:-1])),
        size=draw(st.integers(1, 40)),
        batch_size=batch_size,
        drop_last=draw(st.booleans()),
        num_workers=workers,
        backend=draw(st.sampled_from(["process", "process", "thread"])),
        in_order=draw(st.sampled_from([True, True, True, False])),
        persistent_workers=draw(st.booleans()),
        epochs=epochs,
        break_at=draw(st.none() | st.integers(0, 5)),
        resizes=tuple(draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=2))),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def stream_cases(draw: st.DrawFn) -> Case:
    batch_size = draw(st.sampled_from([1, 3, 4, 8, None]))
    layout = draw(st.sampled_from([*FITTING, *FITTING, *OTHERS, *RAGGED]))
    own = layout in RAGGED or draw(st.integers(0, 4)) == 0
    if own and batch_size is None:
        layout = "object"
    return Case(
        kind=draw(st.sampled_from(["stream", "uneven stream"])),
        layout=layout,
        collation="default" if not own else "pass on" if batch_size is None else "gather",
        size=draw(st.integers(1, 40)),
        batch_size=batch_size,
        drop_last=draw(st.booleans()),
        num_workers=draw(st.integers(1, 4)),
        backend=draw(st.sampled_from(["process", "process", "thread"])),
        persistent_workers=draw(st.booleans()),
        epochs=draw(st.sampled_from([1, 1, 3])),
        break_at=draw(st.none() | st.integers(0, 5)),
    )


@given(case=map_cases())
@settings(max_examples=60)
def test_map_style(case: Case) -> None:
    check(case)


@given(case=stream_cases())
@settings(max_examples=35)
def test_iterable(case: Case) -> None:
    check(case)


@given(case=map_cases())
@settings(max_examples=20)
def test_in_process(case: Case) -> None:
    check(replace(case, num_workers=0, persistent_workers=False, resizes=()))


# ------------------------------------------------------------------------------------------- fixed cases


ANEW = {
    "map": Case(layout="nested", num_workers=2, sampler="shuffle", epochs=2, persistent_workers=True),
    "own collation in threads": Case(layout="ragged", collation="pad", num_workers=1, backend="thread"),
    "iterable": Case(kind="stream", layout="array", num_workers=2),
}


@pytest.mark.parametrize(
    ("name", "start_method"),
    [
        *((name, "spawn") for name in ANEW),
        ("map", "forkserver"),
        *(pytest.param(name, "forkserver", marks=pytest.mark.slow) for name in ANEW if name != "map"),
    ],
)
def test_other_start_methods(name: str, start_method: str) -> None:
    check(replace(ANEW[name], start_method=start_method))


@pytest.mark.parametrize("layout", [*FITTING, *OTHERS])
@pytest.mark.parametrize("kind", ["map", "getitems", "stream"])
def test_every_layout(kind: str, layout: str) -> None:
    check(Case(kind=kind, layout=layout, size=40, batch_size=6, num_workers=2))


@pytest.mark.parametrize("layout", RAGGED)
@pytest.mark.parametrize("kind", ["map", "getitems", "stream"])
def test_every_layout_of_its_own_collation(kind: str, layout: str) -> None:
    check(Case(kind=kind, layout=layout, collation="gather", size=40, batch_size=6, num_workers=2))


class WithoutRows:
    """A batch that one can only go through."""

    def __init__(self, *keys: int) -> None:
        self._keys = keys

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)


def given_batches(batches: Iterable[Any]) -> list[Any]:
    """What both loaders make of batches of indices, as a list of each."""
    found = []
    for make in (DataLoader, headrace.DataLoader):
        loader = make(Mapped("array", 30), batch_sampler=batches, num_workers=2, multiprocessing_context="fork")
        found.append(epoch_of(loader, Case(), 0, None))
    return found


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 1), (2,)],
        [torch.tensor([3, 1]), torch.tensor([2])],
        [torch.tensor([3, 1]).numpy()],
        [range(4), range(4, 9)],
        [{3, 1, 2}, {7}],
        [{"a": 1}.keys() and {5: "five", 6: "six"}],
        [[-1, -2], [3]],
        [[2**70], [1, 2]],
        [[1, 2], WithoutRows(5, 6), [7, 8]],
    ],
    ids=["tuples", "tensors", "arrays", "ranges", "sets", "dicts", "negative", "beyond 64 bits", "without rows"],
)
def test_batches_of_indices_of_any_type(batches: Any) -> None:
    theirs, ours = given_batches(batches)
    assert_same_batches(ours, theirs, "")


def test_an_empty_batch_of_indices() -> None:
    found = []
    for make in (DataLoader, headrace.DataLoader):
        loader = make(
            Mapped("number", 30), batch_sampler=[[1, 2], [], [3]], num_workers=2, collate_fn=gather,
            multiprocessing_context="fork",
        )  # fmt: skip
        found.append(epoch_of(loader, Case(), 0, None))
    assert_same_batches(found[1], found[0], "")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterator_counts_what_it_has_given(num_workers: int) -> None:
    """As torch's own does; frameworks that resume, and recordings, go by it."""
    iterator: Any = iter(headrace.DataLoader(Mapped("array", 12), 4, num_workers=num_workers))
    assert iterator._num_yielded == 0
    assert [iterator._num_yielded for _ in iterator] == [1, 2, 3]


def test_a_loader_is_a_torch_loader_in_all_that_frameworks_ask() -> None:
    dataset = Mapped("array", 23)
    theirs = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="fork")
    ours = headrace.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="fork")
    assert isinstance(ours, DataLoader)
    assert len(ours) == len(theirs)
    for name in (
        "batch_size", "num_workers", "prefetch_factor", "drop_last", "timeout", "pin_memory", "persistent_workers",
        "generator", "collate_fn", "worker_init_fn", "in_order",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert type(ours.sampler) is type(theirs.sampler)
    assert type(ours.batch_sampler) is type(theirs.batch_sampler)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1}, {"batch_size": 0}, {"shuffle": True, "sampler": [1]}, {"timeout": -1},
        {"num_workers": 0, "prefetch_factor": 2}, {"num_workers": 0, "persistent_workers": True},
        {"prefetch_factor": 2}, {"persistent_workers": True}, {"multiprocessing_context": "fork"},
        {"batch_size": None, "drop_last": True}, {"multiprocessing_context": "none such", "num_workers": 1},
    ],
    ids=str,
)  # fmt: skip
def test_misuse_raises_what_torch_raises(arguments: dict[str, Any]) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # whichever torch chose
        DataLoader(Mapped("array", 3), **arguments)
    with pytest.raises(type(theirs.value)) as ours:
        headrace.DataLoader(Mapped("array", 3), **arguments)
    assert str(ours.value) == str(theirs.value)
