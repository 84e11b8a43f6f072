"""Parts of a sample, timed from outside: every moment counts once, and what is timed stays what it was."""

import inspect
import io
import pickle
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from headrace.launch.hooks.interruptions import saved_bytes
from headrace.launch.hooks.parts import transform_name
from headrace.launch.hooks.worker import _time_fetcher
from headrace.launch.hooks.wrapping import bytes_of, replace_part, timed_part
from headrace.launch.tape import tape
from headrace.signals import begin_sample, current_sample, end_sample


@pytest.fixture
def sample() -> Iterator[Any]:
    clock = begin_sample()
    yield clock
    current_sample.sample = None


def spend(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


Tree = tuple[int, list["Tree"]]  # a part's name, and the parts inside it
_trees: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.integers(0, 3), st.just([])),
    lambda inner: st.tuples(st.integers(0, 3), st.lists(inner, max_size=3)),
    max_leaves=8,
)


@given(trees=st.lists(_trees, max_size=3), fails=st.booleans())
def test_every_moment_of_a_sample_counts_once(trees: list[Tree], fails: bool) -> None:
    def run(tree: Tree) -> None:
        name, inside = tree

        def work() -> None:
            for one in inside:
                run(one)
            if fails and not inside:
                raise KeyError(name)

        try:
            timed_part(work, f"stage {name}")()
        except KeyError:
            pass

    clock = begin_sample()
    assert clock is not None
    for tree in trees:
        run(tree)
    duration_ns = end_sample(clock, 0, tape)
    own = [part[0] for part in clock.parts.values()]
    assert all(ns >= 0 for ns in own)
    assert sum(own) <= duration_ns
    assert clock.inner_ns <= duration_ns
    assert sum(own) == clock.inner_ns  # of what was in parts at all, nothing is missing and nothing doubled
    assert current_sample.sample is None


def test_what_is_inside_a_part_is_taken_from_it(sample: Any) -> None:
    inner = timed_part(lambda: spend(0.01), "decode inner")

    def work() -> None:
        spend(0.002)
        inner()

    timed_part(work, "stage outer")()
    assert sample.parts["decode inner"][0] >= 10_000_000
    assert sample.parts["stage outer"][0] >= 2_000_000
    total = sum(part[0] for part in sample.parts.values())
    assert total == sample.inner_ns


def test_standing_still_is_told_from_working() -> None:
    clock = begin_sample()
    assert clock is not None
    clock.looks = True
    timed_part(time.sleep, "read asleep")(0.02)
    timed_part(lambda: spend(0.02), "decode awake")()
    end_sample(clock, 0, tape)
    assert clock.parts["read asleep"][2] >= 15_000_000
    assert clock.parts["decode awake"][2] <= clock.parts["decode awake"][0]


def test_a_sample_inside_a_sample_is_part_of_it(sample: Any) -> None:
    assert begin_sample() is None
    assert end_sample(None, 3, tape) == 0
    assert current_sample.sample is sample


def test_outside_of_a_sample_nothing_is_timed() -> None:
    assert current_sample.sample is None
    assert timed_part(lambda value: value + 1, "decode it")(1) == 2


class Squares:
    """Says of each sample whether it was timed."""

    def __getitem__(self, index: int) -> tuple[int, bool]:
        return index * index, current_sample.sample is not None

    def __len__(self) -> int:
        return 10


class AtOnce(Squares):
    def __getitems__(self, indices: list[int]) -> list[tuple[int, bool]]:
        return [self[index] for index in indices]


class NotAtOnce(Squares):
    __getitems__ = None


