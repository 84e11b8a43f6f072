"""A batch built from rows is what `default_collate` makes, and a sample that differs never touches a row."""

from __future__ import annotations

import copy
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from headrace.engine.memory.layout import (
    Layout,
    Misfit,
    slot_tensors,
)
from headrace.engine.worker.rows import RowWriter

from ..sameness import assert_same

Pair = namedtuple("Pair", "left right")

TENSOR_TYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
    torch.bool, torch.complex64, torch.complex128, torch.bfloat16,
]  # fmt: skip
ARRAY_TYPES = ["u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?", "c8", "c16"]
ODD_FLOATS = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-310, 1.5)


@dataclass(frozen=True)
class Spec:
    """The structure of a sample, from which any number of samples can be made."""

    kind: str
    children: tuple[Spec, ...] = ()
    keys: tuple[Any, ...] = ()
    dtype: Any = None
    shape: tuple[int, ...] = ()

    @property
    def has_numbers(self) -> bool:
        return any(c.has_numbers for c in self.children) if self.children else self.kind not in ("str", "bytes", "dict")


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
leaves = st.one_of(
    st.builds(Spec, st.just("tensor"), dtype=st.sampled_from(TENSOR_TYPES), shape=shapes),
    st.builds(Spec, st.just("tensor"), dtype=st.sampled_from(TENSOR_TYPES), shape=st.just((40, 130))),
    st.builds(Spec, st.just("array"), dtype=st.sampled_from(ARRAY_TYPES), shape=shapes),
    st.builds(Spec, st.just("scalar"), dtype=st.sampled_from(ARRAY_TYPES)),
    st.sampled_from([Spec("int"), Spec("float"), Spec("bool"), Spec("str"), Spec("bytes")]),
)
keys = st.lists(st.sampled_from(["image", "label", "", 7, (1, "x"), None]), max_size=4, unique=True)


def _containers(children: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    def as_dict(names: list[Any]) -> st.SearchStrategy[Spec]:
        some = st.lists(children, min_size=len(names), max_size=len(names)).map(tuple)
        return st.builds(Spec, st.just("dict"), some, st.just(tuple(names)))

    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        keys.flatmap(as_dict),
        st.builds(Spec, st.sampled_from(["list", "tuple"]), several),
        st.builds(Spec, st.just("namedtuple"), st.tuples(children, children)),
    )


specs = st.recursive(leaves, _containers, max_leaves=6).filter(lambda spec: spec.has_numbers)


def make(spec: Spec, rng: np.random.Generator) -> Any:
    """A sample of this structure with other values each time."""
    if spec.kind == "dict":
        return {key: make(child, rng) for key, child in zip(spec.keys, spec.children, strict=True)}
    if spec.children:
        values = [make(child, rng) for child in spec.children]
        return {"list": list, "tuple": tuple, "namedtuple": Pair._make}[spec.kind](values)
    if spec.kind == "tensor":
        return _numbers(spec.shape, rng, torch_type=spec.dtype)
    if spec.kind == "array":
        return _numbers(spec.shape, rng, array_type=spec.dtype)
    if spec.kind == "scalar":
        return np.dtype(spec.dtype).type(_numbers((), rng, array_type=spec.dtype)[()])
    return {
        "int": lambda: int(rng.integers(-(2**63), 2**63 - 1)),
        "float": lambda: ODD_FLOATS[rng.integers(len(ODD_FLOATS))],
        "bool": lambda: bool(rng.integers(2)),
        "str": lambda: "äé"[: rng.integers(3)] * 3,
        "bytes": lambda: rng.bytes(int(rng.integers(4))),
    }[spec.kind]()


def _numbers(shape: tuple[int, ...], rng: np.random.Generator, *, torch_type: Any = None, array_type: str = "") -> Any:
    is_real = torch_type.is_floating_point or torch_type.is_complex if torch_type else array_type[0] in "fc"
    array = np.asarray(rng.choice(np.array(ODD_FLOATS), shape) if is_real else rng.integers(0, 100, shape))
    if torch_type is None:
        return _any_order(array.astype(array_type), rng)
    tensor = torch.from_numpy(array).to(torch_type)
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 and rng.integers(2) else tensor


