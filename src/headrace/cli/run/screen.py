"""The live screen of `headrace run --tui`: the last seconds, where their time went, and what the script wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model import Activity, format_share

from .messages import RunMessages

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.panel import Panel

    from headrace.launch import LiveStatus

_TAIL_BYTES = 16_384
_BAR_CELLS = 30
_MOST_ROWS = 10


def screen_of(
    line: str, status: LiveStatus | None, logs: Sequence[Path], words: RunMessages, language: str, *, rows: int
) -> RenderableType:
    """Return the screen as something that rich draws."""
    from rich.layout import Layout
    from rich.panel import Panel
    from rich.text import Text

    shares = sorted((status.shares if status else {}).items(), key=lambda one: -one[1])[:_MOST_ROWS]
    layout = Layout()
    top = [Layout(Panel(Text(line), title="headrace run"), size=3)]
    room = rows - 3
    if shares and room >= len(shares) + 6:
        top.append(Layout(Panel(_shares(shares, language), title=words.now), size=len(shares) + 2))
        room -= len(shares) + 2
    written = [(path, lines) for path in logs if (lines := _tail(path))]
    layout.split_column(*top, *(Layout(one) for one in _outputs(written, room, words)))
    return layout


def _shares(shares: Sequence[tuple[str, float]], language: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from headrace.reports import activity_name

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, share in shares:
        bar = "█" * round(share * _BAR_CELLS)
        table.add_row(Text(activity_name(Activity(name), language)), format_share(share), bar)
    return table


def _outputs(written: Sequence[tuple[Path, list[str]]], room: int, words: RunMessages) -> list[Panel]:
    """Return a panel for each stream that has been written to, its last lines in it."""
    from rich.panel import Panel
    from rich.text import Text

    if not written:
        return [Panel(Text(words.nothing_written, style="dim"), title=words.output)]
    each = max(1, room // len(written) - 2)
    return [
        Panel(Text("\n".join(lines[-each:]), no_wrap=True, overflow="ellipsis"), title=f"{words.output}: {path.name}")
        for path, lines in written
    ]


def _tail(path: Path) -> list[str]:
    """Return the last lines of a file; of a line that was drawn again and again, as bars are, its last state."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line.expandtabs() for line in lines if line.strip()]


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines that a script wrote."""
    return _tail(path)[-count:]
