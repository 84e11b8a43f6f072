"""`explain_logs`: logs of a run, streamed, and everything that they tell."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import UnusableInput
from headrace.knowledge import MessageFound, MessageScanner, look_up
from headrace.model import Finding, Findings, Text, Verdict

from .crashes import findings_of, remarks_of
from .logs import LineCutter, LogContent, LogReader, join_logs, read_chunks
from .postmortem import explain_streams

# Steps are read from all of the first 32 MiB, then from windows of 1 MiB, evenly spread, a 32nd of the rest: a
# pattern shows within a window, and a long log stays quick to read. Messages are looked for in all of it.
_READ_WHOLE_BYTES = 32 << 20
_WINDOW_BYTES = 1 << 20
_OF_THE_REST = 32


def explain_logs(paths: Sequence[str]) -> Findings:
    """Return what the logs of one run tell: rotated parts, ranks, stdout and stderr, in any order.

    Raises `UnusableInput` where a log cannot be read, or where nothing in them tells of training steps.
    """
    contents: list[LogContent] = []
    crashes: list[Finding] = []
    remarks: list[Text] = []
    num_messages = 0
    for path in paths:
        content, messages = _read(path)
        contents.append(content)
        crashes += findings_of(messages, last_step_line=content.last_step_line)
        remarks += remarks_of(messages)
        num_messages += sum(message.count for message in messages)
    num_bytes = sum(content.num_bytes for content in contents)
    names = ", ".join("standard input" if path == "-" else path for path in paths)
    if num_bytes == 0:
        raise UnusableInput(f"{names}: empty", next_step="give the log that the training wrote")
    streams = join_logs(contents)
    source = _source(paths, contents, num_messages)
    findings = explain_streams(streams, crashes=_once(crashes), remarks=remarks, source=source)
    if findings is None:
        raise UnusableInput(
            f"{names}: no line tells of training steps, and no known message is in it",
            lines=sum(content.num_lines for content in contents),
            next_step="give a log with step numbers and times, a progress bar, or an error message; "
            "`headrace explain --help` lists the formats",
        )
    return findings


def explain_message(text: str) -> tuple[Findings, tuple[MessageFound, ...]]:
    """Return what an error message means: as findings, and as the entries of the knowledge base.

    Raises `UnusableInput` where no such message is known.
    """
    found = look_up(text)
    if not found:
        raise UnusableInput(
            "no such message is known",
            text=" ".join(text.split())[:120] or "(empty)",
            next_step="give the whole log: `headrace explain LOG`; the first error in it counts, not the last",
        )
    findings = Findings(verdict=Verdict.UNKNOWN, findings=Findings.in_order(findings_of(found)))
    return findings, found


def _read(path: str) -> tuple[LogContent, tuple[MessageFound, ...]]:
    cutter, reader, scanner = LineCutter(), LogReader(path), MessageScanner()
    content = reader.content
    for chunk in read_chunks(path):
        scanner.scan_chunk(chunk)
        if _is_read(content.num_bytes):
            reader.feed(cutter.cut(chunk))
            content.num_bytes_read += len(chunk)
        else:
            cutter.skip(chunk)
        content.num_bytes += len(chunk)
    reader.feed(cutter.rest())
    content.num_lines = cutter.num_lines
    return content, scanner.found()


def _once(crashes: list[Finding]) -> list[Finding]:
    """Keep one finding a cause and fix: every rank, and both of stdout and stderr, may tell of the same death."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in crashes:
        key = (finding.cause, finding.fix)
        if key not in kept or finding.share > kept[key].share:
            kept[key] = finding
    return list(kept.values())


def _is_read(position: int) -> bool:
    if position < _READ_WHOLE_BYTES:
        return True
    return (position - _READ_WHOLE_BYTES) // _WINDOW_BYTES % _OF_THE_REST == 0


def _source(paths: Sequence[str], contents: Sequence[LogContent], num_messages: int) -> dict[str, object]:
    formats: dict[str, int] = {}
    for content in contents:
        for name, count in content.formats.items():
            formats[name] = formats.get(name, 0) + count
    if num_messages:
        formats["messages"] = num_messages
    return {
        "logs": list(paths),
        "bytes": sum(content.num_bytes for content in contents),
        "bytes_read_for_steps": sum(content.num_bytes_read for content in contents),
        "lines": sum(content.num_lines for content in contents),
        "formats": formats,
    }
