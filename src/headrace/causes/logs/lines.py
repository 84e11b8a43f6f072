"""Chunks of a log, cut into clean lines."""

from __future__ import annotations

import re

# Colours, cursor movements, window titles: what a terminal would have obeyed.
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LONGEST_BYTES = 1 << 16  # a longer line is a dump of something; its beginning is enough


class LineCutter:
    r"""Lines of a stream of bytes, each with its number; a carriage return ends one too, but does not count as one.

    >>> cutter = LineCutter()
    >>> cutter.cut(b"\x1b[32mstep 1\x1b[0m\r\nste"), cutter.cut(b"p 2\rstep 3"), cutter.rest()
    ([(1, 'step 1')], [(2, 'step 2')], [(2, 'step 3')])
    """

    def __init__(self) -> None:
        self.num_lines = 0  # that ended
        self._begun = b""
        self._is_broken = False

    def cut(self, chunk: bytes) -> list[tuple[int, str]]:
        """Return the lines that this chunk completes, without the empty ones."""
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        if end < 0:
            self._begun = (self._begun + chunk)[:_LONGEST_BYTES]
            return []
        whole, self._begun = self._begun + chunk[: end + 1], chunk[end + 1 :][:_LONGEST_BYTES]
        return self._numbered(whole)

    def skip(self, chunk: bytes) -> None:
        """Pass over a chunk: only its lines are counted, and the next line that comes is a broken one."""
        self.num_lines += chunk.count(b"\n")
        self._begun, self._is_broken = b"", True

    def rest(self) -> list[tuple[int, str]]:
        """Return the last line, which nothing ended."""
        begun, self._begun = self._begun, b""
        return self._numbered(begun)

    def _numbered(self, whole: bytes) -> list[tuple[int, str]]:
        pieces = _text(whole).split("\n")
        first = self.num_lines + 1
        self.num_lines += len(pieces) - 1
        lines = []
        for number, piece in enumerate(pieces, start=first):
            if "\r" in piece:
                lines += [(number, part) for part in piece.split("\r") if part]
            elif piece:
                lines.append((number, piece))
        if self._is_broken:
            lines, self._is_broken = lines[1:], False
        return lines


def _text(raw: bytes) -> str:
    if b"\x1b" in raw:
        raw = _ANSI.sub(b"", raw)
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"")  # the hole that a log truncated in place begins with
    return raw.decode("utf-8", "replace")