def _any_order(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.asfortranarray(array) if array.ndim > 1 and rng.integers(2) else array


class Slot:
    """One slot of memory, filled row by row in any pieces."""

    def __init__(self, layout: Layout, num_rows: int) -> None:
        self.layout, self.num_rows = layout, num_rows
        self.bytes = np.full(layout.places(num_rows)[1] + 64, 0xA5, np.uint8)
        self.writer = RowWriter(layout, lambda slot: memoryview(self.bytes))
        self.texts: dict[int, list[Any]] = {}

    def write(self, samples: list[Any], row: int) -> None:
        texts = self.writer.write(samples, (0, self.num_rows), row)
        for offset in range(len(samples)):
            self.texts[row + offset] = [column[offset] for column in texts]

    def joined_texts(self, count: int) -> list[list[Any]]:
        rows = [self.texts[row] for row in range(count)]
        return [list(column) for column in zip(*rows, strict=True)]

    def batch(self, count: int | None = None) -> Any:
        count = self.num_rows if count is None else count
        plan = self.layout.plan_tensors(self.num_rows, count)
        return self.layout.build_batch(slot_tensors(plan, self.bytes, self.joined_texts(count)))


@given(spec=specs, num_rows=st.integers(1, 5), seed=st.integers(0, 2**31), data=st.data())
@settings(max_examples=120)
def test_rows_make_the_batch_that_torch_makes(spec: Spec, num_rows: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    samples = [make(spec, rng) for _ in range(num_rows)]
    layout = Layout.learn(data.draw(st.sampled_from(samples), label="learnt from"))
    assert layout is not None
    slot = Slot(layout, num_rows)
    row = 0
    while row < num_rows:
        count = data.draw(st.integers(1, num_rows - row), label="rows in one call")
        slot.write(samples[row : row + count], row)
        row += count
    assert_same(slot.batch(), default_collate(samples))
    few = data.draw(st.integers(1, num_rows), label="rows of a short batch")
    assert_same(slot.batch(few), default_collate(samples[:few]))


@given(spec=specs, num_rows=st.integers(1, 4), seed=st.integers(0, 2**31))
@settings(max_examples=100)
def test_samples_come_back_from_their_rows(spec: Spec, num_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    samples = [make(spec, rng) for _ in range(num_rows)]
    layout = Layout.learn(samples[0])
    assert layout is not None
    slot = Slot(layout, num_rows)
    slot.write(samples, 0)
    memory = memoryview(slot.bytes)
    back = layout.read_samples(memory, num_rows, range(num_rows), slot.joined_texts(num_rows))
    slot.bytes[:] = 0  # they are copies
    assert_same(back, samples)


# ------------------------------------------------------------------------------------------- misfits


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Ways to every part of a sample, itself included."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, child in items:
        found += _paths(child, (*path, key))
    return found


def _replace(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {k: _replace(v, rest, new) if k == key else v for k, v in value.items()}
    parts = [_replace(v, rest, new) if i == key else v for i, v in enumerate(value)]
    return type(value)(*parts) if isinstance(value, Pair) else type(value)(parts)


def _alterations(part: Any) -> list[Any]:
    """What could stand in the place of a part and is not the same layout."""
    if isinstance(part, torch.Tensor):
        others = [part[None], part.to_sparse(), part.to("meta"), part.tolist(), None, Mine(part)]
        others.append(torch.zeros(part.shape, dtype=torch.float64 if part.dtype is not torch.float64 else torch.int8))
        if part.is_floating_point() or part.is_complex():
            others.append(part.clone().requires_grad_())
        return others if part.dtype is torch.bfloat16 else [*others, part.numpy()]
    if isinstance(part, np.ndarray):
        other_type = np.zeros(part.shape, "f8" if part.dtype != np.float64 else "f4")
        swapped = np.zeros(part.shape, part.dtype.newbyteorder()) if part.itemsize > 1 else np.zeros(part.shape, "u2")
        subclass = part.view(np.matrix) if part.ndim == 2 else "x"
        return [torch.from_numpy(part.copy()), part[None], other_type, swapped, part.astype(object), subclass]
    if isinstance(part, dict):
        others = [{**part, "one more": 1}, [*part.values()], type("Sub", (dict,), {})(part)]
        if part:
            others += [dict([*part.items()][1:]), {("other", k): v for k, v in part.items()}]
        return [*others, dict([*part.items()][::-1])] if len(part) > 1 else others
    if isinstance(part, (list, tuple)):
        other_kind = tuple(part) if isinstance(part, list) else list(part)
        return [other_kind, [*part, 1], type("Sub", (list,), {})(part), [], dict(enumerate(part)), None]
    if isinstance(part, (str, bytes)):
        return [1, None, [part], np.str_("x")]
    return ["x", [part], None, np.array(part), torch.tensor(part), object()]


class Mine(torch.Tensor):
    """A subclass: its collation may be its own."""


@given(spec=specs, seed=st.integers(0, 2**31), data=st.data())
@settings(max_examples=200)
def test_a_sample_that_differs_is_refused_and_leaves_its_neighbours_alone(
    spec: Spec, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    samples = [make(spec, rng) for _ in range(3)]
    layout = Layout.learn(samples[0])
    assert layout is not None
    slot = Slot(layout, 3)
    slot.write(samples, 0)
    sample = samples[1]
    path = data.draw(st.sampled_from(_paths(sample)), label="where")
    part = sample
    for key in path:
        part = part[key]
    others = _alterations(part)
    altered = _replace(sample, path, others[data.draw(st.integers(0, len(others) - 1), label="what")])
    with pytest.raises(Misfit):
        slot.write([altered], 1)
    with pytest.raises(Misfit):
        slot.write([samples[0], altered], 0)
    slot.write(samples[:2], 0)  # what a refused sample may have left in its own rows
    assert_same(slot.batch(), default_collate(samples))
    assert (slot.bytes[-64:] == 0xA5).all()


@pytest.mark.parametrize(("low", "high"), [(2**63, 2**63), (-(2**63) - 1, 0), (0, 10**30)])
def test_a_number_beyond_64_bits_does_not_fit(low: int, high: int) -> None:
    layout = Layout.learn(3)
    assert layout is not None
    slot = Slot(layout, 2)
    with pytest.raises(Misfit):
        slot.write([low, high], 0)


@pytest.mark.parametrize(
    "sample",
    [
        "text", b"bytes", [], {}, None, pytest.param(object(), id="object()"), {"a": "text"}, [[]], {"a": None}, 1j,
        np.array(["x"]), np.array([None]), np.zeros(2, ">i4"), np.zeros(2, "u2"), np.zeros(2, [("a", "f4")]),
        torch.zeros(2).to_sparse(), torch.zeros(2, requires_grad=True), torch.nn.Parameter(torch.zeros(2)),
        torch.zeros(2, dtype=torch.complex64).conj(), torch.zeros(2, device="meta"), np.str_("x"), np.ma.zeros(3),
        np.datetime64(0, "s"), {1, 2},
    ],
    ids=repr,
)  # fmt: skip
def test_what_a_slot_cannot_hold_has_no_layout(sample: Any) -> None:
    assert Layout.learn(sample) is None


def test_deep_nesting_ends_in_no_layout_instead_of_a_crash() -> None:
    sample: Any = 1
    for _ in range(5000):
        sample = [sample]
    assert Layout.learn(sample) is None


def test_a_layout_is_a_value() -> None:
    first, second = Layout.learn({"a": np.zeros(3), "b": 1}), Layout.learn({"a": np.ones(3), "b": 2})
    assert first == second
    assert copy.deepcopy(first) == first
    assert Layout.learn({"b": 1, "a": np.zeros(3)}) != first


def test_views_are_not_mixed_up_between_slots_and_sizes() -> None:
    layout = Layout.learn(np.zeros(4, "f4"))
    assert layout is not None
    memories = [np.zeros(layout.places(8)[1], np.uint8) for _ in range(2)]
    writer = RowWriter(layout, lambda slot: memoryview(memories[slot]))
    for slot in range(2):
        for num_rows in (8, 3):
            writer.write([np.full(4, 10 * slot + num_rows, "f4")], (slot, num_rows), num_rows - 1)
    for slot, memory in enumerate(memories):
        rows = memory.view("f4").reshape(-1, 4)
        assert rows[7, 0] == 10 * slot + 8
        assert rows[2, 0] == 10 * slot + 3
