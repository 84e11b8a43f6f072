"""The entries and the advice of the knowledge base: frozen values, read once from the files in `data/`."""

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from headrace.errors import InternalError
from headrace.model import Said, Text

from .anchors import MIN_ANCHOR_BYTES

# `[[entry]]` files, in the order in which a reader would want them.
_FILES = ["workers", "shared_memory", "descriptors", "hangs", "start", "collate", "files", "shards", "ranks", "machine"]


class MessageSeverity(StrEnum):
    """What a message means for the run that printed it."""

    FATAL = "fatal"  # the run ends here, or hangs
    HARMFUL = "harmful"  # it goes on, slower or with other data than meant
    HARMLESS = "harmless"  # noise or a hint: by itself it needs no action


class Verification(Said):
    """How the wording of a message and its causes were verified; the entry says in words by what."""

    # the real package printed it, here, because the fault was provoked
    PRODUCED = "produced", Text("provoked with the real package", "用真实的软件包复现")
    SOURCE = "source", Text("read in the source", "读过源代码")  # read in the source of the package that prints it
    # quoted in public threads only
    REPORTED = "reported", Text("reported in public threads, not reproduced", "仅见于公开讨论，未能复现")


@dataclass(frozen=True, slots=True)
class DecidingMessage:
    """Another message that settles a cause when it stands in the same log."""

    entry: str
    same: str = ""  # a captured value that must agree, such as the pid
    where: tuple[tuple[str, str], ...] = ()  # captured values the other message must have


@dataclass(frozen=True, slots=True)
class TrueCause:
    """One of the things that may lie behind a message, and the check that tells."""

    name: str
    cause: str  # a cause of the design's word list, or "" where none fits
    why: Text
    check: Text
    fix: Text
    command: str = ""  # what to type for the check
    decided_by: tuple[DecidingMessage, ...] = ()
    where: tuple[tuple[str, str], ...] = ()  # what the message itself names when it is this: an expression each


@dataclass(frozen=True, slots=True)
class Pattern:
    """How a message is recognised: a literal that is always in its line, an expression, and what must stand before."""

    anchor: bytes
    regex: re.Pattern[str]
    before: re.Pattern[str] | None = None  # looked for in the lines before, such as the frames of a traceback
    is_telling_alone: bool = False  # a look-up may offer the entry even where those lines are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEntry:
    """One message: how it reads, what it truly means, how to tell its causes apart, what to do and what not."""

    id: str
    name: str
    cause: str = ""  # a cause of the design's word list, or "" where none fits
    severity: MessageSeverity
    title: Text
    meaning: Text
    true_causes: tuple[TrueCause, ...]
    avoid: tuple[Text, ...] = ()  # futile or harmful answers that are special to this message
    advice: tuple[str, ...] = ()  # the ids of well-known wrong advice that is given for it
    sources: tuple[str, ...]
    confidence: Verification
    verified: Text
    examples: tuple[str, ...]  # verbatim
    patterns: tuple[Pattern, ...]
    descriptions: tuple[re.Pattern[str], ...] = ()  # how people describe it where nothing is printed; for look-ups only
    follows: tuple[str, ...] = ()  # the entries of which this message is a consequence when both are there


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice that is wrong or half true: how it is worded, what is true, what to do instead."""

    id: str
    title: Text
    truth: Text
    instead: Text
    sources: tuple[str, ...]
    confidence: Verification
    verified: Text
    examples: tuple[str, ...]  # as people word it, in either language


@cache
def entries() -> tuple[MessageEntry, ...]:
    """Return every entry, sorted by id.

    >>> entries()[0].id, entries()[0].name
    ('KB-01', 'worker_killed')
    """
    found = [_entry(raw) for name in _FILES for raw in _read(name, "entry")]
    return tuple(sorted(found, key=lambda entry: entry.id))


@cache
def advice() -> tuple[Advice, ...]:
    """Return every piece of wrong advice, sorted by id."""
    return tuple(sorted((Advice(**raw) for raw in _read("advice", "advice")), key=lambda one: one.id))


def entry(id_or_name: str) -> MessageEntry:
    """Return the entry with an id ("KB-01") or a name ("worker_killed"); a `KeyError` if there is none."""
    return by_name()[id_or_name]


def advice_for(entry: MessageEntry) -> tuple[Advice, ...]:
    """Return the wrong advice that is often given for a message."""
    return tuple(one for one in advice() if one.id in entry.advice)


@cache
def by_name() -> dict[str, MessageEntry]:
    """Return the entries by their ids and by their names."""
    return {name: one for one in entries() for name in (one.id, one.name)}


def _read(name: str, kind: str) -> list[dict[str, Any]]:
    """Return what a file holds of a kind, with values that do not change."""
    text = (files(__package__) / "data" / f"{name}.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = [_frozen(raw) for raw in tomllib.loads(text)[kind]]
    for one in found:
        one["confidence"] = Verification(one["confidence"])
        one["examples"] = tuple(example.strip("\n") for example in one["examples"])
    return found


def _frozen(value: Any) -> Any:
    """Lists as tuples, sentences in both languages as `Text`."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return Text(**value) if value.keys() == {"en", "zh"} else {name: _frozen(one) for name, one in value.items()}
    return value


def _entry(raw: dict[str, Any]) -> MessageEntry:
    try:
        raw["true_causes"] = tuple(_true_cause({"cause": raw.get("cause", ""), **one}) for one in raw.pop("causes"))
        raw["severity"] = MessageSeverity(raw["severity"])
        raw["patterns"] = tuple(_pattern(**one) for one in raw["patterns"])
        raw["descriptions"] = tuple(re.compile(one, re.IGNORECASE) for one in raw.get("descriptions", ()))
        return MessageEntry(**raw)
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise InternalError("an entry of the knowledge base cannot be read", id=raw.get("id"), reason=error) from error


def _true_cause(raw: dict[str, Any]) -> TrueCause:
    decided_by = tuple(
        DecidingMessage(**{**one, "where": tuple(one.get("where", {}).items())}) for one in raw.get("decided_by", ())
    )
    return TrueCause(**{**raw, "decided_by": decided_by, "where": tuple(raw.get("where", {}).items())})


def _pattern(anchor: str, regex: str = "", before: str = "", *, is_telling_alone: bool = False) -> Pattern:
    if len(anchor.encode()) < MIN_ANCHOR_BYTES:
        raise ValueError(f"the anchor {anchor!r} is shorter than {MIN_ANCHOR_BYTES} bytes")
    expression = re.compile(regex or re.escape(anchor))
    return Pattern(anchor.encode(), expression, re.compile(before) if before else None, is_telling_alone)
