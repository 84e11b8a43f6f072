"""What `headrace run --live` shows while the script runs: a line at the bottom of a terminal, or one now and then."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.model import Text, format_seconds, format_share, three_digits

from ..terminal import Terminal

if TYPE_CHECKING:
    from headrace.launch import LiveStatus

_LINE_EVERY_S = 5.0
_QUIET_FROM_S = 3.0  # without an event: then that is what there is to say
_SAVE, _RESTORE = "\x1b7", "\x1b8"  # where the cursor is
_FEWEST_ROWS = 4


class Display:
    """The display of one run; use it in a `with` statement."""

    def __init__(self, terminal: Terminal, language: str) -> None:
        from headrace.launch import LiveTally

        self._language, self._tally = language, LiveTally()
        self._started_s = time.monotonic()
        self._next_line_s = self._started_s + _LINE_EVERY_S
        self._line = StatusLine(2) if StatusLine.fits(2) else None
        if not sys.stderr.isatty():
            no_line = Text(
                "stderr is no terminal: --live writes a line every 5 s", "stderr 不是终端：--live 改为每 5 秒输出一行"
            )
            terminal.warn(no_line.of(language))

    def __repr__(self) -> str:
        return f"Display({self._line or 'a line now and then'})"

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._line is not None:
            self._line.close()

    def observe(self, pid: int, records: Any) -> None:
        """Take in what a process has recorded."""
        self._tally.feed(pid, records, time.monotonic())

    def tick(self) -> None:
        """Show the state of things, if it is time to."""
        now = time.monotonic()
        if self._line is None and now < self._next_line_s:
            return
        elapsed = format_seconds(now - self._started_s)
        said = f"headrace: {_said(elapsed, self._tally.status(now)).of(self._language)}"
        if self._line is not None:
            self._line.show(said)
        else:
            self._next_line_s = now + _LINE_EVERY_S
            print(said, file=sys.stderr, flush=True)


def _said(elapsed: str, status: LiveStatus | None) -> Text:
    if status is None:
        return Text(f"{elapsed}: no batch yet", f"{elapsed}：还没有取到 batch")
    steps = status.steps
    if status.quiet_s >= _QUIET_FROM_S:
        quiet = format_seconds(status.quiet_s)
        return Text(
            f"{elapsed}: {steps} steps, and nothing that is timed for {quiet}",
            f"{elapsed}：{steps} 步，已有 {quiet} 没有任何被计时的事发生",
        )
    rate, share, worst = (
        three_digits(status.steps_per_s),
        format_share(status.wait_share),
        format_seconds(status.worst_wait_s),
    )
    workers = Text("", "")
    if status.busy_share is not None:
        busy = format_share(status.busy_share)
        workers = Text(f", workers busy {busy}", f"，worker 忙碌 {busy}")
    return Text(
        f"{elapsed}: {steps} steps, {rate}/s, waiting for data {share}, worst wait {worst}{workers.en}",
        f"{elapsed}：{steps} 步，{rate} 步/秒，等数据 {share}，最长等待 {worst}{workers.zh}",
    )


class StatusLine:
    """The last row of the terminal on a descriptor, while its other rows stay with whoever writes there.

    The scrolling region is made one row shorter, so that output and progress bars of the script scroll above the line.
    Each change is one write: it cannot fall apart in the middle of what the script writes. `close()` gives it back.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rows = 0  # of the terminal when the region was set; 0: it is not set

    def __repr__(self) -> str:
        return f"StatusLine(fd={self._fd}, rows={self._rows})"

    @staticmethod
    def fits(fd: int) -> bool:
        """Whether there is a terminal that has a row to spare and understands what we would write."""
        term = os.environ.get("TERM", "")
        try:
            return os.isatty(fd) and os.get_terminal_size(fd).lines >= _FEWEST_ROWS and term not in {"", "dumb"}
        except OSError:
            return False

    def show(self, text: str) -> None:
        """Show a text in the place of the one before, cut to the terminal's width."""
        from rich.cells import set_cell_size

        try:
            size = os.get_terminal_size(self._fd)
        except OSError:  # the terminal is gone; the training need not be
            return
        before = ""
        if size.lines != self._rows and size.lines >= _FEWEST_ROWS:
            self._rows = size.lines
            # A new line first: where the script writes in the last row, its line moves up and out of ours.
            before = f"\n{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}\x1b[1A"
        line = set_cell_size(text, max(0, size.columns - 1)).rstrip()
        self._write(f"{before}{_SAVE}\x1b[{self._rows};1H\x1b[2K\x1b[7m{line}\x1b[0m{_RESTORE}")

    def close(self) -> None:
        """Clear the line and give the whole terminal back."""
        if self._rows:
            self._write(f"{_SAVE}\x1b[r\x1b[{self._rows};1H\x1b[2K{_RESTORE}")
            self._rows = 0

    def _write(self, text: str) -> None:
        try:
            os.write(self._fd, text.encode("utf-8", "replace"))
        except OSError:
            pass
