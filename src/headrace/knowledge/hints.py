"""What an error means, in one line, for whoever raises or logs it."""

import contextlib
from dataclasses import dataclass

from headrace.model import Text, describe_error

from .scanner import MessageScanner

_LONGEST_TEXT = 1 << 16  # the end of it: there the message stands, below the frames
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
        """Return the line in one of `LANGUAGES`."""
        return self.line.of(language)


def hint_for(text: str) -> Hint | None:
    """Return what is known of an error's text; nothing where no whole message of the knowledge base is in it.

    >>> hint = hint_for("zipfile.BadZipFile: Bad CRC-32 for file 'image.npy'")
    >>> hint.entry_id, "headrace explain --message KB-31" in hint.of("en")
    ('KB-31', True)
    >>> hint_for("ValueError: the user's own")
    """
    scanner = MessageScanner()
    scanner.scan_chunk(text[-_LONGEST_TEXT:].encode("utf-8", "replace"))
    found = scanner.found()
    if not found:
        return None
    entry, causes = found[0].entry, found[0].open_causes
    title = Text(entry.title.en, entry.title.zh)
    said, cause = (_ONE, causes[0]) if len(causes) == 1 else (_SEVERAL, None)
    lines = {
        language: said.of(language).format(
            mark=_MARK,
            title=title.of(language),
            fix="" if cause is None else cause.fix.of(language).rstrip(".。"),
            count=len(causes),
            id=entry.id,
        )
        for language in ("en", "zh")
    }
    return Hint(entry.id, Text(lines["en"], lines["zh"]))


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
