"""Any object goes through shared memory and comes out the same; its block lives as long as its views."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from headrace.engine.memory.arena import Arena
from headrace.engine.memory.blocks import HEADER_BYTES, Region
from headrace.engine.memory.parcels import dump, load, peek

from ..sameness import assert_same

Point = namedtuple("Point", "x y")


@dataclass
class Box:
    """A user's own class."""

    name: str
    content: Any


class Labelled(torch.Tensor):
    """A user's own tensor, with an attribute."""


def is_free(arena: Arena, block: int) -> bool:
    return arena.bytes.cast("q")[(block - HEADER_BYTES) >> 3] == 0


arrays = st_numpy.arrays(
    dtype=st.sampled_from(["u1", "i4", "f4", "f8", "c8", "?", "U3", "S2", "M8[s]", ">i4"]),
    shape=st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=20),
)
tensors = st.builds(
    lambda shape, dtype, seed: torch.from_numpy(np.random.default_rng(seed).integers(0, 2, shape)).to(dtype),
    st.lists(st.integers(0, 30), max_size=3),
    st.sampled_from([torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.complex64]),
    st.integers(0, 2**20),
)
plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=3000), st.binary(max_size=5)
)
objects = st.recursive(
    st.one_of(plain, arrays, tensors),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.builds(Point, inner, inner),
    ),
    max_leaves=8,
)


@given(value=objects)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_objects_come_out_as_they_went_in(arena: Arena, region: Region, value: Any) -> None:
    block, size = dump(value, region, arena)
    assert size > 0
    assert_same(peek(arena, block), value)
    assert not is_free(arena, block)
    out = load(arena, block)
    assert_same(out, value)
    del out
    assert is_free(arena, block)


@pytest.mark.parametrize("elements", [3, 100_000])
@pytest.mark.parametrize("kind", ["own", "parameter", "subclass", "box", "ordered", "shared storage"])
def test_special_objects(arena: Arena, region: Region, kind: str, elements: int) -> None:
    tensor = torch.arange(elements, dtype=torch.float32)
    labelled = tensor.clone().as_subclass(Labelled)
    labelled.label = "seven"
    value: Any = {
        "own": tensor.requires_grad_(),
        "parameter": torch.nn.Parameter(tensor.detach()),
        "subclass": labelled,
        "box": Box("a", [tensor.detach(), np.arange(elements)]),
        "ordered": OrderedDict(b=tensor.detach(), a=1),
        "shared storage": (tensor.detach(), tensor.detach()[1:]),
    }[kind]
    out = load(arena, dump(value, region, arena)[0])
    if kind == "box":
        assert out.name == value.name
        assert_same(out.content, value.content)
    else:
        assert_same(out, value)
    if kind == "subclass":
        assert out.label == "seven"


@pytest.mark.parametrize("side", [2, 40])
def test_strides_of_dense_tensors_are_kept(arena: Arena, region: Region, side: int) -> None:
    base = torch.arange(3 * side * side, dtype=torch.float32).reshape(1, 3, side, side)
    for tensor in (base.transpose(2, 3), base.to(memory_format=torch.channels_last), base.permute(3, 2, 1, 0)):
        out = load(arena, dump(tensor, region, arena)[0])
        assert_same(out, tensor)
        assert out.stride() == tensor.stride()


@pytest.mark.parametrize("side", [2, 60])
def test_tensors_with_gaps_or_overlaps_keep_their_values(arena: Arena, region: Region, side: int) -> None:
    base = torch.arange(float(side * side)).reshape(side, side)
    for tensor in (base[::2], base[:, 1:], base[:1].expand(side, side), base.t()[::2]):
        assert_same(load(arena, dump(tensor, region, arena)[0]), tensor)


@pytest.mark.parametrize("side", [2, 60])
def test_sparse_quantized_conjugated_tensors(arena: Arena, region: Region, side: int) -> None:
    dense = torch.eye(side)
    for tensor in (dense.to_sparse(), dense.to(torch.complex64).mul(1j).conj(), torch._neg_view(dense)):
        assert_same(load(arena, dump(tensor, region, arena)[0]), tensor)


def test_a_tensor_inside_a_graph_comes_out_as_a_leaf(arena: Arena, region: Region) -> None:
    inner = torch.ones(1000, requires_grad=True) * 2
    out = load(arena, dump(inner, region, arena)[0])
    assert_same(out, inner)
    assert out.is_leaf


@pytest.mark.parametrize("elements", [10, 10_000])
def test_what_comes_out_can_be_written(arena: Arena, region: Region, elements: int) -> None:
    frozen = np.arange(elements)
    frozen.flags.writeable = False
    tensor, array = load(arena, dump((torch.zeros(elements), np.zeros(elements)), region, arena)[0])
    tensor += 1
    array += 1
    assert tensor.sum() == array.sum() == elements
    out = load(arena, dump(frozen, region, arena)[0])
    assert_same(out, frozen)


def test_the_block_is_free_when_the_last_view_is_gone(arena: Arena, region: Region) -> None:
    value = {"a": torch.ones(1000), "b": np.ones(1000), "c": "text"}
    block, _ = dump(value, region, arena)
    out = load(arena, block)
    part = out["a"][500:]
    array = out["b"]
    del out
    assert not is_free(arena, block)
    assert part.sum() == 500
    del part
    assert not is_free(arena, block)
    assert array.sum() == 1000
    del array
    assert is_free(arena, block)


def test_without_large_buffers_the_block_is_free_at_once(arena: Arena, region: Region) -> None:
    block, _ = dump([1, "two", np.arange(3)], region, arena)
    out = load(arena, block)
    assert is_free(arena, block)
    assert_same(out, [1, "two", np.arange(3)])


def test_large_buffers_are_not_copied_on_the_way_out(arena: Arena, region: Region) -> None:
    block, size = dump(np.zeros(1 << 20, np.uint8), region, arena)
    out = load(arena, block)
    arena.view(block, size)[size - 1] = 7
    arena.view(block, size)[size - 1 - (1 << 19)] = 7
    assert out.sum() == 14


def test_views_outlive_the_arenas_close(region: Region, arena: Arena) -> None:
    out = load(arena, dump(torch.arange(1000), region, arena)[0])
    arena.close()
    assert out.sum() == 499500


def test_an_object_that_cannot_be_pickled_takes_no_block(arena: Arena, region: Region) -> None:
    before = region.top_bytes
    with pytest.raises((TypeError, AttributeError)):
        dump([torch.ones(5000), lambda: 1], region, arena)
    assert region.top_bytes == before
