"""What an entry of the knowledge base holds: plain frozen values, as the data files give them."""

import re
from dataclasses import dataclass
from enum import StrEnum

from headrace.model import Text


class Severity(StrEnum):
    """What a message means for the run that printed it."""

    FATAL = "fatal"  # the run ends here, or hangs
    HARMFUL = "harmful"  # it goes on, slower or with other data than meant
    HARMLESS = "harmless"  # noise or a hint: by itself it needs no action


class Confidence(StrEnum):
    """How the wording of a message and its causes were verified; the entry says in words by what."""

    PRODUCED = "produced"  # the real package printed it, here, because the fault was provoked
    SOURCE = "source"  # read in the source of the package that prints it
    REPORTED = "reported"  # quoted in public threads only


@dataclass(frozen=True, slots=True)
class Decision:
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
    command: str  # what to type for the check, or ""
    fix: Text
    decided_by: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """How a message is recognised: a literal that is always in its line, an expression, and what must stand before."""

    anchor: bytes
    regex: re.Pattern[str]
    before: re.Pattern[str] | None = None  # looked for in the lines before, such as the frames of a traceback
    is_telling_alone: bool = False  # a look-up may offer the entry even where those lines are missing


@dataclass(frozen=True, slots=True)
class Entry:
    """One message: how it reads, what it truly means, how to tell its causes apart, what to do and what not."""

    id: str
    name: str
    cause: str  # a cause of the design's word list, or "" where none fits
    severity: Severity
    title: Text
    meaning: Text
    true_causes: tuple[TrueCause, ...]
    avoid: tuple[Text, ...]  # futile or harmful answers that are special to this message
    advice: tuple[str, ...]  # the ids of well-known wrong advice that is given for it
    sources: tuple[str, ...]
    confidence: Confidence
    verified: Text
    examples: tuple[str, ...]  # verbatim
    patterns: tuple[Pattern, ...]
    descriptions: tuple[re.Pattern[str], ...]  # how people describe it where nothing is printed; for look-ups only
    follows: tuple[str, ...]  # the entries of which this message is a consequence when both are there


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice that is wrong or half true: how it is worded, what is true, what to do instead."""

    id: str
    title: Text
    truth: Text
    instead: Text
    sources: tuple[str, ...]
    confidence: Confidence
    verified: Text
    examples: tuple[str, ...]  # as people word it, in either language
    patterns: tuple[re.Pattern[str], ...]
