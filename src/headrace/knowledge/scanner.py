"""A log in, in any pieces; the messages in it out, counted and with what they name, in bounded memory."""

import re
from dataclasses import dataclass, field
from functools import cache

from .anchors import AnchorFinder
from .entries import MessageEntry, Pattern, by_name, entries
from .story import MessageFound, Occurrence, tell

_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")  # nearly all there are, at twice the speed
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_LONGEST_LINE_BYTES = 1 << 16  # a longer one is cut: binary, or a bar that never ends its line
_AROUND_BYTES = 4096  # what is looked at on either side of an anchor within a line
_CONTEXT_BYTES = 8192  # what is remembered of the lines before: more than the frames of one traceback
_MAX_OCCURRENCES = 64  # distinct ones kept per message; all are counted


@dataclass(slots=True)
class _Seen:
    """What one message amounts to so far."""

    text: str
    first_line: int
    last_line: int
    count: int = 1
    occurrences: list[Occurrence] = field(default_factory=list)


class MessageScanner:
    r"""Finds the messages of the knowledge base in a log that is fed to it in pieces, wherever they are cut.

    Colour codes, carriage returns, NUL bytes, prefixes and interleaved ranks do not matter. Memory is bounded whatever
    the log holds.

    >>> scanner = MessageScanner()
    >>> scanner.scan_chunk(b"epoch 1 loss 0.3\nRuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ")
    >>> [(found.entry.id, found.first_line, found.values["pid"]) for found in scanner.found()]
    [('KB-01', 2, ('7',))]
    """

    def __init__(self) -> None:
        self._tail = b""  # the line that has not ended yet
        self._before = b""  # the end of what was looked at
        self._lines = 0  # lines that ended
        self._seen: dict[str, _Seen] = {}

    def __repr__(self) -> str:
        return f"<MessageScanner: {self._lines} lines, {len(self._seen)} messages known>"

    def scan_chunk(self, chunk: bytes) -> None:
        """Look at the next bytes of the log, wherever they were cut."""
        end = chunk.rfind(b"\n") + 1
        if end:
            self._look_at(self._tail + chunk[:end])
            self._tail = b""
        self._tail += chunk[end:]
        if len(self._tail) > _LONGEST_LINE_BYTES:
            # All but the last bytes of a line that does not end; these are looked at with the next ones.
            cut = self._tail.rfind(b"\r", 0, -_AROUND_BYTES) + 1 or len(self._tail) - _AROUND_BYTES
            self._look_at(self._tail[:cut])
            self._tail = self._tail[cut:]

    def add(self, name: str, text: str, line: int) -> None:
        """Count a message that somebody else recognised: one too short to look for, such as `Killed`."""
        self._seen.setdefault(by_name()[name].id, _Seen(text, line, line, occurrences=[(("signal", text),)]))

    def found(self) -> tuple[MessageFound, ...]:
        """Return what was found, the most telling message first. A line that has not ended is taken as it is."""
        if self._tail:
            tail, self._tail = self._tail, b""
            self._look_at(tail)
        known = {entry.id: entry for entry in entries()}
        return tell(
            MessageFound(known[id_], seen.text, seen.count, seen.first_line, seen.last_line, tuple(seen.occurrences))
            for id_, seen in self._seen.items()
        )

    def _look_at(self, block: bytes) -> None:
        """Look at a block that ends where a line does."""
        num_lines = block.count(b"\n")
        if b"\x1b" in block:
            block = _COLOURS.sub(b"", block)
            if b"\x1b" in block:
                block = _ESCAPES.sub(b"", block)
        if b"\0" in block:  # torch's own handlers print one after their sentence; and so does UTF-16
            block = block.replace(b"\0", b"")
        finder, patterns = _finder()
        counted_to, line_number, in_line = 0, self._lines + 1, set[str]()
        for position, number in finder.find(block):
            start, end = _line_around(block, position)
            if start > counted_to:
                line_number += block.count(b"\n", counted_to, start)
                counted_to, in_line = start, set()
            line = block[start:end].decode("utf-8", "replace")
            for entry, pattern in patterns[finder.anchors[number]]:
                match = pattern.regex.search(line)
                if match and entry.id not in in_line and self._has_before(pattern, block, start):
                    self._add(entry, line.strip(), match, line_number)
                    in_line.add(entry.id)
        self._before = (self._before + block[-_CONTEXT_BYTES:])[-_CONTEXT_BYTES:]
        self._lines += num_lines

    def _has_before(self, pattern: Pattern, block: bytes, start: int) -> bool:
        if pattern.before is None:
            return True
        before = block[max(0, start - _CONTEXT_BYTES) : start]
        if start < _CONTEXT_BYTES:
            before = self._before[-(_CONTEXT_BYTES - start) :] + before
        return pattern.before.search(before.decode("utf-8", "replace")) is not None

    def _add(self, entry: MessageEntry, text: str, match: re.Match[str], line_number: int) -> None:
        occurrence = tuple(sorted((name, value) for name, value in match.groupdict().items() if value is not None))
        seen = self._seen.get(entry.id)
        if seen is None:
            self._seen[entry.id] = seen = _Seen(text, line_number, line_number)
        else:
            seen.count += 1
            seen.last_line = line_number
        if occurrence not in seen.occurrences and len(seen.occurrences) < _MAX_OCCURRENCES:
            seen.occurrences.append(occurrence)


def _line_around(block: bytes, position: int) -> tuple[int, int]:
    """Return where the line around a position starts and ends; a carriage return ends one too: bars are drawn so."""
    low, high = max(0, position - _AROUND_BYTES), position + _AROUND_BYTES
    start = max(block.rfind(b"\n", low, position), block.rfind(b"\r", low, position)) + 1 or low
    ends = [end for end in (block.find(b"\n", position, high), block.find(b"\r", position, high)) if end >= 0]
    return start, min(ends, default=min(high, len(block)))


@cache
def _finder() -> tuple[AnchorFinder, dict[bytes, list[tuple[MessageEntry, Pattern]]]]:
    patterns: dict[bytes, list[tuple[MessageEntry, Pattern]]] = {}
    for entry in entries():
        for pattern in entry.patterns:
            patterns.setdefault(pattern.anchor, []).append((entry, pattern))
    return AnchorFinder(patterns), patterns
