"""What `headrace run` shows while the script runs: nothing, a line at the bottom, a line now and then, or a screen."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from headrace.model import Activity, Text, format_seconds, format_share, three_digits

from ..terminal import Terminal, line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.panel import Panel
    from rich.table import Table

    from headrace.launch import LiveStatus

_LINE_EVERY_S = 5.0
_QUIET_FROM_S = 3.0  # without an event: then that is what there is to say
_LAST_LINES = 20
_LOGS = ("stdout.log", "stderr.log")
_TAIL_BYTES = 16_384
_BAR_CELLS = 30
_MOST_ROWS = 10
_SAVE, _RESTORE = "\x1b7", "\x1b8"  # where the cursor is
_FEWEST_ROWS = 4


class Display:
    """The display of one run; use it in a `with` statement."""

    def __init__(self, terminal: Terminal, language: str, *, kind: str, directory: Path) -> None:
        self._terminal, self._language, self._directory = terminal, language, directory
        is_terminal = sys.stderr.isatty()
        if kind == "tui" and not is_terminal:
            no_screen = Text(
                "--tui needs a terminal on stderr: a line every 5 s instead, and the script's output is its own",
                "--tui 需要 stderr 是终端：改为每 5 秒输出一行，脚本的输出不受影响",
            )
            terminal.warn(no_screen.of(language))
            kind = "live"
        elif kind == "live" and not is_terminal:
            no_line = Text(
                "stderr is no terminal: --live writes a line every 5 s", "stderr 不是终端：--live 改为每 5 秒输出一行"
            )
            terminal.warn(no_line.of(language))
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
            screen = screen_of(self._said(status), status, logs, self._language, rows=rows)
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
        if failed and (lines := _tail(self._directory / _LOGS[1])):
            print("\n".join(lines[-_LAST_LINES:]), file=sys.stderr)
        written = Text(
            f"the script's output is in {self._directory}: stdout.log, stderr.log",
            f"脚本的输出保存在 {self._directory}：stdout.log、stderr.log",
        )
        self._terminal.warn(written.of(self._language))

    def _said(self, status: LiveStatus | None) -> str:
        return _said(format_seconds(time.monotonic() - self._started_s), status).of(self._language)


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


def screen_of(
    said: str, status: LiveStatus | None, logs: Sequence[Path], language: str, *, rows: int
) -> RenderableType:
    """Return the screen of `--tui`: the last seconds, where their time went, and what the script wrote."""
    from rich.layout import Layout
    from rich.panel import Panel

    shares = sorted((status.shares if status else {}).items(), key=lambda one: -one[1])[:_MOST_ROWS]
    layout = Layout()
    top = [Layout(Panel(line(said), title="headrace run"), size=3)]
    room = rows - 3
    if shares and room >= len(shares) + 6:
        title = Text("the last 10 s", "最近 10 秒").of(language)
        top.append(Layout(Panel(_shares(shares, language), title=title), size=len(shares) + 2))
        room -= len(shares) + 2
    written = [(path, lines) for path in logs if (lines := _tail(path))]
    layout.split_column(*top, *(Layout(one) for one in _outputs(written, room, language)))
    return layout


def _shares(shares: Sequence[tuple[str, float]], language: str) -> Table:
    from rich.table import Table

    from headrace.reports import activity_name

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, share in shares:
        bar = "█" * round(share * _BAR_CELLS)
        table.add_row(line(activity_name(Activity(name), language)), format_share(share), bar)
    return table


def _outputs(written: Sequence[tuple[Path, list[str]]], room: int, language: str) -> list[Panel]:
    """Return a panel for each stream that has been written to, its last lines in it."""
    from rich.panel import Panel
    from rich.text import Text as Line

    title = Text("what the script wrote", "脚本的输出").of(language)
    if not written:
        return [Panel(line(Text("nothing yet", "暂无").of(language), "dim"), title=title)]
    each = max(1, room // len(written) - 2)
    return [
        Panel(Line("\n".join(lines[-each:]), no_wrap=True, overflow="ellipsis"), title=f"{title}: {path.name}")
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
