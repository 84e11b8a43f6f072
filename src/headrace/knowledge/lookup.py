"""What a piece of text means: a message as a person pastes it, an error that is raised."""

import contextlib
import re
from dataclasses import dataclass
from functools import cache

from headrace.model import Text, describe_error

from .entries import MessageEntry, by_name, entries
from .scanner import MessageScanner
from .story import MessageFound, tell

_LONGEST_TEXT = 1 << 20  # a message is a few lines; what is longer is a log, for `MessageScanner`
_SHORTEST_PART = 24  # characters of a message that is cut short, below which it could be any
_FEWEST_WORDS = 4
_MOST_LINES = 200
_EXCEPTION = re.compile(r"^\s*[\w.]+(?:Error|Warning|Exception|File): ")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def look_up(text: str) -> tuple[MessageFound, ...]:
    """Return the messages in a text, the most telling first; nothing where no message is known.

    A person pastes a message cut short, wrapped, coloured, in the middle of other text, or only describes it.
    Whole messages are looked for first; where there is none, parts of a message that was cut short (`is_partial`), and
    the words in which people describe a message that says nothing at all. An entry's id or name does as well.

    >>> [found.entry.name for found in look_up("RuntimeError: received 0 items of ancdata")]
    ['received_ancdata']
    >>> look_up("loss went up, what now?")
    ()
    """
    text = text[:_LONGEST_TEXT]
    if (named := by_name().get(text.strip())) is not None:
        return (MessageFound(named, named.examples[0].splitlines()[0], 1, 1, 1),)
    # A terminal, a mail or a web page may have wrapped it.
    return _scan(text) or _scan(" ".join(text.split())) or _described(text) or _partial(text)


def _scan(text: str) -> tuple[MessageFound, ...]:
    scanner = MessageScanner()
    scanner.scan_chunk(text.encode("utf-8", "replace"))
    return scanner.found()


def _described(text: str) -> tuple[MessageFound, ...]:
    found = []
    for entry in entries():
        match = next((match for one in entry.descriptions if (match := one.search(text))), None)
        if match:
            line = text.count("\n", 0, match.start()) + 1
            found.append(MessageFound(entry, match.group(), 1, line, line, is_partial=True))
    return tell(found)


def _partial(text: str) -> tuple[MessageFound, ...]:
    """Return the entries of which the text holds a part, as long a part as any."""
    best: dict[str, tuple[int, MessageEntry, str]] = {}
    lines = [line for line in _ESCAPES.sub("", text).splitlines() if line.strip()]
    for line in lines[-_MOST_LINES:]:
        plain = _plain(line)
        for entry, example in _examples():
            part = _part_in(plain, example)
            if len(part.split()) >= _FEWEST_WORDS and len(part) > best.get(entry.id, (0,))[0]:
                best[entry.id] = (len(part), entry, line.strip())
    most = max((length for length, _, _ in best.values()), default=0)
    longest = [(entry, line) for length, entry, line in best.values() if length == most]
    return tell(MessageFound(entry, line, 1, 1, 1, is_partial=True) for entry, line in longest)


def _part_in(line: str, example: str) -> str:
    """Return the part of an example that a line holds: cut at its end, at its beginning, or at both; else ""."""
    if len(line) >= _SHORTEST_PART and line in example:
        return line
    start = line.rfind(example[:_SHORTEST_PART])
    if start >= 0 and len(example) >= _SHORTEST_PART and example.startswith(line[start:]):
        return line[start:]
    start = example.find(line[:_SHORTEST_PART])
    if start >= 0 and len(example) - start >= _SHORTEST_PART and line.startswith(example[start:]):
        return example[start:]
    return ""


def _plain(line: str) -> str:
    """Reduce a line to what stays the same from one run to the next."""
    return " ".join(re.sub(r"\d+", "0", line).split()).strip("… ").lower()


@cache
def _examples() -> tuple[tuple[MessageEntry, str], ...]:
    """Return the lines of examples that say something by themselves: half of `IndexError` could be anybody's."""
    found = []
    for entry in entries():
        for line in "\n".join(entry.examples).splitlines():
            told_by = [pattern for pattern in entry.patterns if pattern.regex.search(line)]
            if any(pattern.before is None or pattern.is_telling_alone for pattern in told_by):
                found.append((entry, _plain(line)))
                found.append((entry, _plain(_EXCEPTION.sub("", line))))  # many loggers leave the exception's name out
    return tuple(dict.fromkeys(found))


# ------------------------------------------------------------------------------------------ errors

_LONGEST_ERROR = 1 << 16  # the end of it: there the message stands, below the frames
_MARK = "headrace: "
_ONE = Text(
    "{mark}{title}: {fix} (`headrace explain --message {id}`)",
    "{mark}{title}：{fix}（详见 `headrace explain --message {id}`）",
)
_SEVERAL = Text(
    "{mark}{title}; {count} causes are known, `headrace explain --message {id}` says how to tell them apart",
    "{mark}{title}；已知 {count} 种原因，`headrace explain --message {id}` 说明如何区分",
)


@dataclass(frozen=True, slots=True)
class Hint:
    """An entry of the knowledge base that an error fits, as one line in every language."""

    entry_id: str
    line: Text

    def of(self, language: str) -> str:
        return self.line.of(language)


def hint_for(text: str) -> Hint | None:
    """Return what is known of an error's text; nothing where no whole message of the knowledge base is in it.

    >>> hint = hint_for("zipfile.BadZipFile: Bad CRC-32 for file 'image.npy'")
    >>> hint.entry_id, "headrace explain --message KB-31" in hint.of("en")
    ('KB-31', True)
    >>> hint_for("ValueError: the user's own")
    """
    found = _scan(text[-_LONGEST_ERROR:])
    if not found:
        return None
    entry, causes = found[0].entry, found[0].open_causes
    said = _ONE if len(causes) == 1 else _SEVERAL
    fix = Text(causes[0].fix.en.rstrip("."), causes[0].fix.zh.rstrip("。"))
    return Hint(entry.id, said.filled(mark=_MARK, title=entry.title, fix=fix, count=len(causes), id=entry.id))


def add_hint(error: BaseException, *, language: str = "en") -> None:
    """Add what is known of an error to its notes, once: type, arguments and text stay as they are.

    One that takes no notes, or has something else in their place, stays without.
    """
    with contextlib.suppress(BaseException):  # the error is foreign code, and about to be raised itself
        if any(note.startswith(_MARK) for note in getattr(error, "__notes__", ())):
            return
        hint = hint_for(describe_error(error).traceback)
        if hint is not None:
            error.add_note(hint.of(language))
