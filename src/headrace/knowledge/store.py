"""The entries and the advice of the knowledge base, read once from the files in `data/`."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from headrace.errors import InternalError
from headrace.model import Text

from .anchors import MIN_ANCHOR_BYTES
from .entry import Advice, Confidence, Decision, Entry, Pattern, Severity, TrueCause

# `[[entry]]` files, in the order in which a reader would want them.
_FILES = (
    "workers.toml",
    "shared_memory.toml",
    "descriptors.toml",
    "hangs.toml",
    "start.toml",
    "collate.toml",
    "files.toml",
    "shards.toml",
    "ranks.toml",
    "machine.toml",
)


@cache
def entries() -> tuple[Entry, ...]:
    """Return every entry, sorted by id.

    >>> entries()[0].id, entries()[0].name
    ('KB-01', 'worker_killed')
    """
    found = [_entry(raw) for name in _FILES for raw in _read(name)["entry"]]
    return tuple(sorted(found, key=lambda entry: entry.id))


@cache
def advice() -> tuple[Advice, ...]:
    """Return every piece of wrong advice, sorted by id."""
    return tuple(sorted((_advice(raw) for raw in _read("advice.toml")["advice"]), key=lambda one: one.id))


def entry(id_or_name: str) -> Entry:
    """Return the entry with an id ("KB-01") or a name ("worker_killed"); a `KeyError` if there is none."""
    return _by_name()[id_or_name]


def find_entry(id_or_name: str) -> Entry | None:
    """Return the entry with an id or a name, if there is one."""
    return _by_name().get(id_or_name)


def advice_for(entry: Entry) -> tuple[Advice, ...]:
    """Return the wrong advice that is often given for a message."""
    return tuple(one for one in advice() if one.id in entry.advice)


@cache
def _by_name() -> dict[str, Entry]:
    return {name: one for one in entries() for name in (one.id, one.name)}


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "data" / name).read_text(encoding="utf-8"))


def _entry(raw: dict[str, Any]) -> Entry:
    try:
        return Entry(
            id=raw["id"],
            name=raw["name"],
            cause=raw.get("cause", ""),
            severity=Severity(raw["severity"]),
            title=Text(**raw["title"]),
            meaning=Text(**raw["meaning"]),
            true_causes=tuple(_true_cause(one, raw.get("cause", "")) for one in raw["causes"]),
            avoid=tuple(Text(**one) for one in raw.get("avoid", ())),
            advice=tuple(raw.get("advice", ())),
            sources=tuple(raw["sources"]),
            confidence=Confidence(raw["confidence"]),
            verified=Text(**raw["verified"]),
            examples=tuple(one.strip("\n") for one in raw["examples"]),
            patterns=tuple(_pattern(**one) for one in raw["patterns"]),
            descriptions=tuple(re.compile(one, re.IGNORECASE) for one in raw.get("descriptions", ())),
            follows=tuple(raw.get("follows", ())),
        )
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise InternalError("an entry of the knowledge base cannot be read", id=raw.get("id"), reason=error) from error


def _true_cause(raw: dict[str, Any], cause: str) -> TrueCause:
    return TrueCause(
        name=raw["name"],
        cause=raw.get("cause", cause),
        why=Text(**raw["why"]),
        check=Text(**raw["check"]),
        command=raw.get("command", ""),
        fix=Text(**raw["fix"]),
        decided_by=tuple(_decision(**one) for one in raw.get("decided_by", ())),
    )


def _decision(entry: str, same: str = "", where: dict[str, str] | None = None) -> Decision:
    return Decision(entry, same, tuple((where or {}).items()))


def _pattern(anchor: str, regex: str = "", before: str = "", *, is_telling_alone: bool = False) -> Pattern:
    if len(anchor.encode()) < MIN_ANCHOR_BYTES:
        raise ValueError(f"the anchor {anchor!r} is shorter than {MIN_ANCHOR_BYTES} bytes")
    expression = re.compile(regex or re.escape(anchor))
    return Pattern(anchor.encode(), expression, re.compile(before) if before else None, is_telling_alone)


def _advice(raw: dict[str, Any]) -> Advice:
    return Advice(
        id=raw["id"],
        title=Text(**raw["title"]),
        truth=Text(**raw["truth"]),
        instead=Text(**raw["instead"]),
        sources=tuple(raw["sources"]),
        confidence=Confidence(raw["confidence"]),
        verified=Text(**raw["verified"]),
        examples=tuple(raw["examples"]),
        patterns=tuple(re.compile(one, re.IGNORECASE) for one in raw["patterns"]),
    )
