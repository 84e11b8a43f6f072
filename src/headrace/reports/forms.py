"""The forms of a report: text for a terminal, Markdown for an issue or a wiki, JSON for scripts."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType
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

_MOST_TIMES = 5  # rows of the table of times in the first lines
_MOST_LINES = 22  # `headrace run` adds three of its own: a screenful
# Where a sentence may stop and be whole: code is not cut into, and behind a bracket in its midst it goes on.
_BRACKET = r"\s?[(（](?:`[^`]*`|[^()（）`])*[)）]"
_STOPS = re.compile(rf"`[^`]*`|(?P<stop>{_BRACKET}(?=$|[;:.；：。])|[;:.] |[；：。])|{_BRACKET}")
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
    parts: list[tuple[int, RenderableType]] = [(0, Line(first, style="bold")), *((0, _OneLine(one)) for one in opening)]
    parts += ((rank, _bullet(said)) for rank, said in brief_of(findings, language))
    tables = tables_of(findings, language, most_times=_MOST_TIMES, is_verbose=False)
    parts += ((1 if table[-1] else 3, Group(*_titled(*table))) for table in tables)  # times before loaders
    return _Screen([*parts, (0, Line(MORE.filled(how=more).of(language), style="dim"))])


class _OneLine(NamedTuple):
    """A sentence on one line, else on two: of a long one what stands before its reasons, with its first code."""

    said: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        said, width = self.said, options.max_width
        least = said.find("`", said.find("`") + 1) + 1 or width // 2
        stops = (stop.start() for stop in _STOPS.finditer(said) if stop["stop"])
        heads = [said[:stop] for stop in stops if stop >= least]
        fitting = ([one for one in (said, *heads) if len(Line(one).wrap(console, width)) <= most] for most in (1, 2))
        return [Line(max(next(filter(None, fitting), [said]), key=len))]


class _Screen(NamedTuple):
    """Parts in their order, as many as a screen holds: higher ranks give way, of one rank the later ones."""

    parts: Sequence[tuple[int, RenderableType]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        heights = [len(console.render_lines(part, options)) for _, part in self.parts]
        kept, room = set[int](), _MOST_LINES
        for place in sorted(range(len(heights)), key=lambda one: self.parts[one][0]):
            if self.parts[place][0] == 0 or heights[place] <= room:
                kept.add(place)
                room -= heights[place]
        return [part for place, (_, part) in enumerate(self.parts) if place in kept]


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
