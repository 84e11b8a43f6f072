"""Findings for an issue or a wiki."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.model import Findings, Text

from . import words
from .findings_text import (
    headline_of,
    next_step,
    nothing_found,
    page_of,
    sections_of,
    title_of,
    topics_of,
    what_was_read,
)
from .part_table import part_cells
from .time_table import time_rows


def findings_markdown(findings: Findings, *, language: str = "en") -> str:
    """Return findings as Markdown."""
    lines = [f"# {headline_of(findings, language)}", ""]
    if not findings.findings:
        lines += [nothing_found(findings, language), ""]
    for number, finding in enumerate(findings.findings, start=1):
        lines += [f"## {number}. {title_of(finding, language)}", ""]
        for heading, sentences in sections_of(finding, language):
            lines += [f"**{heading}**", "", *(f"- {_inline(sentence)}" for sentence in sentences), ""]
        lines += [page_of(finding, language), ""]
    for heading, sentences in topics_of(findings, language):
        lines += [f"## {heading}", "", *(f"- {_inline(sentence)}" for sentence in sentences), ""]
    if findings.times:
        rows = time_rows(findings.times, language)
        lines += [f"## {words.TIMES.of(language)}", "", *_table(words.TIME_COLUMNS, rows, language), ""]
    if findings.parts:
        cells = part_cells(findings.parts, language)
        lines += [f"## {words.PARTS.of(language)}", "", *_table(words.PART_COLUMNS, cells, language), ""]
    lines += [*what_was_read(findings.source, language), "", next_step(findings, language)]
    return "\n".join(lines)


def _table(columns: Sequence[Text], rows: Iterable[Sequence[str]], language: str) -> Iterator[str]:
    yield f"| {' | '.join(column.of(language) for column in columns)} |"
    yield f"| --- |{' ---: |' * (len(columns) - 1)}"
    for cells in rows:
        yield f"| {' | '.join(map(_inline, cells))} |"


def _inline(sentence: str) -> str:
    """Keep a sentence in its list item, and the text of a log from becoming mark-up."""
    return " ".join(sentence.split()).replace("<", "&lt;").replace("|", "\\|")
