"""A long recording stays under its limit, and keeps the rare and the long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import EventKind
from headrace.signals.recording import RunFacts, read_run
from headrace.signals.recording.event_file import RECORD_DTYPE, EventFile
from headrace.signals.recording.run_facts import write_facts
from headrace.signals.recording.thinning import Thinner, choose


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(0, 300))
def test_of_a_thinned_group_the_longest_is_kept(durations: list[int], level: int) -> None:
    level = min(level, len(durations))
    array = np.array(durations, np.uint64)
    kept = choose(array, level)
    assert kept.sum() <= level
    if level:
        assert array[kept].max() == array.max()


def records(kinds: list[tuple[int, int]], start_ns: int) -> npt.NDArray[np.void]:
    """`count` records of each kind, spread over a second."""
    blocks = []
    for kind, count in kinds:
        block = np.zeros(count, RECORD_DTYPE)
        block["kind"] = kind
        block["start_ns"] = start_ns + np.linspace(0, 999_999_999, count).astype(np.int64)
        block["duration_ns"] = 1000 + np.arange(count) % 77
        block["value"] = np.arange(count)
        blocks.append(block)
    return np.concatenate(blocks)


def test_a_month_stays_under_its_limit_and_says_so(tmp_path: Path) -> None:
    """Ten minutes apart, so that a month takes seconds; the file does not know."""
    limit = 2 << 20
    file = EventFile(tmp_path / "events.bin", limit_bytes=limit, start_s=0.0)
    apart_s, steps = 600, 30 * 144
    for step in range(steps):
        block = records([(EventKind.SAMPLE, 300), (EventKind.WAIT, 20)], step * apart_s * 10**9)
        if step % 500 == 0:
            block = np.concatenate([block, records([(EventKind.CHECKPOINT, 1)], step * apart_s * 10**9)])
        notes = [(0, 1, {"note": "process", "pid": 77, "parent": 1, "start_ns": 0})] if not step else []
        file.write([(0, 1, block)], notes, now_s=float(step * apart_s))
        assert file.num_bytes < limit
    file.close()
    write_facts(tmp_path / "run.json", RunFacts(start_monotonic_ns=0, end_monotonic_ns=steps * apart_s * 10**9))
    run = read_run(tmp_path)
    assert len(run.events_of(EventKind.CHECKPOINT)) > 0
    assert 0 < len(run.events_of(EventKind.SAMPLE)) < 300 * steps
    assert any(problem.startswith("events were left out from ") for problem in run.problems)
    assert [process.pid for process in run.processes] == [77]
    assert (tmp_path / "events.bin").stat().st_size < limit


def test_under_a_quarter_of_the_limit_nothing_is_left_out() -> None:
    thinner = Thinner(1 << 20)
    block = records([(EventKind.SAMPLE, 1000)], 0)
    for written in (0, (1 << 18) - 1):
        (kept,) = thinner.thin([block], written_bytes=written, elapsed_s=1.0)
        assert len(kept) == 1000
    assert thinner.num_left_out == 0


def test_past_it_rare_kinds_are_kept_whole() -> None:
    thinner = Thinner(1 << 26)
    thinner.thin([], written_bytes=1 << 25, elapsed_s=0.0)
    block = records([(EventKind.SAMPLE, 5000), (EventKind.CHECKPOINT, 2)], 0)
    (kept,) = thinner.thin([block], written_bytes=1 << 25, elapsed_s=30.0)
    assert (kept["kind"] == EventKind.CHECKPOINT).sum() == 2
    assert 0 < (kept["kind"] == EventKind.SAMPLE).sum() < 5000
    assert thinner.num_left_out + len(kept) == len(block)
