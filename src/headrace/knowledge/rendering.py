"""What was found, as plain text, Markdown or a dictionary, in English or Chinese."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.model import Text

from .entries import advice_for
from .story import MessageFound

_UNKNOWN = Text(
    "No such message is known. That says nothing about its cause; the whole log may tell more.",
    "知识库里没有这条信息。这并不说明原因，完整的日志也许能说明更多问题。",
)
_TIMES = Text("{count} times, lines {first} to {last}", "共 {count} 次，第 {first} 到 {last} 行")
_PARTIAL = Text(
    "Only a part of the message is there; this is one of those it may be.", "这条信息不完整，下面只是可能的一种。"
)
_AFTER = Text(
    "A consequence of {id}, which is also there: read that one first.",
    "它是 {id} 的后果，{id} 也在文中，请先看那一条。",
)
_CAUSES = Text("True causes, the likeliest first", "真正的原因，可能性大的在前")
_DECIDED = Text("decided: {because}", "已确定：{because}")
_CHECK = Text("check", "如何判断")
_FIX = Text("do", "怎么做")
_AVOID = Text("What does not help", "没有用的做法")
_SOURCES = Text("Sources", "出处")
_VERIFIED = Text("Verified", "核实情况")
_COLON = Text(": ", "：")
_STOP = Text(". ", "。")


class _Marks(NamedTuple):
    """What makes a line a title, the message itself, a note or a heading."""

    title: str
    quote: str
    note: str
    heading: str


_PLAIN = _Marks("{}", "  > {}", "({})\n", "{}")
_MARKDOWN = _Marks("### {}", "```text\n{}\n```", "*{}*\n", "**{}**")


def render_text(found: Sequence[MessageFound], language: str = "en") -> str:
    """Return what was found as plain text; a sentence that says so where nothing was.

    >>> print(render_text(()))
    No such message is known. That says nothing about its cause; the whole log may tell more.
    """
    return "\n\n".join(_render(one, language, _PLAIN) for one in found) or _UNKNOWN.of(language)


def render_markdown(found: Sequence[MessageFound], language: str = "en") -> str:
    """Return what was found as Markdown, one section a message."""
    return "\n\n".join(_render(one, language, _MARKDOWN) for one in found) or _UNKNOWN.of(language)


def message_as_dict(found: MessageFound, language: str = "en") -> dict[str, Any]:
    """Return a message that was found as plain values for JSON, with its sentences in one language."""
    entry = found.entry
    return {
        "id": entry.id,
        "name": entry.name,
        "cause": found.cause or None,
        "severity": entry.severity.value,
        "title": entry.title.of(language),
        "text": found.text,
        "count": found.count,
        "first_line": found.first_line,
        "last_line": found.last_line,
        "values": {name: list(values) for name, values in found.values.items()},
        "is_partial": found.is_partial,
        "explained_by": found.explained_by or None,
        "meaning": entry.meaning.of(language),
        "decided": found.decided or None,
        "because": found.because or None,
        "causes": [
            {
                "name": cause.name,
                "cause": cause.cause or None,
                "why": cause.why.of(language),
                "check": cause.check.of(language),
                "command": cause.command or None,
                "fix": cause.fix.of(language),
            }
            for cause in found.open_causes
        ],
        "avoid": _avoid(found, language),
        "sources": list(entry.sources),
        "confidence": entry.confidence.value,
        "verified": entry.verified.of(language),
    }


def _avoid(found: MessageFound, language: str) -> list[str]:
    colon = _COLON.of(language)
    known = [f"{one.title.of(language)}{colon}{one.truth.of(language)}" for one in advice_for(found.entry)]
    return [*(text.of(language) for text in found.entry.avoid), *known]


def _render(found: MessageFound, language: str, marks: _Marks) -> str:
    entry, colon = found.entry, _COLON.of(language)
    lines = [marks.title.format(f"{entry.id} {entry.title.of(language)}"), "", marks.quote.format(found.text), ""]
    if found.count > 1:
        times = _TIMES.filled(count=found.count, first=found.first_line, last=found.last_line)
        lines.append(marks.note.format(times.of(language)))
    if found.is_partial:
        lines.append(marks.note.format(_PARTIAL.of(language)))
    if found.explained_by:
        lines.append(marks.note.format(_AFTER.filled(id=found.explained_by).of(language)))
    lines += [entry.meaning.of(language), "", marks.heading.format(_CAUSES.of(language)), ""]
    for number, cause in enumerate(found.open_causes, start=1):
        lines.append(f"{number}. {cause.why.of(language)}")
        if found.decided:
            lines.append(f"   - {marks.heading.format(_DECIDED.filled(because=found.because).of(language))}")
        command = f" (`{cause.command}`)" if cause.command else ""
        lines.append(f"   - {_CHECK.of(language)}{colon}{cause.check.of(language)}{command}")
        lines.append(f"   - {_FIX.of(language)}{colon}{cause.fix.of(language)}")
    if avoid := _avoid(found, language):
        lines += ["", marks.heading.format(_AVOID.of(language)), "", *(f"- {text}" for text in avoid)]
    stop = _STOP.of(language)
    how = f"{entry.confidence.label.of(language)}{stop}{entry.verified.of(language)}"
    sources = f"{_SOURCES.of(language)}{colon}{', '.join(entry.sources)}{stop}"
    lines += ["", f"{sources}{_VERIFIED.of(language)}{colon}{how}"]
    return "\n".join(lines)
