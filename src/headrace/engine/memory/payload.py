"""The indices of a batch in shared memory, and beside them a word a row that says what became of it."""

from __future__ import annotations

import contextlib
import pickle
import struct
from typing import Any, NamedTuple

from .arena import Arena
from .board import Entry
from .messages import Work

_PAYLOAD = struct.Struct("<qq")  # 1 for a pickled list of indices, its bytes; else 0 and 8 bytes an index


class Packed(NamedTuple):
    """The indices of a batch as bytes, a multiple of 8 of them."""

    body: bytes
    size: int  # of what is in the body
    is_pickled: bool


def pack_indices(indices: Any, *, is_batched: bool) -> Packed:
    """Indices as bytes: 8 each where all are plain integers, else pickled."""
    if is_batched and type(indices) is list and [*map(type, indices)].count(int) == len(indices):
        with contextlib.suppress(struct.error):  # one does not fit 64 bits
            return Packed(struct.pack(f"<{len(indices)}q", *indices), 8 * len(indices), is_pickled=False)
    pickled = pickle.dumps(indices, 5)
    return Packed(pickled.ljust(-(-len(pickled) // 8) * 8, b"\0"), len(pickled), is_pickled=True)


def payload_bytes(num_rows: int, packed: Packed) -> int:
    """Size of a batch's payload block: indices, then a word per row."""
    return _PAYLOAD.size + len(packed.body) + 8 * num_rows


def write_payload(memory: memoryview, num_rows: int, packed: Packed) -> int:
    """Write the indices of a batch, and zeros for its rows; returns where those begin."""
    _PAYLOAD.pack_into(memory, 0, packed.is_pickled, packed.size)
    end = _PAYLOAD.size + len(packed.body)
    memory[_PAYLOAD.size : end] = packed.body
    memory[end : end + 8 * num_rows] = bytes(8 * num_rows)
    return end


def read_index(arena: Arena, payload: int, row: int, *, is_batched: bool) -> Any:
    """The index of one row of a batch; for the training process, which needs it only when something went wrong."""
    is_pickled, size = _PAYLOAD.unpack_from(arena.bytes, payload)
    at = payload + _PAYLOAD.size
    if not is_pickled:
        return int.from_bytes(arena.view(at + 8 * row, 8), "little", signed=True)
    indices = pickle.loads(arena.view(at, size))
    return indices[row] if is_batched else indices


class PayloadReader:
    """A worker's view of the payloads of batches."""

    def __init__(self, arena: Arena, words: memoryview, *, is_batched: bool) -> None:
        self._arena, self._words, self._is_batched = arena, words, is_batched
        self._all_words = arena.bytes.cast("q")
        self._last: tuple[int, int, Any] = (-1, -1, None)  # (batch, block, its unpickled indices)

    def indices(self, work: Work, entry: int) -> Any:
        """The indices of a chunk's rows (or, without batching, the one index)."""
        payload = self._words[entry + Entry.PAYLOAD]
        at = payload + _PAYLOAD.size
        if not self._all_words[payload >> 3]:
            first = (at >> 3) + work.row
            return self._all_words[first : first + work.rows].tolist()
        size = self._all_words[(payload >> 3) + 1]
        if self._last[:2] != (work.seq, payload):
            self._last = (work.seq, payload, pickle.loads(self._arena.view(at, size)))
        indices = self._last[2]
        return indices[work.row : work.row + work.rows] if self._is_batched else indices

    def one_index(self, row: int, entry: int) -> int | None:
        """The index of one row, where indices are plain integers."""
        at = self._words[entry + Entry.PAYLOAD] >> 3
        return None if self._all_words[at] else self._all_words[at + _PAYLOAD.size // 8 + row]
