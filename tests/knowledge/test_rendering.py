"""What was found, as text, Markdown and plain values, in both languages."""

import json
import re

import pytest

from headrace.knowledge import MessageEntry, entries, look_up, message_as_dict, render_markdown, render_text

LANGUAGES = ("en", "zh")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_an_entry_knows_is_said(language: str) -> None:
    for entry in entries():
        check_what_is_said(entry, language)


def check_what_is_said(entry: MessageEntry, language: str) -> None:
    found = look_up(entry.examples[0])
    for text in (render_text(found, language), render_markdown(found, language)):
        assert entry.id in text
        assert entry.title.of(language) in text
        assert entry.meaning.of(language) in text
        for cause in found[0].open_causes:
            assert cause.why.of(language) in text
            assert cause.check.of(language) in text
            assert cause.command in text
            assert cause.fix.of(language) in text
        for source in entry.sources:
            assert source in text
        assert entry.verified.of(language) in text
    assert bool(CHINESE.search(render_text(found, "en").replace(found[0].text, ""))) is False


def test_the_dictionary_is_json_and_says_the_same() -> None:
    for entry in entries():
        found = look_up(entry.examples[0])[0]
        document = json.loads(json.dumps(message_as_dict(found, "zh"), ensure_ascii=False))
        assert document["id"] == entry.id
        assert document["title"] == entry.title.zh
        assert [cause["why"] for cause in document["causes"]] == [cause.why.zh for cause in found.open_causes]
        assert document["cause"] == (found.cause or None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_known_is_said_honestly(language: str) -> None:
    assert render_text((), language) == render_markdown((), language)
    assert render_text((), language)


def test_what_was_decided_is_said_with_its_evidence() -> None:
    found = look_up(
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. \n"
        "Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB, anon-rss:2kB, file-rss:0kB\n"
    )
    text = render_text(found)
    assert "decided: Memory cgroup out of memory: Killed process 7 (python)" in text
    assert "A consequence of KB-47" in text
    assert "kill -9" not in text.split("KB-01", 1)[1]  # the causes that are ruled out are not shown
