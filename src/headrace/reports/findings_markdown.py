"""Findings for an issue or a wiki."""

from __future__ import annotations

from headrace.model import Findings

from . import words
from .findings_text import headline_of, next_step, sections_of, title_of, what_was_read
from .part_table import part_cells
from .time_table import time_rows


def findings_markdown(findings: Findings, *, language: str = "en") -> str:
    """Return findings as Markdown."""
    lines = [f"# {headline_of(findings, language)}", ""]
    if not findings.findings:
        lines += [words.NOTHING_WRONG.of(language), ""]
    for number, finding in enumerate(findings.findings, start=1):
        lines += [f"## {number}. {title_of(finding, language)}", ""]
        for heading, sentences in sections_of(finding, language):
            lines += [f"**{heading}**", "", *(f"- {_inline(sentence)}" for sentence in sentences), ""]
    for topic, texts in (
        (words.FACTS, findings.facts),
        (words.LIMITS, findings.limits),
        (words.MEASURE, () if findings.findings else findings.measure),
    ):
        if texts:
            lines += [f"## {topic.of(language)}", "", *(f"- {_inline(text.of(language))}" for text in texts), ""]
    if findings.times:
        columns = [column.of(language) for column in words.TIME_COLUMNS]
        lines += [f"## {words.TIMES.of(language)}", "", f"| {' | '.join(columns)} |", "| --- | ---: | ---: | ---: |"]
        lines += [f"| {' | '.join(cells)} |" for cells in time_rows(findings.times, language)]
        lines.append("")
    if findings.parts:
        columns = [column.of(language) for column in words.PART_COLUMNS]
        lines += [f"## {words.PARTS.of(language)}", "", f"| {' | '.join(columns)} |"]
        lines += [f"| --- |{' ---: |' * (len(columns) - 1)}"]
        lines += [f"| {' | '.join(map(_inline, cells))} |" for cells in part_cells(findings.parts, language)]
        lines.append("")
    lines += [*what_was_read(findings.source, language), "", next_step(findings, language)]
    return "\n".join(lines)


def _inline(sentence: str) -> str:
    """Keep a sentence in its list item, and the text of a log from becoming mark-up."""
    return " ".join(sentence.split()).replace("<", "&lt;").replace("|", "\\|")
