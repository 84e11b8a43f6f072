"""Several training processes, made up event by event: the one that holds the others up, and the one that fell."""

import numpy as np
import pytest

from headrace.causes.recorded import ProcessEvents, explain_processes
from headrace.model import EventKind, Findings

from .test_recorded import _S, IN_PROCESS, Tape

_STEPS, _STEP_S = 40, 0.1


def rank(number: int, *, wait_s: float = 0.002, kind: EventKind = EventKind.WAIT, world: int = 2) -> Tape:
    """Play a rank: what of a step it does not spend by itself, it spends in backward, where it meets the others."""
    tape = Tape(100 + number, "trainer", names={1: "Samples#1"}, loaders={1: IN_PROCESS})
    tape.add(EventKind.RANK, 1.0, 0.0, number, world)
    tape.add(EventKind.EPOCH, 1.0, 0.001, 0, 1)
    now = 1.0
    for step in range(_STEPS):
        waits = wait_s if kind is EventKind.WAIT else 0.002
        tape.add(EventKind.WAIT, now, waits, step, 1)
        if kind is not EventKind.WAIT:
            tape.add(kind, now + waits, wait_s)
        own_s = waits + (0.0 if kind is EventKind.WAIT else wait_s) + 0.01
        tape.add(EventKind.FORWARD, now + own_s - 0.01, 0.01)
        tape.add(EventKind.BACKWARD, now + own_s, _STEP_S - own_s)
        now += _STEP_S
    tape.add(EventKind.WAIT, now, 0.001, -1, 1)
    return tape


def explain(*tapes: Tape, exit_code: int = 0) -> Findings:
    processes = [tape.process() for tape in tapes]
    return explain_processes(processes, start_ns=0, end_ns=round(6 * _S), cores=8, exit_code=exit_code)


def facts(found: Findings, language: str = "en") -> str:
    return "\n".join(fact.of(language) for fact in found.facts)


@pytest.mark.parametrize(
    ("kind", "what", "zh"),
    [
        (EventKind.WAIT, "waiting for data", "等数据"),
        (EventKind.CHECKPOINT, "saving", "保存"),
        (EventKind.LOGGING, "logging", "写日志"),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named_with_what_it_does(kind: EventKind, what: str, zh: str) -> None:
    found = explain(rank(0), rank(1, wait_s=0.05, kind=kind))
    said = facts(found)
    assert f"rank 1 (pid 101) holds the others up: {what} takes " in said
    assert "rank 0 (pid 100): waiting for data " in said
    assert "{" not in said
    assert f"的时间用于{zh}" in facts(found, "zh")


def test_ranks_that_have_the_same_to_do_hold_nobody_up() -> None:
    said = facts(explain(rank(0, wait_s=0.03), rank(1, wait_s=0.032)))
    assert "2 training processes" in said
    assert "holds the others up" not in said


def test_of_many_ranks_the_two_ends_are_shown() -> None:
    tapes = [rank(number, wait_s=0.002 + 0.001 * number, world=12) for number in range(12)]
    said = facts(explain(*tapes))
    assert "rank 0 (pid 100): waiting" in said
    assert "rank 11 (pid 111): waiting" in said
    assert "rank 5 (pid 105)" not in said


def raising(tape: Tape, at_s: float, text: str) -> Tape:
    tape.names[9] = f"Traceback (most recent call last):\n  File x\n{text}"
    tape.add(EventKind.EXCEPTION, at_s, 0.0, 0, 9)
    return tape


def test_the_rank_that_raised_first_is_told_and_not_its_echo() -> None:
    echo = raising(rank(0), 4.9, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:43")
    said = facts(explain(echo, raising(rank(1), 5.0, "ValueError: bad {sample}"), exit_code=1))
    assert "rank 1 (pid 101) ended first, after 40 batches and 5.00 s: ValueError: bad {sample}" in said
    assert "closed by peer" not in said


def test_a_rank_that_vanished_is_told_by_the_echo_of_the_others() -> None:
    echo = raising(rank(0), 4.9, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:43")
    said = facts(explain(echo, rank(1), exit_code=1))
    assert "rank 1 (pid 101) was gone after 40 batches without an exception" in said


LAUNCHER = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
ranks.py FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 100)
  traceback : Signal 15 (SIGTERM) received by PID 100
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 101)
  error_file: <N/A>
  traceback : {traceback}
"""


def test_what_a_launcher_says_of_a_killed_rank_is_told() -> None:
    text = LAUNCHER.format(code=-9, traceback="Signal 9 (SIGKILL) received by PID 101")
    found = explain(rank(0), rank(1), raising(Tape(99, ""), 5.0, text), exit_code=1)
    assert "rank 1 (pid 101) ended first, by SIGKILL, as its launcher says; 40 batches came before" in facts(found)
    assert "SIGTERM" not in str([one.evidence[0].en for one in found.findings])


def test_what_a_launcher_says_of_ranks_it_ended_itself_is_no_finding() -> None:
    text = LAUNCHER.format(code=1, traceback="To enable traceback see: https://pytorch.org/docs/")
    launcher = raising(Tape(99, ""), 5.1, text)
    found = explain(rank(0), raising(rank(1), 5.0, "ValueError: bad"), launcher, exit_code=1)
    assert "rank 1 (pid 101) ended first, after 40 batches and 5.00 s: ValueError: bad" in facts(found)
    assert [one.title.en for one in found.findings if one.title is not None] == ["ValueError: bad"]


def test_a_run_that_ended_well_or_by_nobody_knows_what_says_nothing_of_ends() -> None:
    assert "ended first" not in facts(explain(raising(rank(0), 4.9, "ValueError: x"), rank(1), exit_code=0))
    assert "gone" not in facts(explain(rank(0), rank(1), exit_code=1))
    assert "it ended after 40 batches" in facts(explain(raising(rank(0), 4.9, "ValueError: x"), exit_code=1))


def test_a_training_that_is_fed_by_another_thread_is_told_so() -> None:
    process = rank(0).process()
    events = process.events.copy()
    events["thread"][np.isin(events["kind"], [int(EventKind.WAIT), int(EventKind.EPOCH)])] = 1
    fed = ProcessEvents(process.pid, 1, "trainer", events, process.names)
    found = explain_processes([fed], start_ns=0, end_ns=round(6 * _S), cores=8)
    assert "another thread" in found.limits[0].en
    assert found.findings == ()
    activities = {row.activity.value: row.count for row in found.times}
    assert activities["backward"] == _STEPS
    assert "wait" not in activities
