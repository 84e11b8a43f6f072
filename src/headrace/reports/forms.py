"""The forms of a report: text for a terminal, Markdown for an issue or a wiki, JSON for scripts."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Line

from headrace.model import Findings, Severity

from .contents import (
    MORE,
    PAGE,
    brief_of,
    headline_of,
    next_step,
    nothing_wrong,
    opening_of,
    sections_of,
    tables_of,
    title_of,
    topics_of,
    what_was_read,
)

_MOST_TIMES = 5  # rows of the table of times in the first lines: with the rest, they are a screenful
_STYLES = {Severity.FATAL: "bold red", Severity.HIGH: "bold red", Severity.MEDIUM: "bold yellow", Severity.LOW: "bold"}


def findings_json(findings: Findings, *, language: str = "en") -> str:
    """Return one JSON document of schema `headrace/findings/1`."""
    return json.dumps(findings.as_json(language), ensure_ascii=False, indent=2)


def findings_text(
    findings: Findings, *, language: str = "en", is_verbose: bool = True, more: str = "-v"
) -> RenderableType:
    """Return findings as something that rich prints; words carry the meaning, colour repeats it.

    The first lines say what ended the run or what was lost to what, what to do, and where; then why, and where the time
    went. All the rest comes if `is_verbose`; `more` is how to get it.
    """
    if is_verbose:
        return _full(findings, language)
    first, *opening = opening_of(findings, language)
    parts: list[RenderableType] = [Line(first, style="bold"), *map(Line, opening)]
    parts += map(_bullet, brief_of(findings, language))
    for table in tables_of(findings, language, most_times=_MOST_TIMES, is_verbose=False):
        parts += _titled(*table)
    return Group(*parts, Line(MORE.filled(how=more).of(language), style="dim"))


def _full(findings: Findings, language: str) -> RenderableType:
    parts: list[RenderableType] = [Line(headline_of(findings, language), style="bold")]
    parts += map(Line, nothing_wrong(findings, language))
    for number, finding in enumerate(findings.findings, start=1):
        parts += [Line(""), Line(f"{number}. {title_of(finding, language)}", style=_STYLES[finding.severity])]
        for heading, sentences in sections_of(finding, language):
            parts.append(Padding(Line(heading), (0, 0, 0, 3)))
            parts += [Padding(_bullet(sentence), (0, 0, 0, 5)) for sentence in sentences]
        page = PAGE.filled(page=finding.cause.page).of(language)
        parts.append(Padding(Line(page, style="dim"), (0, 0, 0, 3)))
    for heading, sentences in topics_of(findings, language):
        parts += [Line(""), Line(heading, style="bold")]
        parts += [Padding(_bullet(sentence), (0, 0, 0, 2)) for sentence in sentences]
    for table in tables_of(findings, language):
        parts += [Line(""), *_titled(*table)]
    parts += [Line(""), *(Line(line, style="dim") for line in what_was_read(findings.source, language))]
    parts.append(Line(next_step(findings, language)))
    return Group(*parts)


def _bullet(sentence: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_row("-", Line(sentence))
    return grid


def _titled(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], has_sum: bool
) -> tuple[RenderableType, RenderableType]:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number > 0)
    for cells in rows:
        table.add_row(*(Line(cell) for cell in cells))
    table.rows[-1].style = "bold" if has_sum else ""
    return Line(title, style="bold"), Padding(table, (0, 0, 0, 2))


def findings_markdown(findings: Findings, *, language: str = "en") -> str:
    """Return findings as Markdown."""
    lines = [f"# {headline_of(findings, language)}", ""]
    lines += [*nothing_wrong(findings, language), ""]
    for number, finding in enumerate(findings.findings, start=1):
        lines += [f"## {number}. {title_of(finding, language)}", ""]
        for heading, sentences in sections_of(finding, language):
            lines += [f"**{heading}**", "", *(f"- {_inline(sentence)}" for sentence in sentences), ""]
        lines += [PAGE.filled(page=finding.cause.page).of(language), ""]
    for heading, sentences in topics_of(findings, language):
        lines += [f"## {heading}", "", *(f"- {_inline(sentence)}" for sentence in sentences), ""]
    for title, headings, rows, _ in tables_of(findings, language):
        lines += [f"## {title}", "", f"| {' | '.join(headings)} |", f"| --- |{' ---: |' * (len(headings) - 1)}"]
        lines += [*(f"| {' | '.join(map(_inline, cells))} |" for cells in rows), ""]
    lines += [*what_was_read(findings.source, language), "", next_step(findings, language)]
    return "\n".join(lines)


def _inline(sentence: str) -> str:
    """Keep a sentence in its list item, and the text of a log from becoming mark-up."""
    return " ".join(sentence.split()).replace("<", "&lt;").replace("|", "\\|")
