"""The batches in flight: their indices, and what became of their rows. The one writer of entries and of row words.

Workers and the training process call it alike. Where both may write, it holds the board's lock; what is said to be
called under the lock expects it held. Each row has a word: `QUIET`, `TOLD`, a block, or minus its tries while it is not
done. Whatever a dead worker left half counted is counted anew from those.
"""

import contextlib
import pickle
import struct
from array import array
from collections.abc import Sequence
from typing import Any

from .arena import Arena
from .blocks import Region
from .board import GENERAL, QUIET, TOLD, UNBOUND, Board, BoardLock, Entry, Head
from .messages import Work

_MOST_MARKS = 4096
# A payload is the block of a batch's indices and of its rows' words. It opens with these two words: whether the indices
# are pickled (else they are 8 bytes each), and their bytes.
_PAYLOAD = struct.Struct("<qq")


class Ledger:
    """The entries of batches in flight, and the words of their rows."""

    def __init__(self, arena: Arena, lock: BoardLock) -> None:
        self._words, self._all_words, self._lock = Board(arena.bytes).words, arena.bytes.cast("q"), lock
        self._marks = {mark: memoryview(array("q", [mark]) * _MOST_MARKS) for mark in (QUIET, TOLD)}

    # ------------------------------------------------------------------------------------ a batch begins and ends

    def open(
        self,
        seq: int,
        *,
        run: int,
        num_rows: int,
        first_position: int,
        base_seed: int,
        payload: int,
        row_words: int,
        place: int,
        done: Sequence[int] = (),
    ) -> None:
        """Enter a batch before its chunks are sent; `done` are rows that need no worker any more."""
        w, at = self._words, Board.entry_at(seq)
        # all but its number, in the order of `Entry`
        told = (run, num_rows, first_position, base_seed, payload, place, 0, len(done), 0, 0, row_words, 0)
        w[at + Entry.RUN : at + Entry.CLOSED + 1] = memoryview(array("q", told))
        w[at + Entry.SEQ] = seq
        for row in done:
            self._all_words[row_words + row] = TOLD

    def cancel(self, seq: int) -> None:
        """A batch is given up: workers drop what they have not begun of it."""
        self._words[Board.entry_at(seq) + Entry.RUN] = -1

    def forget_rows(self, seq: int, rows: int) -> None:
        """A batch is fetched anew in one piece: what its chunks left does not count."""
        at = self._words[Board.entry_at(seq) + Entry.ROW_WORDS]
        self._all_words[at : at + rows] = memoryview(bytes(8 * rows)).cast("q")

    # ------------------------------------------------------------------------------------ where its rows go

    def place_of(self, seq: int) -> int:
        """UNBOUND, GENERAL, or a slot and its layout."""
        return self._words[Board.entry_at(seq) + Entry.PLACE]

    def bind(self, entry: int, place: int) -> None:
        """A batch has its place; under the lock."""
        self._words[entry + Entry.PLACE] = place

    def take_general_path(self, seq: int) -> bool:
        """Let a batch that has no slot go without one; False where it has one, or the lock could not be had."""
        if self.place_of(seq) != UNBOUND:
            return False
        with self._lock.within(0.1) as is_held:
            if is_held and self.place_of(seq) == UNBOUND:
                self.bind(Board.entry_at(seq), GENERAL)
        return is_held

    def close(self, entry: int) -> None:
        """A batch is collated, and takes no more room."""
        self._words[entry + Entry.CLOSED] = 1

    # ------------------------------------------------------------------------------------ a worker is done with rows

    def count_done(
        self, entry: int, row: int, rows: int, *, tries: int, worker: int, quietly: bool, is_void: bool
    ) -> int:
        """Count rows as done, of which there is nothing to say (`quietly`), an answer, or no sample (`is_void`).

        Returns how many quiet rows this worker tells of now, because it counted the batch's last one; -1: the rows were
        given to another worker meanwhile, and what this one did counts for nothing.
        """
        words = self._words
        at = words[entry + Entry.ROW_WORDS] + row
        with self._lock:
            if is_void:
                words[entry + Entry.FAILED] = 1
            if not rows:
                return 0
            if words[Head.LOSSES] and self._all_words[at] != -tries:
                return -1
            if rows == 1:
                self._all_words[at] = QUIET if quietly else TOLD
            else:
                self._mark(at, rows, QUIET if quietly else TOLD)
            done = words[entry + Entry.ROWS_DONE] + rows
            words[entry + Entry.ROWS_DONE] = done
            if quietly:
                words[entry + Entry.QUIET_ROWS] += rows
            if done < words[entry + Entry.NUM_ROWS]:
                return 0
            words[entry + Entry.LAST] = worker + 1
            return words[entry + Entry.QUIET_ROWS]

    def count_shared(self, entry: int, row: int, rows: int, block: int, *, tries: int, worker: int) -> bool | None:
        """Count rows whose samples lie in a block. Whether they are the last, and nothing failed; None: not counted."""
        words = self._words
        at = words[entry + Entry.ROW_WORDS] + row
        with self._lock:
            if words[Head.LOSSES] and self._all_words[at] != -tries:
                return None  # another worker has them meanwhile
            if rows > 1:
                self._mark(at, rows, TOLD)
            self._all_words[at] = block
            words[entry + Entry.ROWS_DONE] += rows
            if words[entry + Entry.ROWS_DONE] != words[entry + Entry.NUM_ROWS] or words[entry + Entry.FAILED]:
                return False
            words[entry + Entry.LAST] = worker + 1
            return True

    def _mark(self, at: int, rows: int, mark: int) -> None:
        for first in range(at, at + rows, _MOST_MARKS):
            count = min(_MOST_MARKS, at + rows - first)
            self._all_words[first : first + count] = self._marks[mark][:count]

    # ------------------------------------------------------------------------------------ rows are given out again

    def row_words(self, seq: int) -> list[int]:
        entry = Board.entry_at(seq)
        table = self._words[entry + Entry.ROW_WORDS]
        return self._all_words[table : table + self._words[entry + Entry.NUM_ROWS]].tolist()

    def give_out(self, seq: int, row: int, rows: int, *, tries: int) -> None:
        """Rows go to a worker once more: whoever had them before does not count any more."""
        table = self._words[Board.entry_at(seq) + Entry.ROW_WORDS]
        for at in range(table + row, table + row + rows):
            self._all_words[at] = -tries

    def settle(self, seq: int, row: int, rows: int) -> bool:
        """Take rows out of the hands of all workers: nobody will bring them. Whether none is left; under the lock."""
        entry = Board.entry_at(seq)
        self._mark(self._words[entry + Entry.ROW_WORDS] + row, rows, TOLD)
        self._words[entry + Entry.ROWS_DONE] += rows
        self._words[entry + Entry.FAILED] = 1
        return bool(self._words[entry + Entry.ROWS_DONE] == self._words[entry + Entry.NUM_ROWS])

    def num_quiet(self, seq: int) -> int:
        """Rows that are done with no answer of their own."""
        return self._words[Board.entry_at(seq) + Entry.QUIET_ROWS]

    def recount(self, seq: int) -> tuple[int, int, int]:
        """Count a batch's rows from their words: a dead worker may have left counters half changed; under the lock.

        Returns how many are done; of them, with no answer of their own; and the worker that finished the last one and
        should have told so, or -1.
        """
        entry, state = Board.entry_at(seq), self.row_words(seq)
        done, quiet = sum(word > 0 for word in state), state.count(QUIET)
        last = self._words[entry + Entry.LAST] - 1
        self._words[entry + Entry.ROWS_DONE] = done
        self._words[entry + Entry.QUIET_ROWS] = quiet
        if done < len(state):
            self._words[entry + Entry.LAST] = 0
        return done, quiet, last

    def reopen(self, seq: int, rows: int, *, is_quiet_told: bool) -> tuple[int, int] | None:
        """Rows that were counted as failed will be given out once more; under the lock.

        Returns (worker, rows): the quiet rows that this worker has yet to tell of, because it finished the batch: from
        now on they count as told of, so that nobody does so twice.
        """
        entry, owed = Board.entry_at(seq), None
        last, quiet = self._words[entry + Entry.LAST], self._words[entry + Entry.QUIET_ROWS]
        if last or is_quiet_told:
            if quiet and not is_quiet_told:
                owed = (last - 1, quiet)
            for at, word in enumerate(self.row_words(seq), self._words[entry + Entry.ROW_WORDS]):
                if word == QUIET:
                    self._all_words[at] = TOLD
            self._words[entry + Entry.QUIET_ROWS] = 0
        self._words[entry + Entry.ROWS_DONE] -= rows
        self._words[entry + Entry.LAST] = 0
        self._words[entry + Entry.FAILED] = 0
        return owed

    def put(self, seq: int, row: int, word: int) -> bool:
        """A row that failed has a sample after all: `TOLD`, or a block. Whether no row is left; under the lock."""
        entry = Board.entry_at(seq)
        self._all_words[self._words[entry + Entry.ROW_WORDS] + row] = word
        self._words[entry + Entry.FAILED] = 0
        return bool(self._words[entry + Entry.ROWS_DONE] == self._words[entry + Entry.NUM_ROWS])

    def fail(self, seq: int) -> None:
        """A batch fails as a whole: nobody collates it."""
        self._words[Board.entry_at(seq) + Entry.FAILED] = 1


