"""Every entry is whole, in both languages, and its own examples are recognised by its own patterns."""

import re
import subprocess
import sys

import pytest

from headrace.knowledge import Advice, MessageEntry, advice, advice_for, entries, entry
from headrace.model import Text

# The causes of the design's word list.
CAUSES = {
    *("loader_throughput", "batch_lockstep", "straggler_sample", "shard_boundary", "epoch_start", "worker_lost"),
    *("worker_hang", "corrupt_sample", "checkpoint", "evaluation", "logging", "swap", "memory_pressure", "shm_full"),
    *("fd_limit", "gc", "h2d_copy", "cpu_throttled", "cpu_contended", "compute", "unknown", ""),
}
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def texts_of(entry: MessageEntry) -> list[Text]:
    causes = [text for cause in entry.true_causes for text in (cause.why, cause.check, cause.fix)]
    return [entry.title, entry.meaning, entry.verified, *entry.avoid, *causes]


def test_every_message_of_the_field_notes_has_an_entry() -> None:
    assert {f"KB-{number:02d}" for number in range(1, 47)} <= {one.id for one in entries()}
    assert [one.id for one in advice()] == [f"T{number:02d}" for number in range(1, 27)]


def test_ids_and_names_are_unique() -> None:
    names = [name for one in entries() for name in (one.id, one.name)]
    assert len(names) == len(set(names))
    assert entry("KB-01") is entry("worker_killed")
    with pytest.raises(KeyError):
        entry("KB-99")


# The tests below go through all entries in one test each: a test of its own for every entry would cost a minute of
# looking for leaks.


def test_every_entry_is_whole() -> None:
    for one in entries():
        check_entry(one)


def check_entry(one: MessageEntry) -> None:
    assert one.patterns
    assert one.examples
    assert one.sources
    assert one.true_causes
    assert one.cause in CAUSES
    names = [cause.name for cause in one.true_causes]
    assert len(names) == len(set(names))
    for cause in one.true_causes:
        assert cause.cause in CAUSES
    for text in texts_of(one):
        assert text.en.strip()
        assert not CHINESE.search(text.en), text.en
        assert CHINESE.search(text.zh), text.zh
        assert text.zh.rstrip('`"”').endswith(("。", "？", "）", "…", "：")) or text is one.title, text.zh
    known = {other.id for other in entries()}
    assert set(one.follows) <= known - {one.id}
    assert {decision.entry for cause in one.true_causes for decision in cause.decided_by} <= known - {one.id}
    assert len(advice_for(one)) == len(one.advice)


def test_anchors_stand_in_what_their_patterns_match() -> None:
    for one in entries():
        for pattern in one.patterns:
            lines = [line for example in one.examples for line in example.splitlines() if pattern.regex.search(line)]
            assert any(pattern.anchor.decode() in line for line in lines) or not lines, (one.id, pattern.anchor)
        for example in one.examples:
            lines = example.splitlines()
            assert any(pattern.regex.search(line) for line in lines for pattern in one.patterns), (one.id, example)


def test_every_piece_of_advice_is_whole() -> None:
    for one in advice():
        check_advice(one)


def check_advice(one: Advice) -> None:
    assert one.sources
    assert any(CHINESE.search(example) for example in one.examples)
    assert any(not CHINESE.search(example) for example in one.examples)
    for text in (one.title, one.truth, one.instead, one.verified):
        assert text.en.strip()
        assert not CHINESE.search(text.en)
        assert CHINESE.search(text.zh)


def test_sources_and_advice_are_referred_to() -> None:
    """Most pieces of advice belong to a message."""
    used = {id_ for one in entries() for id_ in one.advice}
    assert used <= {one.id for one in advice()}
    assert len(used) >= 12


def test_looking_up_loads_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from headrace.knowledge import entries, look_up; entries();"
        "look_up('received 0 items of ancdata');"
        "print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
