"""What a command prints where nobody looks: a pipe, a file."""

import re

import pytest
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.cli.terminal import Terminal

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _padded() -> Padding:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("what")
    table.add_column("how long", justify="right")
    table.add_row("waiting", "12.5 s")
    table.add_row(Text("forward ", style="bold"), "")
    table.add_section()
    table.add_row("together", "12.5 s", style="bold")
    return Padding(table, (1, 0, 0, 2))


@pytest.mark.parametrize("color", ["never", "always"])
def test_lines_in_a_file_end_where_their_words_do(color: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(color=color)
    terminal.result(_padded())
    terminal.aside(_padded())
    said = capsys.readouterr()
    assert ("\x1b[" in said.out) == (color == "always")
    for text in (said.out, said.err):
        plain = _COLOUR.sub("", text)
        assert plain == "\n  what      how long\n  waiting     12.5 s\n  forward\n  together    12.5 s\n"
