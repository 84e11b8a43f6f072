"""Samples into rows of batch slots: each is checked against the layout, and written once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ..memory import Layout, Leaf, Misfit, Node, row_views

# below this a row is cheaper to write together with its neighbours, in one call
SMALL_ROW_BYTES = 16 << 10
# up to this many samples are quicker written one after the other than leaf by leaf, which takes some preparation
_FEW_SAMPLES = 4


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

    def put(self, sample: Any, slot: tuple[int, int], row: int) -> bool:
        """Write one sample without texts into its row; False where it does not fit, or the slot is new here."""
        views = self._views.get(slot)
        if views is None or self._put_one is None:
            return False
        try:
            self._put_one(sample, views, row)
        except (Misfit, RuntimeError, TypeError, OverflowError):
            return False
        return True

    def write(self, samples: Sequence[Any], slot: tuple[int, int], row: int) -> list[Any]:
        """Write samples from `row` on into a slot, (number, rows); returns the texts, leaf by leaf.

        Raises `Misfit` where any of the samples does not fit; nothing outside their own rows was written then.
        """
        views = self._views.get(slot)
        if views is None:
            views = self._views[slot] = row_views(self.layout, self._slot_memory(slot[0]), slot[1])
        if len(samples) <= _FEW_SAMPLES and self._put_one is not None:
            try:
                for offset, sample in enumerate(samples):
                    self._put_one(sample, views, row + offset)
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
            if leaf.row_bytes < SMALL_ROW_BYTES or rows.ndim == 1:
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
        if set(map(type, samples)) != kinds or len(samples[0]) != size:
            raise Misfit("container type or length")
        try:
            values = list(zip(*samples, strict=True))
        except ValueError as error:
            raise Misfit("container length") from error
        if flat:
            columns += values
        else:
            for reader, column in zip(readers, values, strict=True):
                reader(column, columns)

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
    if leaf.row_bytes < SMALL_ROW_BYTES:

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
