"""A line at the bottom of a terminal whose other rows stay with whoever writes there.

The scrolling region is made one row shorter, so that output and progress bars of the script scroll above the line. Each
change is one write: it cannot fall apart in the middle of what the script writes.
"""

from __future__ import annotations

import os

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_FEWEST_ROWS = 4


class StatusLine:
    """The last row of the terminal on a descriptor; `close()` gives it back."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rows = 0  # of the terminal when the region was set; 0: it is not set

    def __repr__(self) -> str:
        return f"StatusLine(fd={self._fd}, rows={self._rows})"

    @staticmethod
    def fits(fd: int) -> bool:
        """Whether there is a terminal that has a row to spare and understands what we would write."""
        try:
            return os.isatty(fd) and os.get_terminal_size(fd).lines >= _FEWEST_ROWS and _term() not in {"", "dumb"}
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


def _term() -> str:
    return os.environ.get("TERM", "")
