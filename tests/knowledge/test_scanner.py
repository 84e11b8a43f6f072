"""A log in, in any pieces: every message is found, whatever stands around it, and nothing is found where none is."""

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.knowledge import MessageFound, MessageScanner, entries
from headrace.knowledge.anchors import AnchorFinder

from .logs import ALIKE, HEALTHY, prefixes, surroundings

EXAMPLES = [(one, text) for one in entries() for text in one.examples]
ANSI = st.sampled_from([b"\x1b[0m", b"\x1b[1;31m", b"\x1b[38;5;196m", b"\x1b[K", b"\x1b[?25l", b"\x1b]0;title\x07"])


def scan(log: bytes, *, cut_every: int = 1 << 20) -> tuple[MessageFound, ...]:
    scanner = MessageScanner()
    for start in range(0, len(log), cut_every):
        scanner.scan_chunk(log[start : start + cut_every])
    return scanner.found()


@settings(max_examples=15)
@given(st.data())
def test_every_message_is_found_in_the_middle_of_other_output(data: st.DataObject) -> None:
    before, after = data.draw(surroundings()), data.draw(surroundings())
    prefix = data.draw(prefixes())
    end = data.draw(st.sampled_from(["\n", "\r\n", "\n\x00"]))
    cut_every = data.draw(st.integers(7, 4000))
    for entry, text in EXAMPLES:
        lines = [*before, *(prefix + line for line in text.splitlines()), *after]
        found = scan(end.join(lines).encode(), cut_every=cut_every)
        assert [one.entry.id for one in found] == [entry.id], text
        assert len(before) < found[0].first_line <= len(before) + len(text.splitlines()), text


@settings(max_examples=10)
@given(st.data())
def test_colours_anywhere_do_not_hide_a_message(data: st.DataObject) -> None:
    places = data.draw(st.lists(st.tuples(st.floats(0, 1), ANSI), min_size=1, max_size=6))
    for entry, text in EXAMPLES:
        log = text.encode()
        for share, code in sorted(places, key=lambda place: place[0], reverse=True):  # from the end: none in another
            at = int(share * len(log)) if "\x1b" not in text else 0
            log = log[:at] + code + log[at:] if b"\x1b" not in log[: at + 1] else log
        assert entry.id in [one.entry.id for one in scan(b"epoch 1\n" + log + b"\nepoch 2\n")], log


def test_every_message_is_found_behind_a_progress_bar() -> None:
    bar = "".join(f"\rEpoch 2:  65%|██████▍   | {i}/4570 [34:14<04:19,  6.25it/s]" for i in range(300))
    for entry, text in EXAMPLES:
        assert entry.id in [one.entry.id for one in scan((bar + "\r" + text).encode(), cut_every=999)], text


def test_nothing_is_found_where_no_message_is() -> None:
    for line in [*HEALTHY, *ALIKE]:
        assert scan(f"{HEALTHY[0]}\n{line}\n{HEALTHY[2]}\n".encode()) == (), line


@given(st.lists(st.sampled_from(HEALTHY + ALIKE), max_size=40))
def test_healthy_lines_in_any_order_hold_no_message(lines: list[str]) -> None:
    assert scan("\n".join(lines).encode()) == ()


@given(st.binary(max_size=3000))
def test_binary_holds_no_message_and_does_no_harm(content: bytes) -> None:
    assert scan(content, cut_every=100) == ()


@given(st.lists(st.sampled_from([*HEALTHY, *(text for _, text in EXAMPLES)]), max_size=30), st.integers(1, 500))
def test_where_the_log_is_cut_does_not_matter(lines: list[str], cut_every: int) -> None:
    log = "\n".join(lines).encode()
    assert scan(log, cut_every=cut_every) == scan(log)


def test_interleaved_ranks_are_counted_and_named_once() -> None:
    lines = []
    for number in range(2000):
        rank = number % 8
        lines.append(
            f"[rank{rank}]: RuntimeError: DataLoader worker (pid {100 + number}) is killed by signal: Killed. "
        )
        lines.append(HEALTHY[number % len(HEALTHY)])
    (found,) = scan("\n".join(lines).encode())
    assert (found.entry.id, found.count, found.first_line, found.last_line) == ("KB-01", 2000, 1, 3999)
    assert found.text == "[rank0]: RuntimeError: DataLoader worker (pid 100) is killed by signal: Killed."
    assert found.values["pid"][:2] == ("100", "101")
    assert len(found.values["pid"]) <= 64


def test_a_line_with_two_phrases_of_one_message_counts_once() -> None:
    line = "RuntimeError: DataLoader worker (pid 1) is killed by signal: Bus error. It is possible that dataloader's "
    line += "workers are out of shared memory. Please try to raise your shared memory limit."
    (found,) = scan(f"{line}\n{line}\n".encode())
    assert (found.entry.id, found.count, found.last_line) == ("KB-03", 2, 2)


def test_a_torch_message_with_a_nul_byte_does_not_hide_the_next_line() -> None:
    log = b"ERROR: Unexpected segmentation fault encountered in worker.\n\0Traceback (most recent call last):\n"
    assert [one.entry.id for one in scan(log)] == ["KB-04"]


def test_utf_16_is_read_too() -> None:
    log = "epoch 1\r\nRuntimeError: received 0 items of ancdata\r\n".encode("utf-16")
    assert [one.entry.id for one in scan(log)] == ["KB-12"]


def test_memory_does_not_grow_with_the_log() -> None:
    message = b"RuntimeError: unable to mmap 68 bytes from file </torch_%d_1_%d>: Cannot allocate memory (12)\n"
    scan(b"warm up\n" * 20_000)  # NumPy, the entries
    tracemalloc.start()
    scanner = MessageScanner()
    line_that_never_ends = b"\rEpoch 2:  65%|######    | 2949/4570 [34:14<04:19,  6.25it/s]" * 8000
    for number in range(8):
        scanner.scan_chunk(b"".join(message % (number, i) for i in range(1000)))
        scanner.scan_chunk(line_that_never_ends)
    assert scanner.found()[0].count == 8_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


ANCHORS = [b"EOFError", b"items of ancdata", b"is killed by signal: ", b"abababab", b"No space left on device"]


@settings(max_examples=60)
@given(st.lists(st.one_of(st.sampled_from(ANCHORS), st.binary(max_size=9)), max_size=60), st.integers(0, 70_000))
@example([b"EOFError"], 65_536)
@example([b"EOFErro"], 70_000)
def test_both_ways_to_look_for_anchors_agree(parts: list[bytes], padding: int) -> None:
    block = b"x" * padding + b"".join(parts)
    finder = AnchorFinder(ANCHORS)
    assert sorted(finder._find_by_words(block)) == sorted(finder._find_one_by_one(block))


def test_a_short_anchor_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 7 bytes"):
        AnchorFinder([b"Error"])
