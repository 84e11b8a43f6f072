"""The fixed layout of a sample: learnt from one, and the shape of the batches it makes.

It covers what torch's `default_collate` stacks or turns into a tensor: nested dicts, lists, tuples and named
tuples of tensors, arrays and numbers. Texts keep their place in the structure and travel beside the rows.
A sample that differs in any way (a key, a type, a shape, a dtype) raises `Misfit` and takes the general path.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGN = 64

_TORCH_TO_NUMPY = {
    "torch.uint8": "u1",
    "torch.int8": "i1",
    "torch.int16": "i2",
    "torch.int32": "i4",
    "torch.int64": "i8",
    "torch.float16": "f2",
    "torch.float32": "f4",
    "torch.float64": "f8",
    "torch.bool": "b1",
    "torch.complex64": "c8",
    "torch.complex128": "c16",
    # numpy has no such type: the bits travel as integers
    "torch.bfloat16": "i2",
}
_NUMPY_TO_TORCH = {code: name for name, code in _TORCH_TO_NUMPY.items() if name != "torch.bfloat16"}


class Misfit(Exception):
    """A sample does not have the layout that was learnt, or cannot have one."""


@dataclass(frozen=True)
class Leaf:
    """One array, tensor, number or text of a sample."""

    kind: str  # "tensor", "array", "int", "float", "bool", "scalar", "object"
    torch_dtype: str = ""
    numpy_dtype: str = ""
    shape: tuple[int, ...] = ()

    @cached_property
    def row_bytes(self) -> int:
        if self.kind == "object":
            return 0
        return int(np.dtype(self.numpy_dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Node:
    """A container of a sample: "dict", "list", "tuple" or "namedtuple"."""

    kind: str
    children: "tuple[Node | Leaf, ...]"
    keys: tuple[Any, ...] = ()
    cls: type | None = None


# how to make a leaf's tensor: (dtype, numbers, offset, shape); None for a text
TensorPlan = list[tuple[Any, int, int, tuple[int, ...]] | None]


@dataclass(frozen=True)
class Layout:
    """The structure of a sample and the place of each leaf in a slot of a given number of rows."""

    root: Node | Leaf
    leaves: tuple[Leaf, ...] = field(init=False)
    row_bytes: int = field(init=False)
    has_objects: bool = field(init=False)
    is_flat: bool = field(init=False)  # one container of leaves

    def __post_init__(self) -> None:
        found: list[Leaf] = []

        def walk(node: Node | Leaf) -> None:
            if isinstance(node, Leaf):
                found.append(node)
            else:
                for child in node.children:
                    walk(child)

        walk(self.root)
        object.__setattr__(self, "leaves", tuple(found))
        object.__setattr__(self, "row_bytes", sum(leaf.row_bytes for leaf in found))
        object.__setattr__(self, "has_objects", any(leaf.kind == "object" for leaf in found))
        is_flat = isinstance(self.root, Node) and all(isinstance(child, Leaf) for child in self.root.children)
        object.__setattr__(self, "is_flat", is_flat)

    @classmethod
    def learn(cls, sample: object) -> "Layout | None":
        """Return the layout of a sample, or None where it has none that a slot could hold."""
        try:
            layout = cls(_learn(sample, depth=0))
        except Misfit:
            return None
        return None if all(leaf.kind == "object" for leaf in layout.leaves) else layout

    def places(self, num_rows: int) -> tuple[list[int], int]:
        """Offset of each leaf's rows in a slot, and the bytes that the slot must have."""
        offsets, at = [], 0
        for leaf in self.leaves:
            offsets.append(at)
            at += -(-leaf.row_bytes * num_rows // _ALIGN) * _ALIGN
        return offsets, max(at, _ALIGN)  # rows of empty arrays need a slot, too

    def row_views(self, memory: memoryview, num_rows: int) -> list[npt.NDArray[Any]]:
        """The rows of each leaf as arrays over a slot's memory."""
        offsets, _ = self.places(num_rows)
        views = []
        for leaf, offset in zip(self.leaves, offsets, strict=True):
            count = int(np.prod(leaf.shape, dtype=np.int64)) * num_rows
            if leaf.kind == "object" or count == 0:
                views.append(np.empty((num_rows, *leaf.shape), leaf.numpy_dtype or "u1"))
            else:
                views.append(np.frombuffer(memory, leaf.numpy_dtype, count, offset).reshape(num_rows, *leaf.shape))
        return views

    def build_batch(self, tensors: Sequence[Any]) -> Any:
        """Put one tensor (or list of texts) per leaf into the structure that `default_collate` gives."""
        root = self.root
        if self.is_flat and not self.has_objects and isinstance(root, Node):
            if root.kind == "dict":
                return dict(zip(root.keys, tensors, strict=True))
            return list(tensors) if root.cls is None else root.cls(*tensors)
        return _build(self.root, iter(tensors), is_sample=False)

    def plan_tensors(self, num_rows: int, count_rows: int) -> TensorPlan:
        """How to make the tensors of batches that have `count_rows` in a slot laid out for `num_rows`."""
        import torch

        plan: TensorPlan = []
        for leaf, offset in zip(self.leaves, self.places(num_rows)[0], strict=True):
            if leaf.kind == "object":
                plan.append(None)
                continue
            shape = (count_rows, *leaf.shape)
            dtype = getattr(torch, leaf.torch_dtype.removeprefix("torch."))
            plan.append((dtype, int(np.prod(shape, dtype=np.int64)), offset, shape))
        return plan

    def read_samples(self, memory: memoryview, num_rows: int, rows: range, texts: Sequence[list[Any]]) -> list[Any]:
        """Rebuild samples from their rows, as copies of the types that the data set gave (for the rare mixed batch)."""
        views = self.row_views(memory, num_rows)
        samples = []
        for row in rows:
            beside = iter(texts)
            leaves = [
                next(beside)[row - rows.start] if leaf.kind == "object" else _read_leaf(leaf, view[row])
                for leaf, view in zip(self.leaves, views, strict=True)
            ]
            samples.append(_build(self.root, iter(leaves), is_sample=True))
        return samples


def _learn(value: Any, depth: int) -> Node | Leaf:
    kind = type(value)
    if depth > 32:
        raise Misfit("nested too deeply")
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor:
        name = str(value.dtype)
        if (
            name not in _TORCH_TO_NUMPY
            or value.layout is not torch.strided
            or value.is_nested
            or value.device.type != "cpu"
            or value.requires_grad
            or value.is_conj()
            or value.is_neg()
        ):
            raise Misfit("not a plain tensor")
        return Leaf("tensor", name, _TORCH_TO_NUMPY[name], tuple(value.shape))
    if kind is np.ndarray:
        return Leaf("array", *_array_types(value.dtype), value.shape)
    if kind is int:
        return Leaf("int", "torch.int64", "i8")
    if kind is float:
        return Leaf("float", "torch.float64", "f8")
    if kind is bool:
        return Leaf("bool", "torch.bool", "b1")
    if isinstance(value, (np.number, np.bool_)):
        return Leaf("scalar", *_array_types(value.dtype))
    if kind in (str, bytes):
        return Leaf("object")
    if kind is dict:
        return Node("dict", tuple(_learn(v, depth + 1) for v in value.values()), keys=tuple(value))
    if kind in (list, tuple):
        if not value:
            raise Misfit("an empty sequence")
        return Node("list" if kind is list else "tuple", tuple(_learn(v, depth + 1) for v in value))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return Node("namedtuple", tuple(_learn(v, depth + 1) for v in value), cls=kind)
    raise Misfit(f"a {kind.__name__}")


def _array_types(dtype: np.dtype[Any]) -> tuple[str, str]:
    code = f"{dtype.kind}{dtype.itemsize}"
    if not dtype.isnative or code not in _NUMPY_TO_TORCH:
        raise Misfit(f"dtype {dtype}")
    return _NUMPY_TO_TORCH[code], code


def _build(node: Node | Leaf, leaves: Iterator[Any], *, is_sample: bool) -> Any:
    # not a closure that calls itself: such a cycle would keep a slot leased until the garbage collector runs
    if isinstance(node, Leaf):
        return next(leaves)
    children = [_build(child, leaves, is_sample=is_sample) for child in node.children]
    if node.kind == "dict":
        return dict(zip(node.keys, children, strict=True))
    if not is_sample:  # texts stay as `zip` gave them to default_collate: a tuple in a sequence, a list in a dict
        children = [
            tuple(c) if isinstance(c, list) and isinstance(n, Leaf) else c
            for c, n in zip(children, node.children, strict=True)
        ]
    if node.cls is not None:
        return node.cls(*children)
    return tuple(children) if is_sample and node.kind == "tuple" else children


def slot_tensors(plan: TensorPlan, owner: npt.NDArray[np.uint8], texts: Sequence[list[Any]]) -> list[Any]:
    """One tensor per leaf over a slot's memory; each keeps `owner` alive."""
    torch = sys.modules["torch"]
    beside = iter(texts)
    tensors: list[Any] = []
    for how in plan:
        if how is None:
            tensors.append(next(beside))
            continue
        dtype, count, offset, shape = how
        if count:
            flat = torch.frombuffer(owner, dtype=dtype, count=count, offset=offset)
            tensors.append(flat.view(shape) if len(shape) > 1 else flat)
        else:
            tensors.append(torch.empty(shape, dtype=dtype))
    return tensors


def _read_leaf(leaf: Leaf, cell: Any) -> Any:
    if leaf.kind == "tensor":
        torch = sys.modules["torch"]
        value = torch.from_numpy(np.array(cell))
        return value.view(torch.bfloat16) if leaf.torch_dtype == "torch.bfloat16" else value
    if leaf.kind == "array":
        return np.array(cell)
    return {"int": int, "float": float, "bool": bool}.get(leaf.kind, np.dtype(leaf.numpy_dtype).type)(cell)
