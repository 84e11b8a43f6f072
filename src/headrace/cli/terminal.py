"""How a command answers: in which language, what goes to stdout and what to stderr, in colour or not, its exit code.

rich is loaded when something is drawn with it: `--help` and a wrapped script need none.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from headrace.model import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text as Line

    Part: TypeAlias = RenderableType | Text  # of what is printed
    Cells: TypeAlias = Sequence[Line | Text | str]  # of a row

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_COULD_NOT_RUN = 2
EXIT_OUR_BUG = 3
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # what a shell shows for a program that `head` cut off
EXIT_TERMINATED = 143  # and for one that was told to end

_LINE_END = re.compile(r"(?: |\x1b\[[0-9;]*m)+$", re.MULTILINE)
_NARROWEST = 100  # columns when nobody tells: a pipe or a file should not wrap a table
_LINE_EVERY_S = 60.0  # a log file wants to know that we live, not each step


_language = "en"


def speak(language: str) -> str:
    """Say everything from here on in a language: `--lang` is for all that a command prints."""
    global _language
    _language = language
    return language


def spoken() -> str:
    """Return the language, for what other rooms put into words."""
    return _language


def say(text: Text | str, **facts: object) -> str:
    """Return a sentence in the language that is spoken, its blanks filled in; a text without languages as it is."""
    return text if isinstance(text, str) else (text.filled(**facts) if facts else text).of(_language)


def line(text: Text | str, style: str = "") -> Line:
    """Return a line that `Terminal` prints in a style; brackets in it are brackets."""
    from rich.text import Text as Line

    return Line(say(text), style=style)


def table_of(
    head: Text | str,
    rows: Iterable[Cells],
    *,
    left: tuple[int, ...] = (0,),
    folded: Mapping[int, int | None] | None = None,
) -> Table:
    """Return a table without lines; a comma separates its titles. Columns stand to the right but for `left`.

    Those that are `folded`, at so many cells, may take several lines; where none is named, a last one to the left may.
    """
    from rich.table import Table
    from rich.text import Text as Line

    table, titles = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold"), say(head).split(",")
    last = len(titles) - 1
    widths = folded if folded is not None else {last: None} if last in left else {}
    for place, title in enumerate(titles):
        side: Any = "left" if place in left or place in widths else "right"
        fold: Any = {"overflow": "fold", "max_width": widths[place]} if place in widths else {"no_wrap": True}
        table.add_column(title, justify=side, **fold)
    for row in rows:
        table.add_row(*(each if isinstance(each, Line) else line(each) for each in row))
    return table


def printable(text: str, *, keep: str = "\n\t") -> str:
    r"""Return a text without the characters that steer a terminal: a message may hold what a broken file held.

    >>> printable("a\x1b[31mb\tc\n\x00"), printable("扫描")
    ('a\\x1b[31mb\tc\n\\x00', '扫描')
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Terminal:
    """The two streams of a command: the result on stdout, everything else on stderr."""

    def __init__(self, *, color: str = "auto", verbosity: int = 0) -> None:
        self._color = color
        self.verbosity = verbosity  # below 0: only the result is wanted
        self._last_line_at: float | None = None

    def result(self, what: RenderableType) -> None:
        self._print(what, sys.stdout)

    def parts(self, parts: Iterable[Part]) -> None:
        """Print the parts of a result: tables as wide as the terminal allows, lines as they are.

        A narrow terminal may wrap a line, we do not: it may be a command to copy.
        """
        from rich.text import Text as Line

        for part in parts:
            if isinstance(part, (str, Text)):
                self.document(part)
            elif isinstance(part, Line):
                self._console(sys.stdout).print(part, soft_wrap=True)
            else:
                self.result(part)

    def document(self, text: Text | str) -> None:
        """Print the result as it is: no colour, no wrapping."""
        sys.stdout.write(say(text) + "\n")

    def json(self, document: dict[str, Any]) -> None:
        self.document(json.dumps(document, ensure_ascii=False, indent=2))

    def aside(self, what: RenderableType) -> None:
        """Print on stderr what belongs beside a result that is not ours."""
        if isinstance(what, str):
            print(what, file=sys.stderr, flush=True)  # a path may be longer than a line
        else:
            self._print(what, sys.stderr)

    def warn(self, text: Text | str) -> None:
        """Say on stderr, unless only the result is wanted, what whoever reads the result should know."""
        if self.verbosity >= 0:
            print(f"headrace: {say(text)}", file=sys.stderr, flush=True)

    @contextmanager
    def live(self) -> Iterator[Callable[[RenderableType], None]]:
        """Give a function that shows something in the place of what it showed before; nothing of it stays."""
        from rich.live import Live

        with Live(console=self._console(sys.stdout), transient=True, auto_refresh=False, screen=False) as screen:
            yield lambda what: screen.update(what, refresh=True)

    @contextmanager
    def progress(self, text: Text | str) -> Iterator[None]:
        """Say on stderr what is going on while the block runs.

        A terminal shows it for as long as it lasts; a log gets the first one and then a line a minute, or all of
        them with `-v`.
        """
        if self.verbosity < 0:
            yield
        elif self.verbosity == 0 and sys.stderr.isatty():
            with self._console(sys.stderr).status(line(text)):
                yield
        else:
            now = time.monotonic()
            if self.verbosity > 0 or self._last_line_at is None or now - self._last_line_at >= _LINE_EVERY_S:
                print(f"headrace: {say(text)}", file=sys.stderr, flush=True)
                self._last_line_at = now
            yield

    def _print(self, what: RenderableType, stream: TextIO) -> None:
        """Print it; in a file, without the spaces that rich fills lines up with."""
        console = self._console(stream)
        if stream.isatty():
            console.print(what)
        else:
            with console.capture() as captured:
                console.print(what)
            stream.write(_LINE_END.sub(lambda end: end[0].replace(" ", ""), captured.get()))

    def _console(self, stream: TextIO) -> Console:
        from rich.console import Console  # not needed for `--help`

        return Console(
            file=stream,
            force_terminal=True if self._color == "always" else None,
            no_color={"always": False, "never": True}.get(self._color),  # None: rich looks at NO_COLOR
            color_system="standard" if self._color == "always" else "auto",
            width=None if stream.isatty() else _NARROWEST,
            highlight=False,
            emoji=False,
            markup=False,  # a path or a name of the user's may hold brackets
        )
