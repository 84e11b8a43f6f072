"""Findings for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model import Finding, Findings, Severity, Text, Verdict, format_bytes, format_share, three_digits

from . import words
from .part_table import part_table
from .time_table import time_table

if TYPE_CHECKING:
    from rich.console import RenderableType

_TOLD_TO_END = {0, 128 + 2, 128 + 15}  # SIGINT, SIGTERM
_STYLES = {Severity.FATAL: "bold red", Severity.HIGH: "bold red", Severity.MEDIUM: "bold yellow", Severity.LOW: "bold"}


def findings_text(findings: Findings, *, language: str = "en") -> RenderableType:
    """Return findings as something that rich prints; words carry the meaning, colour repeats it."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text as Line

    parts: list[RenderableType] = [Line(headline_of(findings, language), style="bold")]
    if not findings.findings:
        parts.append(Line(nothing_found(findings, language)))
    for number, finding in enumerate(findings.findings, start=1):
        parts += [Line(""), Line(f"{number}. {title_of(finding, language)}", style=_STYLES[finding.severity])]
        for heading, sentences in sections_of(finding, language):
            parts.append(Padding(Line(heading), (0, 0, 0, 3)))
            parts += [Padding(_bullet(sentence), (0, 0, 0, 5)) for sentence in sentences]
        parts.append(Padding(Line(page_of(finding, language), style="dim"), (0, 0, 0, 3)))
    for heading, sentences in topics_of(findings, language):
        parts += [Line(""), Line(heading, style="bold")]
        parts += [Padding(_bullet(sentence), (0, 0, 0, 2)) for sentence in sentences]
    if findings.times:
        parts += [Line(""), Line(words.TIMES.of(language), style="bold")]
        parts.append(Padding(time_table(findings.times, language), (0, 0, 0, 2)))
    if findings.parts:
        parts += [Line(""), Line(words.PARTS.of(language), style="bold")]
        parts.append(Padding(part_table(findings.parts, language), (0, 0, 0, 2)))
    parts += [Line(""), *(Line(line, style="dim") for line in what_was_read(findings.source, language))]
    parts.append(Line(next_step(findings, language)))
    return Group(*parts)


def _bullet(sentence: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text as Line

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_row("-", Line(sentence))
    return grid


def _failed(findings: Findings) -> int:
    """Return the exit code of a script that failed by itself; 0 where it ended well, or was told to end."""
    code = findings.source.get("exit_code", 0)
    return code if isinstance(code, int) and code not in _TOLD_TO_END else 0


def nothing_found(findings: Findings, language: str) -> str:
    """Return what is said instead of findings: that nothing is wrong, or that the script failed by itself."""
    code = _failed(findings)
    return words.FAILED.filled(code=code).of(language) if code else words.NOTHING_WRONG.of(language)


def headline_of(findings: Findings, language: str) -> str:
    """Return the verdict, or that the run was ended where nothing else is known of it."""
    first = findings.findings[0] if findings.findings else None
    if first is not None and first.severity is Severity.FATAL and findings.verdict is Verdict.UNKNOWN:
        return words.RUN_ENDED.of(language)
    return words.VERDICTS[findings.verdict].of(language)


def title_of(finding: Finding, language: str) -> str:
    """Return a finding in one line: cause, share, severity, confidence."""
    comma = "，" if language == "zh" else ", "
    said = [words.SEVERITIES[finding.severity].of(language)]
    if finding.severity is not Severity.FATAL:
        said.insert(0, words.SHARE.filled(share=format_share(finding.share)).of(language))
    said.append(words.CONFIDENCES[finding.confidence].of(language))
    return f"{finding.cause.value} · {words.CAUSES[finding.cause].of(language)} · {comma.join(said)}"


def page_of(finding: Finding, language: str) -> str:
    """Return where the documentation says more about a finding's cause."""
    return words.PAGE.filled(page=finding.cause.page).of(language)


def sections_of(finding: Finding, language: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a finding, each with its heading; empty ones are left out."""
    fix = [text.of(language) for text in finding.fix]
    if fix and finding.gain is not None and finding.gain >= 1.01:
        fix.append(words.GAIN.filled(gain=three_digits(finding.gain)).of(language))
    for heading, sentences in (
        (words.EVIDENCE, [text.of(language) for text in finding.evidence]),
        (words.FIX, fix),
        (words.FUTILE, [text.of(language) for text in finding.futile]),
        (words.MEASURE, [text.of(language) for text in finding.measure]),
    ):
        if sentences:
            yield heading.of(language), sentences


def topics_of(findings: Findings, language: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what is told beside the findings, each with its heading; empty ones are left out."""
    for heading, texts in (
        (words.FACTS, findings.facts),
        (words.LIMITS, findings.limits),
        (words.MEASURE, () if findings.findings else findings.measure),
    ):
        if texts:
            yield heading.of(language), [text.of(language) for text in texts]


def what_was_read(source: Mapping[str, object], language: str) -> Iterator[str]:
    """Yield what the findings rest on."""
    size, read, lines, formats = (source.get(name) for name in ("bytes", "bytes_read_for_steps", "lines", "formats"))
    if not isinstance(size, int) or not isinstance(formats, Mapping):
        return
    comma = "、" if language == "zh" else ", "
    kinds = [words.FORMATS.get(name, Text(name, name)).of(language) for name in formats]
    yield words.READ.filled(lines=lines, size=format_bytes(size), formats=comma.join(kinds) or "-").of(language)
    if isinstance(read, int) and read < size:
        yield words.SAMPLED.filled(share=format_share(read / size)).of(language)


def next_step(findings: Findings, language: str) -> str:
    """Return the one thing to do now."""
    first = findings.findings[0] if findings.findings else None
    if first is not None and (first.measure or first.fix):
        # Where the evidence leaves something open, that comes before any change.
        return words.NEXT_FINDING.filled(what=(first.measure or first.fix)[0].of(language)).of(language)
    if first is None and findings.measure:
        return words.NEXT_FINDING.filled(what=findings.measure[0].of(language)).of(language)
    return (words.NEXT_FAILED if _failed(findings) else words.NEXT_NONE).of(language)
