"""What `headrace run` shows while the script runs: nothing, a line at the bottom, a line now and then, or a screen."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from headrace.model import format_seconds, format_share, three_digits

from ..terminal import Terminal
from .messages import RUN_MESSAGES
from .screen import last_lines, screen_of
from .status_line import StatusLine

if TYPE_CHECKING:
    from rich.live import Live

    from headrace.launch import LiveStatus

_LINE_EVERY_S = 5.0
_QUIET_FROM_S = 3.0  # without an event: then that is what there is to say
_LAST_LINES = 20
_LOGS = ("stdout.log", "stderr.log")


class Display:
    """The display of one run; use it in a `with` statement."""

    def __init__(self, terminal: Terminal, language: str, *, kind: str, directory: Path) -> None:
        self._terminal, self._words, self._directory = terminal, RUN_MESSAGES[language], directory
        self._language = language
        is_terminal = sys.stderr.isatty()
        if kind == "tui" and not is_terminal:
            terminal.warn(self._words.no_screen)
            kind = "live"
        elif kind == "live" and not is_terminal:
            terminal.warn(self._words.no_terminal)
        self._kind = kind
        self._next_line_s = 0.0
        self._started_s = time.monotonic()
        self._live: Live | None = None
        self._line: StatusLine | None = None
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
        self._next_line_s = time.monotonic() + _LINE_EVERY_S
        if self._kind == "live" and StatusLine.fits(2):
            self._line = StatusLine(2)
        elif self._kind == "tui" and not (self._directory / "events.bin").exists():  # else the recorder refuses it
            from rich.live import Live

            self._directory.mkdir(parents=True, exist_ok=True)
            stdout, stderr = (self._directory / name for name in _LOGS)
            self._files = (stdout.open("wb"), stderr.open("wb"))
            self._live = Live(
                console=self._terminal.console_aside(),
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        if self._line is not None:
            self._line.close()
        for file in self._files or ():
            file.close()

    def observe(self, pid: int, records: Any) -> None:
        """Take in what a process has recorded."""
        self._tally.feed(pid, records, time.monotonic())

    def tick(self) -> None:
        """Show the state of things, if it is time to."""
        now = time.monotonic()
        if self._live is not None:
            status = self._tally.status(now)
            logs = [self._directory / name for name in _LOGS]
            rows = self._live.console.height
            screen = screen_of(self._said(status), status, logs, self._words, self._language, rows=rows)
            self._live.update(screen, refresh=True)
        elif self._line is not None:
            self._line.show(f"headrace: {self._said(self._tally.status(now))}")
        elif now >= self._next_line_s:
            self._next_line_s = now + _LINE_EVERY_S
            print(f"headrace: {self._said(self._tally.status(now))}", file=sys.stderr, flush=True)

    def tell_output(self, *, failed: bool) -> None:
        """Say where the output went that the screen stood in the way of; of a script that failed, its last words."""
        if self._files is None:
            return
        if failed and (lines := last_lines(self._directory / _LOGS[1], _LAST_LINES)):
            print("\n".join(lines), file=sys.stderr)
        self._terminal.warn(self._words.written.format(directory=self._directory))

    def _said(self, status: LiveStatus | None) -> str:
        elapsed = format_seconds(time.monotonic() - self._started_s)
        if status is None:
            return self._words.live_none.format(elapsed=elapsed)
        if status.quiet_s >= _QUIET_FROM_S:
            return self._words.live_quiet.format(
                elapsed=elapsed, steps=status.steps, quiet=format_seconds(status.quiet_s)
            )
        busy = self._words.workers.format(busy=format_share(status.busy_share)) if status.busy_share is not None else ""
        return self._words.live.format(
            elapsed=elapsed,
            steps=status.steps,
            rate=three_digits(status.steps_per_s),
            share=format_share(status.wait_share),
            worst=format_seconds(status.worst_wait_s),
            workers=busy,
        )
