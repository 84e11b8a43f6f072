"""The fixed layout of a sample: learnt from one, checked on each later one, written straight into batch rows.

It covers what torch's `default_collate` stacks or turns into a tensor: nested dicts, lists, tuples and named
tuples of tensors, arrays and numbers. Texts keep their place in the structure and travel beside the rows.
A sample that differs in any way (a key, a type, a shape, a dtype) raises `Misfit` and takes the general path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGN = 64
# below this a row is cheaper to write together with its neighbours, in one call
_BULK_ROW_BYTES = 16 << 10

_TORCH_TO_NUMPY = {
    "torch.uint8": "u1",
    "torch.int8": "i1",
    "torch.int16": "i2",
    "torch.int32": "i4",
    "torch.int64": "i8",
    "torch.float16": "f2",
    "torch.float32": "f4",
    "torch.float64": "f8",
    "torch.bool": "?",
    "torch.complex64": "c8",
    "torch.complex128": "c16",
    # numpy has no such type: the bits travel as integers
    "torch.bfloat16": "i2",
}
_NUMPY_TO_TORCH = {
    "u1": "torch.uint8",
    "i1": "torch.int8",
    "i2": "torch.int16",
    "i4": "torch.int32",
    "i8": "torch.int64",
    "f2": "torch.float16",
    "f4": "torch.float32",
    "f8": "torch.float64",
    "b1": "torch.bool",
    "c8": "torch.complex64",
    "c16": "torch.complex128",
}


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
    children: tuple[Node | Leaf, ...]
    keys: tuple[Any, ...] = ()
    cls: type | None = None


@dataclass(frozen=True)
class Layout:
    """The structure of a sample and the place of each leaf in a slot of a given number of rows."""

    root: Node | Leaf
    leaves: tuple[Leaf, ...] = field(init=False)
    row_bytes: int = field(init=False)
    has_objects: bool = field(init=False)

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

    def places(self, num_rows: int) -> tuple[list[int], int]:
        """Offset of each leaf's rows in a slot, and the bytes that the slot must have."""
        offsets, at = [], 0
        for leaf in self.leaves:
            offsets.append(at)
            at += -(-leaf.row_bytes * num_rows // _ALIGN) * _ALIGN
        return offsets, at


# --------------------------------------------------------------------------------------------- learning


def learn_layout(sample: object) -> Layout | None:
    """Return the layout of a sample, or None where it has none that a slot could hold."""
    try:
        root = _learn(sample, depth=0)
    except Misfit:
        return None
    layout = Layout(root)
    if all(leaf.kind == "object" for leaf in layout.leaves):
        return None
    return layout


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
        return Leaf("bool", "torch.bool", "?")
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
    return _NUMPY_TO_TORCH[code], dtype.str[1:] if dtype.kind != "b" else "?"


# --------------------------------------------------------------------------------------------- writing


class RowWriter:
    """Writes samples into rows of slots; one per process and layout."""

    def __init__(self, layout: Layout, slot_memory: Callable[[int], memoryview]) -> None:
        self.layout = layout
        self._slot_memory = slot_memory
        self._put_one = _single_writer(layout.root, layout) if not layout.has_objects else None
        self._columns = _column_reader(layout.root)
        self._checks = [_leaf_check(leaf) for leaf in layout.leaves]
        self._views: dict[tuple[int, int], list[npt.NDArray[Any]]] = {}

    def fits(self, sample: Any) -> bool:
        """Whether a sample has this layout, as far as can be seen without copying it."""
        columns: list[Sequence[Any]] = []
        try:
            self._columns([sample], columns)
            for check, column in zip(self._checks, columns, strict=True):
                check(column)
        except Misfit:
            return False
        return True

    def write(self, samples: Sequence[Any], slot: tuple[int, int], row: int) -> list[Any]:
        """Write samples from `row` on into a slot, (number, rows); returns the texts, leaf by leaf.

        Raises `Misfit` where any of the samples does not fit; nothing outside their own rows was written then.
        """
        views = self._views.get(slot)
        if views is None:
            views = self._views[slot] = row_views(self.layout, self._slot_memory(slot[0]), slot[1])
        if len(samples) == 1 and self._put_one is not None:
            try:
                self._put_one(samples[0], views, row)
            except (RuntimeError, TypeError, OverflowError) as error:
                raise Misfit("sample") from error
            return []
        columns: list[Sequence[Any]] = []
        self._columns(samples, columns)
        for check, column in zip(self._checks, columns, strict=True):
            check(column)
        texts: list[Any] = []
        count = len(samples)
        for number, (leaf, column) in enumerate(zip(self.layout.leaves, columns, strict=True)):
            if leaf.kind == "object":
                texts.append(list(column))
                continue
            rows = views[number][row : row + count]
            if leaf.kind == "tensor":
                self._write_tensors(leaf, column, rows)
            elif leaf.kind == "array" and rows.ndim > 1:
                for place, value in zip(rows, column, strict=True):
                    np.copyto(place, value)
            else:
                try:
                    rows[:] = column
                except OverflowError as error:
                    raise Misfit("int") from error
        return texts

    def _write_tensors(self, leaf: Leaf, column: Sequence[Any], rows: npt.NDArray[Any]) -> None:
        torch = sys.modules["torch"]
        bits_only = leaf.torch_dtype == "torch.bfloat16"
        try:
            if leaf.row_bytes < _BULK_ROW_BYTES or rows.ndim == 1:
                out = torch.from_numpy(rows)
                torch.stack(column, out=out.view(torch.bfloat16) if bits_only else out)
                return
            for place, value in zip(rows, column, strict=True):
                np.copyto(place, (value.view(torch.int16) if bits_only else value).numpy())
        except (RuntimeError, TypeError) as error:
            raise Misfit("tensor") from error


_Putter = Callable[[Any, list[npt.NDArray[Any]], int], None]


def _single_writer(node: Node | Leaf, layout: Layout, first: int = 0) -> _Putter:
    """A function that checks one sample and writes it into its row: the shortest way for a sample on its own.

    Workers that wait between samples find their caches cold, and a line of code costs several times its usual price.
    """
    if isinstance(node, Leaf):
        return _leaf_writer(node, first)
    putters: list[_Putter] = []
    number = first
    for child in node.children:
        putters.append(_single_writer(child, layout, number))
        number += _num_leaves(child)
    container: Any = _container_type(node)
    size = len(node.children)
    if node.kind == "dict":
        keys = list(node.keys)

        def put_dict(sample: Any, views: list[npt.NDArray[Any]], row: int) -> None:
            if type(sample) is not container or [*sample] != keys:
                raise Misfit("container")
            for put, value in zip(putters, sample.values(), strict=True):
                put(value, views, row)

        return put_dict

    def put_sequence(sample: Any, views: list[npt.NDArray[Any]], row: int) -> None:
        if type(sample) is not container or len(sample) != size:
            raise Misfit("container")
        for put, value in zip(putters, sample, strict=True):
            put(value, views, row)

    return put_sequence


def _num_leaves(node: Node | Leaf) -> int:
    return 1 if isinstance(node, Leaf) else sum(map(_num_leaves, node.children))


def _leaf_writer(leaf: Leaf, number: int) -> _Putter:
    shape = leaf.shape
    if leaf.kind == "tensor":
        torch = sys.modules["torch"]
        tensor, dtype = torch.Tensor, getattr(torch, leaf.torch_dtype.removeprefix("torch."))
        size, bits = torch.Size(shape), torch.int16 if leaf.torch_dtype == "torch.bfloat16" else None

        def put_tensor(value: Any, views: list[npt.NDArray[Any]], row: int) -> None:
            if type(value) is not tensor or value.dtype is not dtype or value.shape != size:
                raise Misfit("tensor")
            views[number][row] = (value if bits is None else value.view(bits)).numpy()

        return put_tensor
    if leaf.kind == "array":
        kind = np.dtype(leaf.numpy_dtype)

        def put_array(value: Any, views: list[npt.NDArray[Any]], row: int) -> None:
            if type(value) is not np.ndarray or value.dtype != kind or value.shape != shape:
                raise Misfit("array")
            views[number][row] = value

        return put_array
    types = {"int": int, "float": float, "bool": bool}
    exact = types.get(leaf.kind) or np.dtype(leaf.numpy_dtype).type

    def put_number(value: Any, views: list[npt.NDArray[Any]], row: int) -> None:
        if type(value) is not exact:
            raise Misfit("number")
        views[number][row] = value

    return put_number


def row_views(layout: Layout, memory: memoryview, num_rows: int) -> list[npt.NDArray[Any]]:
    """The rows of each leaf as arrays over a slot's memory."""
    offsets, _ = layout.places(num_rows)
    views = []
    for leaf, offset in zip(layout.leaves, offsets, strict=True):
        count = int(np.prod(leaf.shape, dtype=np.int64)) * num_rows
        if leaf.kind == "object" or count == 0:
            views.append(np.empty((num_rows, *leaf.shape), leaf.numpy_dtype or "u1"))
        else:
            views.append(np.frombuffer(memory, leaf.numpy_dtype, count, offset).reshape(num_rows, *leaf.shape))
    return views


_Reader = Callable[[Sequence[Any], list[Sequence[Any]]], None]


def _column_reader(node: Node | Leaf) -> _Reader:
    """A function that turns samples into one column per leaf, and raises where the structure differs."""
    if isinstance(node, Leaf):
        return lambda samples, columns: columns.append(samples)
    readers = [_column_reader(child) for child in node.children]
    flat = all(isinstance(child, Leaf) for child in node.children)
    size, kinds = len(node.children), {_container_type(node)}
    if node.kind == "dict":
        keys = list(node.keys)

        def read_dict(samples: Sequence[Any], columns: list[Sequence[Any]]) -> None:
            if set(map(type, samples)) != kinds:
                raise Misfit("container type")
            for sample in samples:
                if [*sample] != keys:
                    raise Misfit("keys")
            for key, reader in zip(keys, readers, strict=True):
                reader([sample[key] for sample in samples], columns)

        return read_dict

    def read_sequence(samples: Sequence[Any], columns: list[Sequence[Any]]) -> None:
        if set(map(type, samples)) != kinds or set(map(len, samples)) != {size}:
            raise Misfit("container type or length")
        if flat:
            columns.extend(zip(*samples, strict=True))
        else:
            for reader, values in zip(readers, zip(*samples, strict=True), strict=True):
                reader(values, columns)

    return read_sequence


def _container_type(node: Node) -> type:
    return node.cls if node.cls is not None else {"dict": dict, "list": list, "tuple": tuple}[node.kind]


def _leaf_check(leaf: Leaf) -> Callable[[Sequence[Any]], None]:
    if leaf.kind == "tensor":
        return _tensor_check(leaf)
    if leaf.kind == "array":
        dtype, shape = np.dtype(leaf.numpy_dtype), leaf.shape

        def check_arrays(values: Sequence[Any]) -> None:
            for value in values:
                if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
                    raise Misfit("array")

        return check_arrays
    if leaf.kind == "object":

        def check_texts(values: Sequence[Any]) -> None:
            if not set(map(type, values)) <= {str, bytes}:
                raise Misfit("text")

        return check_texts
    if leaf.kind == "int":

        def check_ints(values: Sequence[Any]) -> None:
            if set(map(type, values)) != {int}:  # one too large for 64 bits raises when it is written
                raise Misfit("int")

        return check_ints
    kinds = {{"float": float, "bool": bool, "scalar": np.dtype(leaf.numpy_dtype).type}[leaf.kind]}

    def check_numbers(values: Sequence[Any]) -> None:
        if set(map(type, values)) != kinds:
            raise Misfit("number")

    return check_numbers


def _tensor_check(leaf: Leaf) -> Callable[[Sequence[Any]], None]:
    torch = sys.modules["torch"]
    tensor, dtype, shape = torch.Tensor, getattr(torch, leaf.torch_dtype.removeprefix("torch.")), leaf.shape
    size, kinds, dtypes, dtype_of = torch.Size(shape), {tensor}, {dtype}, attrgetter("dtype")

    # what else could differ (device, sparse, requires_grad) makes the copy itself raise: half the price of asking
    if leaf.row_bytes < _BULK_ROW_BYTES:

        def check_small_tensors(values: Sequence[Any]) -> None:
            # `torch.stack` compares the shapes with each other
            if set(map(type, values)) != kinds or set(map(dtype_of, values)) != dtypes or values[0].shape != size:
                raise Misfit("tensor")

        return check_small_tensors

    def check_tensors(values: Sequence[Any]) -> None:
        for value in values:
            if type(value) is not tensor or value.dtype is not dtype or value.shape != size:
                raise Misfit("tensor")

    return check_tensors


# --------------------------------------------------------------------------------------------- delivery


def build_batch(layout: Layout, tensors: Sequence[Any]) -> Any:
    """Put one tensor (or list of texts) per leaf into the structure that `default_collate` gives."""
    return _build(layout.root, iter(tensors), is_sample=False)


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


def slot_tensors(
    layout: Layout, owner: npt.NDArray[np.uint8], num_rows: int, count_rows: int, texts: Sequence[list[Any]]
) -> list[Any]:
    """One tensor per leaf over the first `count_rows` of a slot laid out for `num_rows`; each keeps `owner` alive."""
    import torch

    offsets, _ = layout.places(num_rows)
    beside = iter(texts)
    tensors: list[Any] = []
    for leaf, offset in zip(layout.leaves, offsets, strict=True):
        if leaf.kind == "object":
            tensors.append(next(beside))
            continue
        dtype = getattr(torch, leaf.torch_dtype.removeprefix("torch."))
        count = count_rows
        for extent in leaf.shape:
            count *= extent
        if count == 0:
            tensors.append(torch.empty((count_rows, *leaf.shape), dtype=dtype))
        else:
            flat = torch.frombuffer(owner, dtype=dtype, count=count, offset=offset)
            tensors.append(flat.view(count_rows, *leaf.shape) if leaf.shape else flat)
    return tensors


def read_samples(
    layout: Layout, memory: memoryview, num_rows: int, rows: range, texts: Sequence[list[Any]]
) -> list[Any]:
    """Rebuild samples from their rows, as copies of the types that the data set gave (for the rare mixed batch)."""
    views = row_views(layout, memory, num_rows)
    samples = []
    for row in rows:
        beside = iter(texts)
        leaves = [
            next(beside)[row - rows.start] if leaf.kind == "object" else _read_leaf(leaf, view[row])
            for leaf, view in zip(layout.leaves, views, strict=True)
        ]
        samples.append(_build(layout.root, iter(leaves), is_sample=True))
    return samples


def _read_leaf(leaf: Leaf, cell: Any) -> Any:
    if leaf.kind == "tensor":
        torch = sys.modules["torch"]
        value = torch.from_numpy(np.array(cell))
        return value.view(torch.bfloat16) if leaf.torch_dtype == "torch.bfloat16" else value
    if leaf.kind == "array":
        return np.array(cell)
    return {"int": int, "float": float, "bool": bool}.get(leaf.kind, np.dtype(leaf.numpy_dtype).type)(cell)
