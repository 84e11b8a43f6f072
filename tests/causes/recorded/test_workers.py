"""Workers that hang: named where a run was ended while it waited for one, and where our loader replaced one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.causes.recorded import ProcessEvents, explain_processes
from headrace.model import EventKind, Findings, Severity

from .test_recorded import Tape, causes, simulate

_S = 1_000_000_000


def hung(
    stuck_s: float, *, task_s: float = 0.02, sees_end: bool = True, exit_code: int = 130, workers: int = 2
) -> Findings:
    """A run in which worker 0 took a task and never ended it; `sees_end`: the interpreter could still write."""
    processes, end_s = simulate(workers=workers, task_s=[task_s] * 40, step_s=0.05)
    begun = end_s - 0.5
    end_s = begun + stuck_s
    trainer = _without_end(processes[0])
    more = [(begun, 0.02, 0, EventKind.QUEUE_GET, 1)]
    if sees_end:
        more.append((begun, stuck_s - 0.001, 40, EventKind.WAIT, 1))
    else:
        more += [(begun + 0.05 + place, 1.0, 0, EventKind.QUEUE_GET, 1) for place in range(int(stuck_s) - 1)]
    trainer = _with(trainer, more)
    first = _with(processes[1], [(begun - 0.02, 0.02, 0, EventKind.IDLE, 0)])
    return explain_processes(
        [trainer, first, *processes[2:]], start_ns=0, end_ns=round(end_s * _S), cores=8, exit_code=exit_code
    )


def _without_end(process: ProcessEvents) -> ProcessEvents:
    is_end = (process.events["kind"] == int(EventKind.WAIT)) & (process.events["value"] < 0)
    return ProcessEvents(process.pid, process.parent_pid, process.role, process.events[~is_end], process.names)


def _with(process: ProcessEvents, rows: list[tuple[float, float, int, EventKind, int]]) -> ProcessEvents:
    events = np.zeros(len(rows), process.events.dtype)
    for place, (start_s, length_s, value, kind, arg) in enumerate(rows):
        events[place] = (round(start_s * _S), round(length_s * _S), value, process.pid, arg, 0, int(kind))
    whole = np.sort(np.concatenate([process.events, events]), order="start_ns")
    return ProcessEvents(process.pid, process.parent_pid, process.role, whole, process.names)


@settings(max_examples=10)
@given(stuck_s=st.floats(6.0, 600.0), sees_end=st.booleans(), workers=st.integers(1, 4))
def test_a_run_that_was_ended_while_a_worker_hung_says_so(stuck_s: float, sees_end: bool, workers: int) -> None:
    found = hung(stuck_s, sees_end=sees_end, workers=workers)
    assert causes(found)[0] == "worker_hang"
    first = found.findings[0]
    assert (first.share, first.severity) == (1.0, Severity.FATAL)
    assert "worker 200" in first.evidence[0].en
    assert "headrace watch" in first.fix[0].en


def test_a_run_that_ended_well_had_no_hung_worker() -> None:
    assert "worker_hang" not in causes(hung(60.0, exit_code=0))


def test_a_short_wait_at_the_end_is_no_hang() -> None:
    assert "worker_hang" not in causes(hung(3.0))


def test_a_task_as_long_as_others_is_no_hang() -> None:
    assert "worker_hang" not in causes(hung(8.0, task_s=4.0))


def test_workers_of_earlier_epochs_do_not_hang() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.02] * 40, step_s=0.05)
    # told to end: its last event is the end of idling; long before the run was interrupted in a step
    old = Tape(300, "worker")
    old.add(EventKind.FETCH, 0.2, 0.02, 0)
    old.add(EventKind.IDLE, 0.3, 0.1)
    found = explain_processes(
        [*processes, old.process()], start_ns=0, end_ns=round((end_s + 60) * _S), cores=8, exit_code=130
    )
    assert "worker_hang" not in causes(found)


@pytest.mark.parametrize(("hang_s", "expected"), [(6.0, ["worker_hang"]), (0.05, [])])
def test_hangs_that_our_loader_got_over_are_told_where_they_cost_enough(hang_s: float, expected: list[str]) -> None:
    tasks = 0.02 * np.ones(100)
    tasks[50] = hang_s
    processes, end_s = simulate(workers=2, task_s=list(tasks), step_s=0.05)
    waits = processes[0].of(EventKind.WAIT)
    (late,) = waits[waits["value"] == 50]
    trainer = _with(processes[0], [(late["start_ns"] / _S, hang_s, 200, EventKind.WORKER_HANG, 0)])
    found = explain_processes([trainer, *processes[1:]], start_ns=0, end_ns=round(end_s * _S), cores=8, exit_code=0)
    assert causes(found) == expected
