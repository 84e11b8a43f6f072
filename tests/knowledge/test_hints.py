"""What an error means, in one line: right or nothing."""

import pytest

from headrace.knowledge import MessageEntry, add_hint, entries, hint_for
from headrace.model import LANGUAGES

from .logs import HEALTHY


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_every_message_has_a_line_that_leads_to_its_entry(entry: MessageEntry) -> None:
    for example in entry.examples:
        hint = hint_for(example)
        if hint is None:  # told by the lines before it, or in words that people use
            continue
        assert hint.entry_id in {entry.id, *entry.follows}
        for language in LANGUAGES:
            line = hint.of(language)
            assert f"headrace explain --message {hint.entry_id}" in line
            assert "\n" not in line
            assert "{" not in line.replace(entry.title.of(language), "")


def test_most_messages_have_one() -> None:
    told = [entry for entry in entries() if any(hint_for(example) for example in entry.examples)]
    assert len(told) >= 0.9 * len(entries())


def test_what_is_not_known_gets_nothing() -> None:
    for text in ["", "ValueError: shapes do not match", "KeyError: 'label'", *HEALTHY]:
        assert hint_for(text) is None


def test_a_hint_is_added_once_and_changes_nothing_else() -> None:
    error = RuntimeError("received 0 items of ancdata")
    add_hint(error)
    add_hint(error, language="zh")
    assert len(error.__notes__) == 1
    assert error.args == ("received 0 items of ancdata",)
    assert "KB-12" in error.__notes__[0]
    plain = ValueError("anything else")
    add_hint(plain)
    assert not hasattr(plain, "__notes__")
