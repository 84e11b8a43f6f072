"""Which rows of a batch change places, so that it holds the samples it is to be delivered with. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RowMoves:
    """How a batch gets from what its rows hold to what they are to hold."""

    up: tuple[tuple[int, int], ...]  # (row, from which row), in the order in which they may be moved one by one
    down: tuple[tuple[int, int], ...]  # likewise, but to a higher row: their samples have to be put aside first
    coming: tuple[tuple[int, int], ...]  # (row, position) of samples that lie in other batches
    leaving: tuple[int, ...]  # rows whose samples belong to later batches: as many as are coming


def find_moves(wanted: Sequence[int], held: Sequence[int]) -> RowMoves:
    """Compare the positions that a batch's rows are to hold with those that they do hold.

    >>> find_moves([0, 1, 3, 4], [0, 1, 9, 3])  # 9 lies where 2 was left out, and 4 in the next batch
    RowMoves(up=((2, 3),), down=(), coming=((3, 4),), leaving=(2,))
    """
    rows = {position: row for row, position in enumerate(held)}
    up, down, coming = [], [], []
    for row, position in enumerate(wanted):
        source = rows.pop(position, None)
        if source is None:
            coming.append((row, position))
        elif source > row:
            up.append((row, source))
        elif source < row:
            down.append((row, source))
    return RowMoves(tuple(up), tuple(down), tuple(coming), tuple(rows.values()))


def together(moves: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Moves of neighbours to neighbours as one: (row, from which row, how many)."""
    first = 0
    for end in range(1, len(moves) + 1):
        row, source = moves[first]
        if end < len(moves) and moves[end] == (row + end - first, source + end - first):
            continue
        yield row, source, end - first
        first = end
