"""One message, as a person pastes it: cut short, wrapped, coloured, in the middle of other text, or only described."""

import re
from collections.abc import Iterator
from functools import cache

from .entry import Entry
from .scanner import MessageScanner
from .store import entries, find_entry
from .story import MessageFound, tell

_LONGEST_TEXT = 1 << 20  # a message is a few lines; what is longer is a log, for `MessageScanner`
_SHORTEST_PART = 24  # characters of a message that is cut short, below which it could be any
_FEWEST_WORDS = 4
_MOST_LINES = 200
_EXCEPTION = re.compile(r"^\s*[\w.]+(?:Error|Warning|Exception|File): ")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def look_up(text: str) -> tuple[MessageFound, ...]:
    """Return the messages in a text, the most telling first; nothing where no message is known.

    Whole messages are looked for first; where there is none, parts of a message that was cut short (`is_partial`), and
    the words in which people describe a message that says nothing at all. An entry's id or name does as well.

    >>> [found.entry.name for found in look_up("RuntimeError: received 0 items of ancdata")]
    ['received_ancdata']
    >>> look_up("loss went up, what now?")
    ()
    """
    text = text[:_LONGEST_TEXT]
    if (named := find_entry(text.strip())) is not None:
        return (MessageFound(named, named.examples[0].splitlines()[0], 1, 1, 1),)
    found = _scan(text)
    if not found:  # a terminal, a mail or a web page may have wrapped it
        found = _scan(" ".join(text.split()))
    return found or _described(text) or _partial(text)


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
    best: dict[str, tuple[int, Entry, str]] = {}
    lines = [line for line in _ESCAPES.sub("", text).splitlines() if line.strip()]
    for line in lines[-_MOST_LINES:]:
        plain = _plain(line)
        for entry, example in _examples():
            part = _part_in(plain, example)
            if len(part.split()) >= _FEWEST_WORDS and len(part) > best.get(entry.id, (0,))[0]:
                best[entry.id] = (len(part), entry, line.strip())
    longest = max((length for length, _, _ in best.values()), default=0)
    return tell(
        MessageFound(entry, line, 1, 1, 1, is_partial=True)
        for length, entry, line in best.values()
        if length == longest
    )


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
def _examples() -> tuple[tuple[Entry, str], ...]:
    found = []
    for entry, line in _example_lines():
        found.append((entry, _plain(line)))
        found.append((entry, _plain(_EXCEPTION.sub("", line))))  # many loggers leave the exception's name out
    return tuple(dict.fromkeys(found))


def _example_lines() -> Iterator[tuple[Entry, str]]:
    """Return the lines of examples that say something by themselves: half of `IndexError` could be anybody's."""
    for entry in entries():
        for example in entry.examples:
            for line in example.splitlines():
                told_by = [pattern for pattern in entry.patterns if pattern.regex.search(line)]
                if any(pattern.before is None or pattern.is_telling_alone for pattern in told_by):
                    yield entry, line
