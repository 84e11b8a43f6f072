"""Rows of a batch as runs of neighbours: (first, count)."""

from __future__ import annotations


def runs(rows: list[int]) -> list[tuple[int, int]]:
    """Neighbouring rows as (first, count)."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs


def split(row: int, count: int, suspect: int, span: int) -> list[tuple[int, int]]:
    """Cut lost rows so that those under suspicion stand apart: one sample alone, several in two halves."""
    begin, end = max(row, suspect), min(row + count, suspect + span)
    if begin >= end:
        return [(row, count)]
    middle = begin + (end - begin + 1) // 2
    pieces = [(row, begin), (begin, middle), (middle, end), (end, row + count)]
    return [(first, last - first) for first, last in pieces if last > first]
