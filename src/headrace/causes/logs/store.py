"""What was read of the steps of one log, in memory that does not grow with the log."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_BLOCK = 4096  # consecutive records; patterns are looked for within blocks
MOST_RECORDS = 64 * _BLOCK

COLUMNS = ("line", "step", "epoch", "at_s", "took_s", "wait_s", "elapsed_s", "rate_s")


class StepStore:
    """Records of steps in columns. Past `MOST_RECORDS` every other block is dropped: evenly spread windows stay."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_bar = False
        self.is_slow_only = False
        self.unit_known = True
        self.is_averaged = False  # by the logger, over its last steps
        self.resolution_s = 1.0  # of the time stamps, or of a bar's clock
        self.of = 0  # steps an epoch, if the lines tell
        self.num_seen = 0
        self.titles: set[str] = set()
        self._rows = array("d")  # one record behind the other
        self._stride = 1

    def __len__(self) -> int:
        return len(self._rows) // len(COLUMNS)

    def __repr__(self) -> str:
        return f"StepStore({self.name!r}, {len(self)} of {self.num_seen} records)"

    def add(self, *values: float) -> None:
        """Append one record, its values in the order of `COLUMNS`."""
        block = self.num_seen // _BLOCK
        self.num_seen += 1
        if block % self._stride:
            return
        self._rows.extend(values)
        if len(self._rows) >= MOST_RECORDS * len(COLUMNS):
            self._thin()

    def move_lines(self, offset: float) -> None:
        """Count lines from another number on."""
        for index in range(0, len(self._rows), len(COLUMNS)):
            self._rows[index] += offset

    def column(self, name: str) -> array[float]:
        """Return one column."""
        return self._rows[COLUMNS.index(name) :: len(COLUMNS)]

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of each stretch of records that follow each other in the log."""
        if self._stride == 1:
            yield 0, len(self)
            return
        for first in range(0, len(self), _BLOCK):
            yield first, min(first + _BLOCK, len(self))

    def _thin(self) -> None:
        block = _BLOCK * len(COLUMNS)
        kept = array("d")
        for first in range(0, len(self._rows), 2 * block):
            kept.extend(self._rows[first : first + block])
        self._rows = kept
        self._stride *= 2
