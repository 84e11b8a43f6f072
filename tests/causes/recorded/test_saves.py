"""How long a save holds the loop up: what belongs to it counts, what merely happens beside it does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import Activity, Confidence, EventKind, Findings

from .test_recorded import IN_PROCESS, Tape, causes, explain

_STEP_S = 0.05
_NAMES = {
    1: "Samples#1",
    2: "torch.save",
    3: "os.fsync",
    4: "os.replace",
}


def training(
    *,
    every: int = 10,
    lead_s: float = 0.0,
    save_s: float = 0.2,
    gap_s: float = 0.0,
    follow_s: tuple[float, ...] = (),
    tail_s: float = 0.0,
    pause_every: int = 0,
    pause_s: float = 0.0,
    steps: int = 100,
    log_between: bool = False,
    work_s: float = 0.0,
) -> Findings:
    """A loop that saves every so many steps, and pauses for something else every so many.

    `work_s`: of each step, in something that nobody times.
    """
    tape = Tape(100, "trainer", names=dict(_NAMES), loaders={1: IN_PROCESS})
    now = 1.0
    tape.add(EventKind.EPOCH, now, 0.01, 0, 1)
    now += 0.01
    for step in range(steps):
        tape.add(EventKind.WAIT, now, 1e-4, step, 1)
        now += 1e-4
        tape.add(EventKind.FORWARD, now, 0.5 * _STEP_S)
        tape.add(EventKind.BACKWARD, now + 0.5 * _STEP_S, 0.4 * _STEP_S)
        now += _STEP_S + work_s
        if step % every == every - 1:
            now += lead_s
            tape.add(EventKind.CHECKPOINT, now, save_s, 1 << 20, 2)
            now += save_s + gap_s
            if log_between:
                tape.add(EventKind.LOGGING, now, 1e-4)
                now += 1e-3
            for place, follow in enumerate(follow_s):
                tape.add(EventKind.CHECKPOINT, now, follow, 0, 3 + place % 2)
                now += follow
            now += tail_s
        if pause_every and step % pause_every == pause_every - 1:
            now += pause_s
    tape.add(EventKind.WAIT, now, 1e-3, -1, 1)
    return explain([tape.process()], now + 0.5)


def seconds(found: Findings) -> tuple[float, int]:
    """What the table says of checkpoints: seconds, how many."""
    (row,) = [row for row in found.times if row.activity is Activity.CHECKPOINT]
    return row.seconds, row.count


def test_a_file_that_is_synced_and_renamed_is_one_save_with_all_that_it_takes() -> None:
    found = training(follow_s=(0.3, 0.05), gap_s=0.01)
    assert causes(found) == ["checkpoint"]
    assert seconds(found) == (pytest.approx(10 * 0.56), 10)
    (finding,) = found.findings
    assert finding.share == pytest.approx(5.6 / 10.6, abs=0.01)
    assert (finding.figures["count"], finding.figures["period_steps"]) == (10, 10)
    assert finding.confidence is Confidence.CERTAIN
    said = " ".join(text.en for text in finding.evidence)
    assert "torch.save 2.00 s" in said
    assert "os.fsync 3.00 s" in said
    assert "right before and after" not in said


def test_what_lies_beside_every_save_and_no_other_step_is_part_of_it() -> None:
    found = training(save_s=0.1, lead_s=0.05, tail_s=0.3)
    assert causes(found) == ["checkpoint"]
    assert seconds(found) == (pytest.approx(10 * 0.45, rel=0.02), 10)
    (finding,) = found.findings
    assert finding.confidence is Confidence.LIKELY  # most of it is known by its place only
    assert finding.figures["untimed_s"] == pytest.approx(3.5, rel=0.02)
    assert "3.50 s of that lie right before and after these calls" in " ".join(text.en for text in finding.evidence)
    assert "其中 3.50 s 紧挨在这些调用前后" in " ".join(text.zh for text in finding.evidence)


def test_what_every_step_does_is_taken_off_once() -> None:
    found = training(save_s=0.1, tail_s=0.08, work_s=0.06)
    assert seconds(found) == (pytest.approx(10 * 0.18, rel=0.02), 10)
    assert seconds(training(save_s=0.1, work_s=0.06)) == (pytest.approx(10 * 0.1, rel=0.02), 10)


@pytest.mark.parametrize("pause_every", [5, 3, 30])
def test_a_pause_that_comes_without_saves_too_is_not_theirs(pause_every: int) -> None:
    """With saves every 10 steps: a pause at each of them and between, one at some of them, one at every third."""
    found = training(pause_every=pause_every, pause_s=0.4)
    assert sorted(causes(found)) == ["checkpoint", "unknown"]
    assert seconds(found) == (pytest.approx(10 * 0.2, rel=0.02), 10)


def test_two_saves_are_no_pattern() -> None:
    found = training(every=40, tail_s=1.0)
    assert seconds(found) == (pytest.approx(0.4, rel=0.02), 2)
    assert seconds(training(every=40, follow_s=(1.0,))) == (pytest.approx(2.4, rel=0.02), 2)  # but what is timed counts


def test_what_is_done_with_the_file_later_counts_by_itself() -> None:
    found = training(follow_s=(0.3,), log_between=True)
    assert seconds(found)[0] == pytest.approx(10 * 0.5, rel=0.02)


@settings(max_examples=30, deadline=None)
@given(
    every=st.integers(1, 12),
    save_s=st.floats(0.001, 0.5),
    lead_s=st.floats(0, 0.5),
    tail_s=st.floats(0, 0.5),
    follow_s=st.lists(st.floats(0.001, 0.3), max_size=3).map(tuple),
    pause_every=st.integers(0, 12),
)
def test_no_more_is_counted_than_there_is(
    every: int, save_s: float, lead_s: float, tail_s: float, follow_s: tuple[float, ...], pause_every: int
) -> None:
    found = training(
        every=every,
        save_s=save_s,
        lead_s=lead_s,
        tail_s=tail_s,
        follow_s=follow_s,
        pause_every=pause_every,
        pause_s=0.2,
        steps=60,
    )
    counted, _ = seconds(found)
    saves = 60 // every
    timed = saves * (save_s + sum(follow_s))
    assert timed - 1e-6 <= counted <= timed + saves * (lead_s + tail_s + 0.2) + 1e-6
