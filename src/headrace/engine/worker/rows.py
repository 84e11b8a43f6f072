"""Samples into rows of batch slots: a batch is bound to one, each sample is checked against its layout and written."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ..memory import (
    GENERAL,
    UNBOUND,
    Answer,
    Arena,
    Board,
    BoardLock,
    Entry,
    Head,
    Layout,
    Leaf,
    Ledger,
    Misfit,
    Node,
    Region,
    Slot,
    dump,
    join_place,
    peek,
    split_place,
)
from .record import WorkerRecord

# below this a row is cheaper to write together with its neighbours, in one call
SMALL_ROW_BYTES = 16 << 10
# up to this many samples are quicker written one after the other than leaf by leaf, which takes some preparation
_FEW_SAMPLES = 4

# the training process answers at once while it waits for a batch; if it is elsewhere, the batch takes the general path
_LAYOUT_PATIENCE_S = 0.05

# a large batch on the general path lies in memory twice, as samples and collated: its layout is worth a longer wait
_LARGE_BATCH_BYTES, _LARGE_PART = 16 << 20, 8

# a loop that holds all slots gives one back with its next batch; a step takes less than this, as a rule
_SLOT_PATIENCE_S = 2.0

# what was done with rows: (answer, first row, rows, texts or samples)
Placed = tuple[Answer, int, int, Any]


class Placer:
    """Binds batches to slots and writes samples into their rows. One per worker."""

    def __init__(
        self,
        arena: Arena,
        lock: BoardLock,
        ledger: Ledger,
        region: Region,
        record: WorkerRecord,
        propose: Callable[[int, int, int], None],
        *,
        budget_bytes: int,
    ) -> None:
        self._arena, self._lock, self._ledger, self._region, self._record = arena, lock, ledger, region, record
        self._board = Board(arena.bytes)
        self._words = self._board.words
        self._propose = propose  # (batch, rows, block): offers a new layout to the training process
        self._large_bytes = min(_LARGE_BATCH_BYTES, budget_bytes // _LARGE_PART)
        self._writers: list[RowWriter] = []
        self._refused: list[Layout] = []

    def place(self, entry: int, samples: Sequence[Any], row: int, done: list[Placed]) -> None:
        """Write samples into their rows; those that do not fit are kept aside, each on its own."""
        place = self._words[entry + Entry.PLACE]
        if place == UNBOUND:
            place = self._bind(entry, samples[0])
        if place == GENERAL:
            append_placed(done, Answer.SHARED, row, list(samples))
            return
        layout, slot = split_place(place)
        writer = self._writer(layout)
        try:
            texts = writer.write(samples, (slot, self._words[entry + Entry.NUM_ROWS]), row)
            self._record.add_bytes(writer.layout.row_bytes * len(samples))
            append_placed(done, Answer.ROWS, row, texts, count=len(samples))
        except Misfit:
            if len(samples) == 1:
                append_placed(done, Answer.SAMPLES, row, [samples[0]])
            else:
                for offset, sample in enumerate(samples):
                    self.place(entry, [sample], row + offset, done)

    def row_bytes(self, entry: int) -> int:
        """Bytes of a row of a batch: of its slot, or, where it has none yet, of the last layout that samples had."""
        place = self._words[entry + Entry.PLACE]
        if place >= 0:
            return self._writer(split_place(place)[0]).layout.row_bytes
        return self._writers[-1].layout.row_bytes if place == UNBOUND and self._writers else 1 << 62

    def put(self, place: int, num_rows: int, sample: Any, row: int) -> bool:
        """Write one sample into a batch that has its slot, where that takes no more than this; else False."""
        layout, slot = split_place(place)
        writer = self._writer(layout)
        if not writer.put(sample, (slot, num_rows), row):
            return False
        self._record.add_bytes(writer.layout.row_bytes)
        return True

    def rows_back(self, entry: int, row: int, texts: list[Any]) -> list[Any]:
        """Take samples out of their rows again: a later one did not fit, so the batch takes the general path."""
        place = self._words[entry + Entry.PLACE]
        if row == 0 or place < 0:
            return []
        layout, slot = split_place(place)
        memory = self._slot_memory(slot)
        joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
        num_rows = self._words[entry + Entry.NUM_ROWS]
        return self._writer(layout).layout.read_samples(memory, num_rows, range(row), joined)

    def _writer(self, number: int) -> "RowWriter":
        while len(self._writers) <= number:
            block = self._board.layout_block(len(self._writers))
            self._writers.append(RowWriter(peek(self._arena, block), self._slot_memory))
        return self._writers[number]

    def _slot_memory(self, slot: int) -> memoryview:
        at = Board.slot_at(slot)
        return self._arena.view(self._words[at + Slot.OFFSET], self._words[at + Slot.SIZE])

    def _bind(self, entry: int, sample: Any) -> int:
        """Give a batch its slot, or decide that it takes the general path."""
        number = self._layout_number(entry, sample)
        need = self._writer(number).layout.places(self._words[entry + Entry.NUM_ROWS])[1] if number >= 0 else 0
        place = self._try_to_bind(entry, number, need, is_last_try=number < 0)
        if place != UNBOUND:
            return place
        deadline = time.perf_counter() + _SLOT_PATIENCE_S
        with self._record.waiting():
            while place == UNBOUND:
                time.sleep(0.001)
                place = self._try_to_bind(entry, number, need, is_last_try=not self._may_wait(entry, deadline))
        return place

    def _try_to_bind(self, entry: int, number: int, need: int, *, is_last_try: bool) -> int:
        """The place of a batch: the one it has, a slot, or, where that was the last try, the general path."""
        with self._lock:
            place = self._words[entry + Entry.PLACE]
            if place == UNBOUND:
                slot = self._board.bind_slot(need) if number >= 0 and self._may_bind(entry, need) else GENERAL
                if slot >= 0 or is_last_try:
                    place = join_place(number, slot) if slot >= 0 else GENERAL
                    self._ledger.bind(entry, place)
        return place

    def _may_bind(self, entry: int, need: int) -> bool:
        """Whether a batch may have a slot before those before it have theirs: where there is one for each of them."""
        if self._words[Head.PLENTY]:
            return True
        return self._board.num_free_slots(need) > self._board.num_unbound_before(self._words[entry + Entry.SEQ])

    def _may_wait(self, entry: int, deadline: float) -> bool:
        """Whether a slot is worth waiting for: the loop is soon done with one, and the other way takes more room.

        A batch that is not the next gets one when those before it have been delivered. Else the deadline holds.
        """
        words = self._words
        if words[Head.STOP] or words[Head.OPEN] or words[entry + Entry.RUN] != words[Head.RUN]:
            return False
        is_hurried = bool(words[Head.LOSSES] or words[Head.REISSUED])
        is_later = words[entry + Entry.SEQ] > words[Head.NEXT] and not is_hurried
        return is_later or time.perf_counter() < deadline

    def _layout_number(self, entry: int, sample: Any) -> int:
        """The number of the sample's layout; a new one is proposed to the training process. -1: none."""
        known = self._words[Head.NUM_LAYOUTS]
        for number in range(known - 1, -1, -1):
            if self._writer(number).fits(sample):
                return number
        layout = Layout.learn(sample)
        if layout is None or layout in self._refused:
            return -1
        block, _ = dump(layout, self._region, self._arena)
        self._propose(self._words[entry + Entry.SEQ], self._words[entry + Entry.NUM_ROWS], block)
        is_large = layout.row_bytes * self._words[entry + Entry.NUM_ROWS] >= self._large_bytes
        is_worth_it = is_large or known == 0  # before the first one, the training process may still start workers
        deadline = time.perf_counter() + (_SLOT_PATIENCE_S if is_worth_it else _LAYOUT_PATIENCE_S)
        while time.perf_counter() < deadline and not self._words[Head.STOP]:
            for number in range(known, self._words[Head.NUM_LAYOUTS]):
                if self._writer(number).layout == layout:
                    return number
            if self._words[entry + Entry.PLACE] != UNBOUND:
                return -1
            time.sleep(0.0002)
        self._refused = [*self._refused[-7:], layout]
        return -1


