"""Where the workers' time went, as a table whose shares add up to their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.model import PartRow, format_seconds, format_share, three_digits

from . import words

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_FROM = 0.0005  # of the tasks
_STILL_FROM = 0.005


def part_cells(rows: Sequence[PartRow], language: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row; what took next to nothing is left out."""
    for row in rows:
        if row.share < _SHOWN_FROM:
            continue
        is_still = row.still_share is not None and row.still_share >= _STILL_FROM
        yield (
            words.PART_KINDS[row.kind].filled(name=row.name).of(language),
            str(row.count),
            format_seconds(row.total_s),
            format_seconds(row.median_s),
            format_seconds(row.p95_s),
            format_share(row.still_share or 0.0) if is_still else "",
            format_share(row.share),
            "" if row.mb_per_s is None else three_digits(row.mb_per_s),
        )


def part_table(rows: Sequence[PartRow], language: str) -> RenderableType:
    """Return the table as something that rich prints."""
    from rich.table import Table
    from rich.text import Text as Cell

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(words.PART_COLUMNS):
        table.add_column(column.of(language), justify="right" if number else "left", no_wrap=number > 0)
    for cells in part_cells(rows, language):
        table.add_row(*(Cell(cell) for cell in cells))
    return table
