"""What was found, as plain text, Markdown or a dictionary, in English or Chinese."""

from collections.abc import Sequence
from typing import Any

from headrace.model import Text

from .entries import Verification, advice_for
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
_MEANS = Text("What it means", "它到底在说什么")
_CAUSES = Text("True causes, the likeliest first", "真正的原因，可能性大的在前")
_DECIDED = Text("decided: {because}", "已确定：{because}")
_CHECK = Text("check", "如何判断")
_COMMAND = Text("type", "命令")
_FIX = Text("do", "怎么做")
_AVOID = Text("What does not help", "没有用的做法")
_SOURCES = Text("Sources", "出处")
_VERIFIED = Text("Verified", "核实情况")
_HOW_VERIFIED = {
    Verification.PRODUCED: Text("provoked with the real package", "用真实的软件包复现"),
    Verification.SOURCE: Text("read in the source", "读过源代码"),
    Verification.REPORTED: Text("reported in public threads, not reproduced", "仅见于公开讨论，未能复现"),
}
_COLON = Text(": ", "：")
_STOP = Text(". ", "。")


def render_text(found: Sequence[MessageFound], language: str = "en") -> str:
    """Return what was found as plain text; a sentence that says so where nothing was.

    >>> print(render_text(()))
    No such message is known. That says nothing about its cause; the whole log may tell more.
    """
    return "\n\n".join(_text_of(one, language) for one in found) or _UNKNOWN.of(language)


def render_markdown(found: Sequence[MessageFound], language: str = "en") -> str:
    """Return what was found as Markdown, one section a message."""
    return "\n\n".join(_markdown_of(one, language) for one in found) or _UNKNOWN.of(language)


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


def _how(found: MessageFound, language: str) -> str:
    """Return how the entry was verified, as the last sentence of what is said."""
    said = _HOW_VERIFIED[found.entry.confidence].of(language), found.entry.verified.of(language)
    return f"{_VERIFIED.of(language)}{_COLON.of(language)}{_STOP.of(language).join(said)}"


def _notes(found: MessageFound, language: str) -> list[str]:
    notes = []
    if found.count > 1:
        notes.append(_TIMES.filled(count=found.count, first=found.first_line, last=found.last_line).of(language))
    if found.is_partial:
        notes.append(_PARTIAL.of(language))
    if found.explained_by:
        notes.append(_AFTER.filled(id=found.explained_by).of(language))
    return notes


def _text_of(found: MessageFound, language: str) -> str:
    entry, colon = found.entry, _COLON.of(language)
    lines = [f"{entry.id}  {entry.title.of(language)}", f"  > {found.text}"]
    lines += [f"  ({note})" for note in _notes(found, language)]
    lines += [
        "",
        f"{_MEANS.of(language)}{colon}{entry.meaning.of(language)}",
        "",
        f"{_CAUSES.of(language)}{colon.rstrip()}",
    ]
    for number, cause in enumerate(found.open_causes, start=1):
        lines.append(f"  {number}. {cause.why.of(language)}")
        if found.decided:
            lines.append(f"     {_DECIDED.filled(because=found.because).of(language)}")
        lines.append(f"     {_CHECK.of(language)}{colon}{cause.check.of(language)}")
        if cause.command:
            lines.append(f"     {_COMMAND.of(language)}{colon}{cause.command}")
        lines.append(f"     {_FIX.of(language)}{colon}{cause.fix.of(language)}")
    avoid = _avoid(found, language)
    if avoid:
        lines += ["", f"{_AVOID.of(language)}{colon.rstrip()}", *(f"  - {text}" for text in avoid)]
    lines += ["", f"{_SOURCES.of(language)}{colon}{', '.join(entry.sources)}"]
    lines.append(_how(found, language))
    return "\n".join(lines)


def _markdown_of(found: MessageFound, language: str) -> str:
    entry, colon = found.entry, _COLON.of(language)
    lines = [f"### {entry.id} {entry.title.of(language)}", "", "```text", found.text, "```", ""]
    lines += [f"*{note}*\n" for note in _notes(found, language)]
    lines += [entry.meaning.of(language), "", f"**{_CAUSES.of(language)}**", ""]
    for number, cause in enumerate(found.open_causes, start=1):
        lines.append(f"{number}. {cause.why.of(language)}")
        if found.decided:
            lines.append(f"   - **{_DECIDED.filled(because=found.because).of(language)}**")
        command = f" (`{cause.command}`)" if cause.command else ""
        lines.append(f"   - {_CHECK.of(language)}{colon}{cause.check.of(language)}{command}")
        lines.append(f"   - {_FIX.of(language)}{colon}{cause.fix.of(language)}")
    avoid = _avoid(found, language)
    if avoid:
        lines += ["", f"**{_AVOID.of(language)}**", "", *(f"- {text}" for text in avoid)]
    lines += ["", f"{_SOURCES.of(language)}{colon}{', '.join(entry.sources)}{_STOP.of(language)}"]
    lines[-1] += _how(found, language)
    return "\n".join(lines)
