"""`explain_logs`: logs of a run, streamed, and everything that they tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import UnusableInput
from headrace.model import Findings

from .logs.lines import LineCutter
from .logs.merging import join_logs
from .logs.reader import LogContent, LogReader
from .logs.source import read_chunks
from .postmortem import explain_streams

# Steps are read from all of the first 64 MiB, then from windows of 4 MiB, evenly spread, a sixteenth of the rest: a
# pattern shows within a window, and a long log stays quick to read. Messages are looked for in all of it.
_READ_WHOLE_BYTES = 64 << 20
_WINDOW_BYTES = 4 << 20
_OF_THE_REST = 16


def explain_logs(paths: Sequence[str], *, during: Callable[[str], Any] | None = None) -> Findings:
    """Return what the logs of one run tell: rotated parts, ranks, stdout and stderr, in any order.

    Raises `UnusableInput` where a log cannot be read, or where nothing in them tells of training steps.
    """
    contents = []
    for path in paths:
        if during is not None:
            during(path)
        contents.append(_read(path))
    num_bytes = sum(content.num_bytes for content in contents)
    names = ", ".join("standard input" if path == "-" else path for path in paths)
    if num_bytes == 0:
        raise UnusableInput(f"{names}: empty", next_step="give the log that the training wrote")
    streams = join_logs(contents)
    findings = explain_streams(streams, source=_source(paths, contents))
    if findings is None:
        raise UnusableInput(
            f"{names}: no line tells of training steps, and no known message is in it",
            lines=sum(content.num_lines for content in contents),
            next_step="give a log with step numbers and times, a progress bar, or an error message; "
            "`headrace explain --help` lists the formats",
        )
    return findings


def _read(path: str) -> LogContent:
    cutter, reader = LineCutter(), LogReader(path)
    content = reader.content
    for chunk in read_chunks(path):
        if _is_read(content.num_bytes):
            reader.feed(cutter.cut(chunk))
            content.num_bytes_read += len(chunk)
        else:
            cutter.skip(chunk)
        content.num_bytes += len(chunk)
    reader.feed(cutter.rest())
    content.num_lines = cutter.num_lines
    return content


def _is_read(position: int) -> bool:
    if position < _READ_WHOLE_BYTES:
        return True
    return (position - _READ_WHOLE_BYTES) // _WINDOW_BYTES % _OF_THE_REST == 0


def _source(paths: Sequence[str], contents: Sequence[LogContent]) -> dict[str, object]:
    formats: dict[str, int] = {}
    for content in contents:
        for name, count in content.formats.items():
            formats[name] = formats.get(name, 0) + count
    return {
        "logs": list(paths),
        "bytes": sum(content.num_bytes for content in contents),
        "bytes_read_for_steps": sum(content.num_bytes_read for content in contents),
        "lines": sum(content.num_lines for content in contents),
        "formats": formats,
    }
