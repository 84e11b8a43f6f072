"""The samples of an epoch, batch by batch, without those that are left out. Pure: no workers, no clocks.

A sampler gives batches of keys. A sample that is left out gives its place to the next one, and so on to the end of the
epoch: every batch keeps the size that the sampler gave it. The places that are missing at the end are filled with the
first samples of the same epoch, in order, so that the number of batches stays as it was on every rank.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.errors import TooManyBad

# what fills the end of an epoch; more samples than this are left out only where a limit was set that high
_MOST_KEPT = 4096


@dataclass(frozen=True)
class PlannedBatch:
    """A batch of keys, and where each stands in the epoch's order."""

    keys: Sequence[Any]
    positions: Sequence[int]
    num_filled: int = 0  # of them, at the end: samples that come for a second time

    @property
    def first_position(self) -> int:
        return self.positions[0] if self.positions else 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(row, shift): from that row on, samples stand `shift` places further in the order than their rows say."""
        found, shift = [], 0
        for row, position in enumerate(self.positions):
            if position - self.first_position - row != shift:
                shift = position - self.first_position - row
                found.append((row, shift))
        return found


class EpochOrder:
    """Plans the batches of one epoch.

    >>> bad = {2}
    >>> order = EpochOrder(iter([[0, 1, 2, 3], [4, 5]]), bad.__contains__)
    >>> [list(batch.keys) for batch in order]
    [[0, 1, 3, 4], [5, 0]]
    """

    def __init__(self, batches: Iterator[Iterable[Any]], is_out: Callable[[Any], bool]) -> None:
        self._batches, self._is_out = batches, is_out
        self._rows: deque[tuple[int, Any]] = deque()  # positions and keys that wait for a batch
        self._sizes: deque[int] = deque()  # of batches that the sampler gave and that are not planned yet
        self._first: list[Any] = []
        self._num_filled = 0
        self._is_exhausted = False
        self.given_out = 0  # samples that the sampler gave
        self.left_out = 0  # of them, those that are in no batch

    def __iter__(self) -> Iterator[PlannedBatch]:
        return self

    def __next__(self) -> PlannedBatch:
        if not self._sizes and not self._pull():
            raise StopIteration
        size = self._sizes.popleft()
        real = list(islice(iter(self._next_sample, None), size))
        rows = real + self._fill(size - len(real))
        positions, keys = [position for position, _ in rows], [key for _, key in rows]
        if size and not keys:
            raise TooManyBad(
                "every sample of the epoch is left out",
                samples=self.left_out,
                next_step="look at a traceback in loader.quarantine; is the path right, is the disk mounted?",
            )
        return PlannedBatch(keys, positions, len(rows) - len(real))

    def _next_sample(self) -> tuple[int, Any] | None:
        """The position and key of the next sample that is not left out; None at the end of the epoch."""
        while self._rows or self._pull():
            if not self._rows:
                continue  # the sampler gave an empty batch
            position, key = self._rows.popleft()
            if not self._is_out(key):
                return position, key
            self.left_out += 1
        return None

    def _pull(self) -> bool:
        batch = None if self._is_exhausted else next(self._batches, None)
        if batch is None:
            self._is_exhausted = True
            return False
        keys = list(batch)
        self._sizes.append(len(keys))
        self._rows.extend(enumerate(keys, self.given_out))
        self.given_out += len(keys)
        self._first += keys[: _MOST_KEPT - len(self._first)]
        return True

    def _fill(self, count: int) -> list[tuple[int, Any]]:
        """Positions and keys of the next samples that fill the end: none where all of the first are bad."""
        good = [key for key in self._first if not self._is_out(key)] if count else []
        begin = self._num_filled
        self._num_filled += count if good else 0
        return [(self.given_out + i, good[i % len(good)]) for i in range(begin, begin + count)] if good else []

    def give_back(self, batches: Sequence[PlannedBatch]) -> None:
        """Take planned batches back, the last ones that were planned, in their order: they will be planned anew."""
        for batch in reversed(batches):
            num_real = len(batch.keys) - batch.num_filled
            self._num_filled -= batch.num_filled
            self._rows.extendleft(reversed([*zip(batch.positions[:num_real], batch.keys[:num_real], strict=True)]))
            self._sizes.appendleft(len(batch.keys))
