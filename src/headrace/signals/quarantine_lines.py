"""One line of a quarantine file for each condemned sample: how it is written, and how a file of them is read.

A line is a JSON object with `"schema": "headrace/quarantine/v1"` and the fields of `SampleFailure.as_json`. There
is no header: the first line is like the last one, so ranks need not agree who creates the file, files can be joined
with `cat` and thinned out with `grep -v`, and a damaged line costs one sample's record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from headrace.errors import NotAQuarantine
from headrace.model import SampleFailure, shorten

QUARANTINE_SCHEMA = "headrace/quarantine/v1"

_START = f'{{"schema": "{QUARANTINE_SCHEMA}"'.encode()
_LONGEST_LINE_BYTES = 64 * 2**20  # a data set given by mistake may be one line of a terabyte
_LONGEST_TEXT = 2**20  # of a message or a traceback, in characters, where a line would be longer than that
# How far to look for a first line of ours before the file is called something else.
_MOST_FOREIGN_LINES = 100
_MOST_FOREIGN_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A line that cannot be read: where, why, and how it begins."""

    path: str
    line: int
    reason: str
    text: str
    is_torn: bool = False  # the last line, cut off: its writer was killed, or is still writing

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def line_of(failure: SampleFailure) -> bytes:
    """Return the line of a failure, without its end. Only texts of many megabytes are shortened."""
    line = _dump(failure)
    if len(line) < _LONGEST_LINE_BYTES:
        return line
    message, traceback = (shorten(text, _LONGEST_TEXT) for text in (failure.message, failure.traceback))
    return _dump(replace(failure, message=message, traceback=traceback))


def _dump(failure: SampleFailure) -> bytes:
    document = {"schema": QUARANTINE_SCHEMA, **failure.as_json()}
    try:
        return json.dumps(document, ensure_ascii=False).encode()  # so that `grep` finds a name in any language
    except UnicodeEncodeError:  # a file name that is not UTF-8
        return json.dumps(document).encode()


def raise_if_foreign(path: Path, file: BinaryIO) -> None:
    """Raise `NotAQuarantine` unless the file is empty or has a line of ours near its beginning."""
    for entry in read_lines(path, file):
        if isinstance(entry, SampleFailure):
            return


def read_lines(path: Path, file: BinaryIO) -> Iterator[SampleFailure | Damage]:
    """Yield what each line holds, in the memory of one line; raise `NotAQuarantine` if no line is ours."""
    number = 0
    foreign_lines = foreign_bytes = 0
    has_own = False
    last_reason = ""
    while line := file.readline(_LONGEST_LINE_BYTES):
        number += 1
        is_whole = line.endswith(b"\n")
        if not is_whole and len(line) == _LONGEST_LINE_BYTES:
            entry: SampleFailure | Damage | None = _damage(path, number, "the line is longer than any of ours", line)
            is_whole = _pass_over_line(file, at_most=None if has_own else _MOST_FOREIGN_BYTES)
        else:
            entry = _parse(path, number, line, is_whole=is_whole)
        if entry is None:
            continue
        if isinstance(entry, SampleFailure) or line.startswith(_START) or (not is_whole and _START.startswith(line)):
            has_own = True
        elif not has_own:
            foreign_lines, foreign_bytes, last_reason = foreign_lines + 1, foreign_bytes + len(line), entry.reason
            if foreign_lines > _MOST_FOREIGN_LINES or foreign_bytes > _MOST_FOREIGN_BYTES:
                break
        yield entry
    if foreign_lines and not has_own:
        raise NotAQuarantine(
            f"{path} is not a quarantine file",
            lines_read=number,
            last_of_them=last_reason,
            wanted=f'JSON lines with "schema": "{QUARANTINE_SCHEMA}"',
        )


def _parse(path: Path, number: int, line: bytes, *, is_whole: bool) -> SampleFailure | Damage | None:
    if not line.strip():
        return None  # a line that a person put in
    try:
        document = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if not is_whole:
            return _damage(path, number, "the line is cut off", line, is_torn=True)
        return _damage(path, number, f"not JSON ({error})", line)
    if not isinstance(document, dict) or "schema" not in document:
        return _damage(path, number, "not a JSON object with a schema", line)
    if document["schema"] != QUARANTINE_SCHEMA:
        reason = f"its schema is {document['schema']!r}; this version reads {QUARANTINE_SCHEMA!r}"
        return _damage(path, number, reason, line)
    try:
        return SampleFailure.from_json(document)
    except ValueError as error:
        return _damage(path, number, str(error), line)


def _damage(path: Path, number: int, reason: str, line: bytes, *, is_torn: bool = False) -> Damage:
    text = line[:80].decode("utf-8", errors="replace").rstrip("\n")
    return Damage(path=str(path), line=number, reason=reason, text=text, is_torn=is_torn)


def _pass_over_line(file: BinaryIO, *, at_most: int | None) -> bool:
    """Read on to the end of a line; return whether there is one."""
    passed = 0
    while part := file.readline(2**20):
        if part.endswith(b"\n"):
            return True
        passed += len(part)
        if at_most is not None and passed > at_most:
            break
    return False