@pytest.mark.parametrize(
    "dataset",
    [
        Squares(),
        AtOnce(),
        NotAtOnce(),
        Subset(Squares(), range(10)),  # type: ignore[arg-type]
        Subset(Subset(AtOnce(), range(10)), range(10)),  # type: ignore[arg-type]
    ],
    ids=["one by one", "at once", "not at once", "subset", "subset of a subset"],
)
def test_whatever_a_fetcher_fetches_from_is_timed_and_gives_the_same(dataset: Any) -> None:
    fetcher = _MapDatasetFetcher(dataset, True, list, False)  # type: ignore[no-untyped-call]
    plain = fetcher.fetch([3, 1, 2])
    _time_fetcher(fetcher)
    timed = fetcher.fetch([3, 1, 2])
    assert [value for value, _ in timed] == [value for value, _ in plain] == [9, 1, 4]
    assert not any(is_timed for _, is_timed in plain)
    assert all(is_timed for _, is_timed in timed)
    assert current_sample.sample is None


# ------------------------------------------------------------------------------------ what is timed stays what it was


def original(data: bytes, /, scale: float = 2.0, *, flag: bool = False) -> bytes:
    """Say what it does."""
    if flag:
        raise ValueError("as asked")
    return data * int(scale)


def test_a_function_keeps_its_name_its_signature_its_errors_and_how_it_is_pickled(sample: Any) -> None:
    module = sys.modules[__name__]
    before = original
    assert replace_part(module, "original", "decode it")
    try:
        timed = module.original
        assert timed is not before
        assert (timed.__name__, timed.__doc__, timed.__module__) == ("original", before.__doc__, __name__)
        assert inspect.signature(timed) == inspect.signature(before)
        assert pickle.loads(pickle.dumps(timed)) is timed
        assert timed(b"ab", 3) == b"ababab"
        with pytest.raises(ValueError, match="as asked"):
            timed(b"ab", flag=True)
        assert sample.parts["decode it"][1] == 6
        assert not replace_part(module, "original", "decode it")  # once is enough
    finally:
        module.original = before  # type: ignore[attr-defined]


def test_a_function_in_c_is_not_bound_and_is_pickled_by_name(sample: Any) -> None:
    math = types.ModuleType("math_like")
    math.fsum = __import__("math").fsum  # type: ignore[attr-defined]
    timed = timed_part(math.fsum, "transform sum")

    class Holder:
        total = timed

    assert Holder().total([1.0, 2.0]) == 3.0
    assert repr(timed) == repr(math.fsum)
    assert timed.__reduce__() == "fsum"
    assert sample.parts["transform sum"][0] > 0
    with pytest.raises(TypeError):
        timed(3)


def scaled(values: torch.Tensor) -> torch.Tensor:
    return values * _SCALE


_SCALE = 2.0


def test_a_timed_function_is_compiled_as_itself() -> None:
    timed = timed_part(scaled, transform_name, is_compiling=torch.compiler.is_compiling)
    compiled = torch.compile(timed, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_timed_function_is_scripted_as_itself() -> None:
    timed = timed_part(doubled, "decode it")
    scripted = torch.jit.script(timed)
    assert torch.equal(scripted(torch.ones(3)), torch.full((3,), 2.0))


def doubled(values: torch.Tensor) -> torch.Tensor:
    return values * 2.0


def test_names_after_the_class_of_a_transform() -> None:
    assert transform_name(io.BytesIO()) == "transform BytesIO"


def test_bytes_that_came_out() -> None:
    assert bytes_of(b"abc") == 3
    assert bytes_of(np.zeros((2, 3), np.float32)) == 24
    assert bytes_of(torch.zeros(5)) == 20
    assert bytes_of("text") == bytes_of(None) == 0


@pytest.mark.parametrize("write", [lambda path: torch.save({"a": torch.ones(100)}, path)])
def test_bytes_of_a_save(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "state.pt"
    write(path)
    size = path.stat().st_size
    assert saved_bytes((None, path), {}) == saved_bytes((None,), {"f": str(path)}) == size
    with open(path, "ab") as file:
        assert saved_bytes((None, file), {}) == size
    (tmp_path / "__0_0.distcp").write_bytes(b"12345")
    (tmp_path / "__1_0.distcp").write_bytes(b"another rank's")
    assert saved_bytes((None,), {"checkpoint_id": tmp_path}) == 5
    assert saved_bytes((None,), {}) == 0