# ---------------------------------------------------------------------------------------- the indices of a batch


def write_indices(arena: Arena, region: Region, indices: Any, num_rows: int, *, is_batched: bool) -> tuple[int, int]:
    """Put a batch's indices into a block, and zeros for its rows; returns it, and where the words of the rows begin."""
    body, is_pickled = b"", True
    if is_batched and type(indices) is list and [*map(type, indices)].count(int) == len(indices):
        with contextlib.suppress(struct.error):  # one does not fit 64 bits
            body, is_pickled = struct.pack(f"<{len(indices)}q", *indices), False
    if is_pickled:
        body = pickle.dumps(indices, 5)
    rows_at = _PAYLOAD.size + -(-len(body) // 8) * 8
    block = region.take(rows_at + 8 * num_rows)
    _PAYLOAD.pack_into(arena.bytes, block, is_pickled, len(body))
    arena.bytes[block + _PAYLOAD.size : block + _PAYLOAD.size + len(body)] = body
    arena.bytes[block + rows_at : block + rows_at + 8 * num_rows] = bytes(8 * num_rows)
    return block, (block + rows_at) >> 3


def read_index(arena: Arena, payload: int, row: int, *, is_batched: bool) -> Any:
    """The index of one row of a batch; for the training process, which needs it only when something went wrong."""
    is_pickled, size = _PAYLOAD.unpack_from(arena.bytes, payload)
    at = payload + _PAYLOAD.size
    if not is_pickled:
        return int.from_bytes(arena.view(at + 8 * row, 8), "little", signed=True)
    indices = pickle.loads(arena.view(at, size))
    return indices[row] if is_batched else indices


class IndexReader:
    """A worker's view of the indices of batches."""

    def __init__(self, arena: Arena, words: memoryview, *, is_batched: bool) -> None:
        self._arena, self._words, self._is_batched = arena, words, is_batched
        self._all_words = arena.bytes.cast("q")
        self._last: tuple[int, int, Any] = (-1, -1, None)  # (batch, block, its unpickled indices)

    def of(self, work: Work, entry: int) -> Any:
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

    def one(self, row: int, entry: int) -> int | None:
        """The index of one row, where indices are plain integers."""
        at = self._words[entry + Entry.PAYLOAD] >> 3
        return None if self._all_words[at] else self._all_words[at + _PAYLOAD.size // 8 + row]
