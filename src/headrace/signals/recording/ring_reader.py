"""Reading a lane while it is written: what is new, and exactly how much came too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .area import LaneMemory, Word
from .records import MOST_LAPS, record_dtype

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Numbers that threads may have taken without having filled their records yet: a block of kept events, and single ones.
_MOST_IN_FLIGHT = 128


class RingReader:
    """Takes new records out of a lane. Every record is delivered once or counted as lost, never both."""

    def __init__(self, lane: LaneMemory) -> None:
        import numpy as np

        self._words, self._size = lane.words, lane.num_records
        self._bits = lane.num_records.bit_length() - 1
        self._in_flight = min(_MOST_IN_FLIGHT, self._size // 2)
        self._ring = np.frombuffer(lane.ring, record_dtype())
        self._tail = 0
        self._nothing = np.empty(0, record_dtype())
        self._missing: list[int] = []  # begun, but not whole at the last look
        self.num_read = 0
        self.num_lost = 0

    @property
    def fill(self) -> float:
        """How full the ring is of records that were not read yet, from 0 to 1."""
        return min(1.0, max(0, self._words[Word.CURSOR] - self._tail) / self._size)

    def read(self, *, is_last: bool = False) -> npt.NDArray[np.void]:
        """The records that came since the last call. `is_last`: nobody writes any more, and nobody will look again."""
        import numpy as np

        if self._words[Word.CURSOR] == self._tail and not self._missing and not is_last:
            return self._nothing
        # two threads may set the cursor in the wrong order, so it may lag behind by those in flight
        end = max(self._tail, self._words[Word.CURSOR])
        if is_last:
            end = self._end_of_written(end)
        first = max(self._tail, end - self._size)
        self.num_lost += first - self._tail  # the ring came round
        numbers = np.concatenate([np.array(self._missing, np.int64), np.arange(first, end)])
        block: npt.NDArray[np.void] = self._ring[numbers & (self._size - 1)]
        now = self._words[Word.CURSOR]
        # while somebody writes, what lies where he is about to write may be half old and half new
        is_safe = numbers >= now - self._size + (self._in_flight if now > end else 0)
        is_whole = is_safe & (block["lap"] == (numbers >> self._bits) % MOST_LAPS + 1)
        if is_whole.all():
            self._missing = []
        else:
            was_missing = np.arange(len(numbers)) < len(self._missing)
            is_late = ~is_whole & is_safe & ~was_missing
            self._missing = [] if is_last else numbers[is_late].tolist()
            # what is missing for the second time will never come: its thread was interrupted in the middle
            self.num_lost += int((~is_whole).sum()) - len(self._missing)
            block = block[is_whole]
        self._tail = end
        self.num_read += len(block)
        block["lap"] = 0
        return block

    def _end_of_written(self, cursor: int) -> int:
        end = cursor
        for number in range(cursor, cursor + self._in_flight):
            if self._ring["lap"][number & (self._size - 1)] == (number >> self._bits) % MOST_LAPS + 1:
                end = number + 1
        return end


def read_names(lane: LaneMemory, known_bytes: int) -> tuple[list[str], int]:
    """The names that a lane got since it had `known_bytes` of them, and how many bytes they are now."""
    end = lane.words[Word.NAME_BYTES]
    data = bytes(lane.names[known_bytes:end])
    names, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "little")
        names.append(data[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return names, max(known_bytes, end)