def append_placed(
    done: list[Placed], answer: Answer, row: int, content: list[Any], *, count: int | None = None
) -> None:
    """Add rows to what was done, joined with the rows before where they are of the same kind."""
    rows = len(content) if count is None else count
    if done and done[-1][0] is answer and done[-1][1] + done[-1][2] == row:
        _, first, before, held = done[-1]
        if answer is Answer.ROWS:
            held = [a + b for a, b in zip(held, content, strict=True)]
        else:
            held = held + content
        done[-1] = (answer, first, before + rows, held)
    else:
        done.append((answer, row, rows, content))


# ---------------------------------------------------------------------------------------- one layout


class RowWriter:
    """Writes samples into rows of slots; one per process and layout."""

    def __init__(self, layout: Layout, slot_memory: Callable[[int], memoryview]) -> None:
        self.layout = layout
        self._slot_memory = slot_memory
        self._put_one = _single_writer(layout.root, count()) if not layout.has_objects else None
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
            views = self._views[slot] = self.layout.row_views(self._slot_memory(slot[0]), slot[1])
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
        for number, (leaf, column) in enumerate(zip(self.layout.leaves, columns, strict=True)):
            if leaf.kind == "object":
                texts.append(list(column))
                continue
            rows = views[number][row : row + len(samples)]
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


def _single_writer(node: Node | Leaf, numbers: Iterator[int]) -> _Putter:
    """A function that checks one sample and writes it into its row: the shortest way for a sample on its own.

    Workers that wait between samples find their caches cold, and a line of code costs several times its usual price.
    """
    if isinstance(node, Leaf):
        return _leaf_writer(node, next(numbers))
    putters = [_single_writer(child, numbers) for child in node.children]
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
    exact = _number_type(leaf)

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
    kinds = {_number_type(leaf)}

    def check_numbers(values: Sequence[Any]) -> None:
        if set(map(type, values)) != kinds:  # an int too large for 64 bits raises when it is written
            raise Misfit("number")

    return check_numbers


def _number_type(leaf: Leaf) -> type:
    return {"int": int, "float": float, "bool": bool}.get(leaf.kind) or np.dtype(leaf.numpy_dtype).type


def _tensor_check(leaf: Leaf) -> Callable[[Sequence[Any]], None]:
    torch = sys.modules["torch"]
    tensor, dtype, size = torch.Tensor, getattr(torch, leaf.torch_dtype.removeprefix("torch.")), torch.Size(leaf.shape)
    kinds, dtypes, dtype_of = {tensor}, {dtype}, attrgetter("dtype")

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
