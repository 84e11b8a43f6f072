"""What goes to stdout and what to stderr, with or without colour."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

_NARROWEST = 100  # columns when nobody tells: a pipe or a file should not wrap a table
_LINE_EVERY_S = 60.0  # a log file wants to know that we live, not each step


class Terminal:
    """The two streams of a command: the result on stdout, everything else on stderr."""

    def __init__(self, *, color: str = "auto", verbosity: int = 0) -> None:
        self._color = color
        self._verbosity = verbosity
        self._last_line_at: float | None = None

    def __repr__(self) -> str:
        return f"Terminal(color={self._color!r}, verbosity={self._verbosity})"

    def result(self, what: "RenderableType") -> None:
        """Print a part of the result."""
        self._print(what, sys.stdout)

    def line(self, text: "Text") -> None:
        """Print a line of the result; a narrow terminal may wrap it, we do not: it may be a command to copy."""
        self._console(sys.stdout).print(text, soft_wrap=True)

    def parts(self, parts: "Iterable[RenderableType]") -> None:
        """Print the parts of a result: text line by line, tables as wide as the terminal allows."""
        from rich.text import Text

        for part in parts:
            if isinstance(part, str):
                self.document(part)
            elif isinstance(part, Text):
                self.line(part)
            else:
                self.result(part)

    def document(self, text: str) -> None:
        """Print the result as it is: no colour, no wrapping."""
        sys.stdout.write(text + "\n")

    @property
    def is_quiet(self) -> bool:
        """Whether only the result is wanted."""
        return self._verbosity < 0

    def aside(self, what: "RenderableType") -> None:
        """Print on stderr what belongs beside a result that is not ours."""
        if isinstance(what, str):
            print(what, file=sys.stderr, flush=True)  # a path may be longer than a line
        else:
            self._print(what, sys.stderr)

    def console_aside(self) -> "Console":
        """Return what draws on stderr."""
        return self._console(sys.stderr)

    def warn(self, text: str) -> None:
        """Say on stderr, unless only the result is wanted, what whoever reads the result should know."""
        if self._verbosity >= 0:
            print(f"headrace: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def live(self) -> "Iterator[Callable[[RenderableType], None]]":
        """Give a function that shows something in the place of what it showed before; nothing of it stays."""
        from rich.live import Live

        with Live(console=self._console(sys.stdout), transient=True, auto_refresh=False, screen=False) as screen:
            yield lambda what: screen.update(what, refresh=True)

    @contextmanager
    def progress(self, text: str) -> Iterator[None]:
        """Say on stderr what is going on while the block runs.

        A terminal shows it for as long as it lasts; a log gets the first one and then a line a minute, or all of
        them with `-v`.
        """
        if self._verbosity < 0:
            yield
        elif self._verbosity == 0 and sys.stderr.isatty():
            from rich.text import Text

            with self._console(sys.stderr).status(Text(text)):
                yield
        else:
            now = time.monotonic()
            if self._verbosity > 0 or self._last_line_at is None or now - self._last_line_at >= _LINE_EVERY_S:
                print(f"headrace: {text}", file=sys.stderr, flush=True)
                self._last_line_at = now
            yield

    def _print(self, what: "RenderableType", stream: TextIO) -> None:
        self._console(stream).print(what if stream.isatty() else _Unpadded(what))

    def _console(self, stream: TextIO) -> "Console":
        from rich.console import Console  # not needed for `--help`

        is_terminal = stream.isatty()
        return Console(
            file=stream,
            force_terminal=True if self._color == "always" else None,
            no_color={"always": False, "never": True}.get(self._color),  # None: rich looks at NO_COLOR
            color_system="standard" if self._color == "always" else "auto",
            width=None if is_terminal else _NARROWEST,
            highlight=False,
            emoji=False,
            markup=False,  # a path or a name of the user's may hold brackets
        )


class _Unpadded:
    """Something to print, without the spaces that rich fills lines up with: in a file they are only in the way."""

    def __init__(self, what: "RenderableType") -> None:
        self._what = what

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for line in console.render_lines(self._what, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()
