"""What `headrace run` shows while the script runs: nothing, a line now and then, or a screen."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from headrace.model import format_seconds, format_share, three_digits

from .run_messages import RUN_MESSAGES
from .terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from headrace.launch import LiveStatus

_LINE_EVERY_S = 5.0
_TAIL_LINES = 12
_TAIL_BYTES = 16_384


class Display:
    """The display of one run; use it in a `with` statement."""

    def __init__(self, terminal: Terminal, language: str, *, kind: str, directory: Path) -> None:
        self._terminal, self._words, self._directory = terminal, RUN_MESSAGES[language], directory
        if kind == "tui" and not sys.stderr.isatty():
            terminal.warn(self._words.no_terminal)
            kind = ""
        self._kind = kind
        self._next_line_s = 0.0
        self._live: Live | None = None
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        if kind:
            from headrace.launch import LiveTally

            self._tally = LiveTally()

    def __repr__(self) -> str:
        return f"Display({self._kind or 'off'!r})"

    @property
    def is_on(self) -> bool:
        """Whether anything is shown."""
        return bool(self._kind)

    @property
    def output(self) -> tuple[BinaryIO, BinaryIO] | None:
        """Where the script's output goes while a screen is shown; None: where it always goes."""
        return self._files

    def __enter__(self) -> Display:
        if self._kind == "tui":
            from rich.live import Live

            self._directory.mkdir(parents=True, exist_ok=True)
            self._files = ((self._directory / "stdout.log").open("wb"), (self._directory / "stderr.log").open("wb"))
            self._live = Live(console=self._terminal.console_aside(), screen=True, auto_refresh=False)
            self._live.start()
        self._next_line_s = time.monotonic() + _LINE_EVERY_S
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        for file in self._files or ():
            file.close()

    def observe(self, pid: int, records: Any) -> None:
        """Take in what a process has recorded."""
        self._tally.feed(pid, records, time.monotonic())

    def tick(self) -> None:
        """Show the state of things, if it is time to."""
        now = time.monotonic()
        if self._live is not None:
            self._live.update(self._screen(self._tally.status(now)), refresh=True)
        elif now >= self._next_line_s:
            self._next_line_s = now + _LINE_EVERY_S
            print(f"headrace: {self._line(self._tally.status(now))}", file=sys.stderr, flush=True)

    def _line(self, status: LiveStatus | None) -> str:
        if status is None:
            return self._words.live_none
        busy = self._words.workers.format(busy=format_share(status.busy_share)) if status.busy_share is not None else ""
        return self._words.live.format(
            steps=status.steps,
            rate=three_digits(status.steps_per_s),
            share=format_share(status.wait_share),
            worst=format_seconds(status.worst_wait_s),
            workers=busy,
        )

    def _screen(self, status: LiveStatus | None) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        table.add_column("")
        table.add_column("", justify="right")
        for name, share in sorted((status.shares if status else {}).items(), key=lambda one: -one[1]):
            table.add_row(name, format_share(share))
        return Group(
            Panel(Text(self._line(status)), title="headrace run"),
            Panel(table, title=self._words.now),
            Panel(Text(self._tail()), title=self._words.output),
        )

    def _tail(self) -> str:
        text = b""
        for name in ("stdout.log", "stderr.log"):
            with (self._directory / name).open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
                text += file.read()
        lines = text.replace(b"\r", b"\n").decode("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines[-_TAIL_LINES:] if line.strip())
