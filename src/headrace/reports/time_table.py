"""Where the time of a run went, as a table that adds up to the wall clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.model import Activity, TimeRow, format_seconds, format_share

from . import words

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_FROM = 0.0005  # of the wall clock


def activity_name(activity: Activity, language: str, *, phase: str = "") -> str:
    """Return what a training process was doing, in words."""
    return words.ACTIVITIES[activity].of(language).format(name=phase)


def time_rows(rows: Sequence[TimeRow], language: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each row, and of their sum; what took next to nothing is in the sum alone."""
    comma = "，" if language == "zh" else ", "
    for row in rows:
        if row.share < _SHOWN_FROM:
            continue
        name = activity_name(row.activity, language, phase=row.name)
        yield name, format_seconds(row.seconds), format_share(row.share), str(row.count) if row.count else ""
        if row.parts:
            parts = [
                words.WORKER_PARTS[part].filled(share=format_share(share)).of(language)
                for part, share in sorted(row.parts.items(), key=lambda one: -one[1])
                if share >= 0.005 and part in words.WORKER_PARTS
            ]
            if parts:
                yield words.WORKERS_MEANWHILE.filled(parts=comma.join(parts)).of(language), "", "", ""
    total = sum(row.seconds for row in rows)
    yield words.TIMES_SUM.of(language), format_seconds(total), format_share(sum(row.share for row in rows)), ""


def time_table(rows: Sequence[TimeRow], language: str) -> RenderableType:
    """Return the table as something that rich prints."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(words.TIME_COLUMNS):
        table.add_column(column.of(language), justify="right" if number else "left", no_wrap=number > 0)
    *shown, total = time_rows(rows, language)
    for cells in shown:
        table.add_row(*cells)
    table.add_section()
    table.add_row(*total, style="bold")
    return table
