"""What was found, as plain text, Markdown or a dictionary, in English or Chinese."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .entry import Confidence
from .store import advice_for
from .story import MessageFound


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    unknown: str
    times: str
    means: str
    causes: str
    decided: str
    check: str
    command: str
    fix: str
    avoid: str
    sources: str
    verified: str
    partial: str
    after: str
    colon: str
    stop: str
    produced: str
    source: str
    reported: str


_WORDS = {
    "en": _Words(
        unknown="No such message is known. That says nothing about its cause; the whole log may tell more.",
        times="{count} times, lines {first} to {last}",
        means="What it means",
        causes="True causes, the likeliest first",
        decided="decided: {because}",
        check="check",
        command="type",
        fix="do",
        avoid="What does not help",
        sources="Sources",
        verified="Verified",
        partial="Only a part of the message is there; this is one of those it may be.",
        after="A consequence of {id}, which is also there: read that one first.",
        colon=": ",
        stop=". ",
        produced="provoked with the real package",
        source="read in the source",
        reported="reported in public threads, not reproduced",
    ),
    "zh": _Words(
        unknown="知识库里没有这条信息。这并不说明原因，完整的日志也许能说明更多问题。",
        times="共 {count} 次，第 {first} 到 {last} 行",
        means="它到底在说什么",
        causes="真正的原因，可能性大的在前",
        decided="已确定：{because}",
        check="如何判断",
        command="命令",
        fix="怎么做",
        avoid="没有用的做法",
        sources="出处",
        verified="核实情况",
        partial="这条信息不完整，下面只是可能的一种。",
        after="它是 {id} 的后果，{id} 也在文中，请先看那一条。",
        colon="：",
        stop="。",
        produced="用真实的软件包复现",
        source="读过源代码",
        reported="仅见于公开讨论，未能复现",
    ),
}


def render_text(found: Sequence[MessageFound], language: str = "en") -> str:
    """Return what was found as plain text; a sentence that says so where nothing was.

    >>> print(render_text(()))
    No such message is known. That says nothing about its cause; the whole log may tell more.
    """
    words = _WORDS[language]
    return "\n\n".join(_text_of(one, language, words) for one in found) or words.unknown


def render_markdown(found: Sequence[MessageFound], language: str = "en") -> str:
    """Return what was found as Markdown, one section a message."""
    words = _WORDS[language]
    return "\n\n".join(_markdown_of(one, language, words) for one in found) or words.unknown


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
    colon = _WORDS[language].colon
    known = [f"{one.title.of(language)}{colon}{one.truth.of(language)}" for one in advice_for(found.entry)]
    return [*(text.of(language) for text in found.entry.avoid), *known]


def _how(found: MessageFound, words: _Words) -> str:
    return {
        Confidence.PRODUCED: words.produced,
        Confidence.SOURCE: words.source,
        Confidence.REPORTED: words.reported,
    }[found.entry.confidence]


def _notes(found: MessageFound, words: _Words) -> list[str]:
    notes = []
    if found.count > 1:
        notes.append(words.times.format(count=found.count, first=found.first_line, last=found.last_line))
    if found.is_partial:
        notes.append(words.partial)
    if found.explained_by:
        notes.append(words.after.format(id=found.explained_by))
    return notes


def _text_of(found: MessageFound, language: str, words: _Words) -> str:
    entry, colon = found.entry, words.colon
    lines = [f"{entry.id}  {entry.title.of(language)}", f"  > {found.text}"]
    lines += [f"  ({note})" for note in _notes(found, words)]
    lines += ["", f"{words.means}{colon}{entry.meaning.of(language)}", "", f"{words.causes}{colon.rstrip()}"]
    for number, cause in enumerate(found.open_causes, start=1):
        lines.append(f"  {number}. {cause.why.of(language)}")
        if found.decided:
            lines.append(f"     {words.decided.format(because=found.because)}")
        lines.append(f"     {words.check}{colon}{cause.check.of(language)}")
        if cause.command:
            lines.append(f"     {words.command}{colon}{cause.command}")
        lines.append(f"     {words.fix}{colon}{cause.fix.of(language)}")
    avoid = _avoid(found, language)
    if avoid:
        lines += ["", f"{words.avoid}{colon.rstrip()}", *(f"  - {text}" for text in avoid)]
    lines += ["", f"{words.sources}{colon}{', '.join(entry.sources)}"]
    lines.append(f"{words.verified}{colon}{_how(found, words)}{words.stop}{entry.verified.of(language)}")
    return "\n".join(lines)


def _markdown_of(found: MessageFound, language: str, words: _Words) -> str:
    entry, colon = found.entry, words.colon
    lines = [f"### {entry.id} {entry.title.of(language)}", "", "```text", found.text, "```", ""]
    lines += [f"*{note}*\n" for note in _notes(found, words)]
    lines += [entry.meaning.of(language), "", f"**{words.causes}**", ""]
    for number, cause in enumerate(found.open_causes, start=1):
        lines.append(f"{number}. {cause.why.of(language)}")
        if found.decided:
            lines.append(f"   - **{words.decided.format(because=found.because)}**")
        command = f" (`{cause.command}`)" if cause.command else ""
        lines.append(f"   - {words.check}{colon}{cause.check.of(language)}{command}")
        lines.append(f"   - {words.fix}{colon}{cause.fix.of(language)}")
    avoid = _avoid(found, language)
    if avoid:
        lines += ["", f"**{words.avoid}**", "", *(f"- {text}" for text in avoid)]
    lines += ["", f"{words.sources}{colon}{', '.join(entry.sources)}{words.stop}"]
    lines[-1] += f"{words.verified}{colon}{_how(found, words)}{words.stop}{entry.verified.of(language)}"
    return "\n".join(lines)
