"""Alarms: when they come, how often, and when a worker that is gone was lost."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.watch.alarms import AlarmSettings, AlarmState, MemoryLine
from headrace.watch.judging import Stillness
from headrace.watch.look import MachineLook, Rates, TrainerLook, WorkerLook
from headrace.watch.processes import End
from headrace.watch.reading import TrainerActivity, WorkerActivity

NOTHING = MachineLook()
GIB = 1 << 30


def trainer(pid: int = 10, same_for_s: float = 0.0) -> TrainerLook:
    waits = TrainerActivity.DATA_WAIT
    return TrainerLook(pid=pid, started=1, rank=None, command="python t.py", activity=waits, same_for_s=same_for_s)


def worker(pid: int, *, same_for_s: float = 0.0, cpu_share: float = 0.0, started: int = 5) -> WorkerLook:
    return WorkerLook(
        pid=pid,
        started=started,
        trainer_pid=10,
        name=f"worker {pid}",
        activity=WorkerActivity.BLOCKED,
        rates=Rates(cpu_share=cpu_share),
        same_for_s=same_for_s,
    )


def killed(pid: int, number: int = signal.SIGKILL) -> End:
    return End(pid=pid, status=int(number))


def kinds(state: AlarmState, at_s: float, workers: list[WorkerLook], *ended: End, gone: bool = False) -> list[str]:
    trainers = [] if gone else [trainer()]
    return [alarm.kind for alarm in state.handle(at_s, trainers, workers, NOTHING, ended)]


def test_the_line_of_memory() -> None:
    used = MachineLook(
        memory_used_bytes=19 * GIB, memory_limit_bytes=20 * GIB, memory_source="cgroup v2", tree_bytes=GIB
    )
    share = AlarmState(AlarmSettings(memory=MemoryLine.parse("90%")))
    (alarm,) = share.handle(1, [trainer()], [], used)
    assert alarm.what.en == "95 % of 20.0 GiB are in use (cgroup v2), more than 90 %"
    assert "95 %" in alarm.what.zh
    size = AlarmState(AlarmSettings(memory=MemoryLine.parse("512MiB")))
    (alarm,) = size.handle(1, [trainer()], [], used)
    assert alarm.what.en == "the training holds 1.00 GiB, more than 512 MiB"
    assert AlarmState(AlarmSettings(memory=MemoryLine.parse("96%"))).handle(1, [trainer()], [], used) == ()
    assert AlarmState(AlarmSettings(memory=None)).handle(1, [trainer()], [], used) == ()


@pytest.mark.parametrize("text", ["", "lots", "0%", "101%", "-3GiB", "%"])
def test_no_line_of_memory(text: str) -> None:
    with pytest.raises(ValueError, match="--memory"):
        MemoryLine.parse(text)


def test_swapping_in() -> None:
    state = AlarmState(AlarmSettings())
    assert state.handle(1, [trainer()], [], MachineLook(swap_in_bytes_per_s=4096.0)) == ()
    (alarm,) = state.handle(2, [trainer()], [], MachineLook(swap_in_bytes_per_s=5e6))
    assert alarm.kind == "swap_in"


def test_what_stays_wrong_is_told_again_only_after_a_while() -> None:
    state = AlarmState(AlarmSettings(stuck_s=60, again_after_s=300))
    told = [at for at in range(0, 1000, 10) if kinds(state, at, [worker(11, same_for_s=max(0, at - 5))])]
    assert told == [70, 370, 670, 970]


def test_what_comes_back_is_told_anew() -> None:
    state = AlarmState(AlarmSettings(stuck_s=60))
    assert kinds(state, 1, [worker(11, same_for_s=70)]) == ["stuck"]
    assert kinds(state, 2, [worker(11)]) == []
    assert kinds(state, 3, [worker(11, same_for_s=61)]) == ["stuck"]


def test_a_worker_that_computes_gets_more_time() -> None:
    state = AlarmState(AlarmSettings(stuck_s=60))
    assert kinds(state, 1, [worker(11, same_for_s=100, cpu_share=0.98)]) == []
    assert kinds(state, 2, [worker(11, same_for_s=301, cpu_share=0.98)]) == ["stuck"]


def test_a_trainer_that_does_not_get_on() -> None:
    state = AlarmState(AlarmSettings(stuck_s=60))
    assert [a.kind for a in state.handle(1, [trainer(same_for_s=61)], [], NOTHING)] == ["stuck"]


def test_a_killed_worker_is_told_at_once_and_once() -> None:
    state = AlarmState(AlarmSettings())
    assert kinds(state, 1, [worker(11), worker(12)]) == []
    assert kinds(state, 2, [worker(12)], killed(11)) == ["worker_gone"]
    assert kinds(state, 3, [worker(12)]) == []


def test_a_worker_that_dies_before_it_was_ever_seen() -> None:
    state = AlarmState(AlarmSettings())
    assert kinds(state, 1, [worker(11), worker(12)], killed(11)) == ["worker_gone"]


def test_the_end_of_an_epoch_is_no_alarm() -> None:
    for ends in ((End(pid=11, status=0), End(pid=12, status=0)), (End(pid=11), End(pid=12))):
        state = AlarmState(AlarmSettings())
        assert kinds(state, 1, [worker(11), worker(12)]) == []
        assert kinds(state, 2, [], *ends) == []
        assert kinds(state, 3, [worker(21, started=9000), worker(22, started=9000)]) == []
        assert kinds(state, 4, [worker(21, started=9000), worker(22, started=9000)]) == []


@pytest.mark.parametrize("end", [End(pid=11), killed(11, signal.SIGTERM)])
def test_a_worker_whose_end_tells_nothing_is_lost_if_its_siblings_stay(end: End) -> None:
    state = AlarmState(AlarmSettings())
    kinds(state, 1, [worker(11), worker(12)])
    assert kinds(state, 2, [worker(12)], end) == []  # the others may be ending, too
    assert kinds(state, 3, [worker(12)]) == ["worker_gone"]


def test_workers_that_end_with_their_trainer_are_not_told_each() -> None:
    state = AlarmState(AlarmSettings())
    kinds(state, 1, [worker(11), worker(12)])
    assert kinds(state, 2, [], killed(10, signal.SIGTERM), gone=True) == ["trainer_gone"]
    assert kinds(state, 3, [], gone=True) == []


def test_a_training_that_ends_well_is_no_alarm() -> None:
    state = AlarmState(AlarmSettings())
    kinds(state, 1, [worker(11)])
    assert kinds(state, 2, [], End(pid=10, status=0), End(pid=11, status=0), gone=True) == []


def test_stillness_needs_the_same_place_and_no_bytes_moved() -> None:
    still = Stillness()
    assert still.note("a", 100, 0.0) == 0
    assert still.note("a", 100, 2.0) == 2
    assert still.note("a", 164, 4.0) == 0  # a task came through the pipe: the same call, another sample
    assert still.note("a", 164, 6.0) == 2
    assert still.note("b", 164, 8.0) == 0
    assert still.note(None, 164, 9.0) == 0
    assert still.note("b", 164, 10.0) == 0


@given(st.lists(st.tuples(st.sets(st.integers(11, 14)), st.booleans(), st.sets(st.integers(10, 14))), max_size=12))
def test_whatever_comes_and_goes_no_process_is_reported_gone_twice(
    looks: list[tuple[set[int], bool, set[int]]],
) -> None:
    state = AlarmState(AlarmSettings())
    gone: list[int | None] = []
    over: set[int] = set()
    for at, (pids, is_there, ended) in enumerate(looks):
        trainers = [trainer()] if is_there and 10 not in over else []
        workers = [worker(pid) for pid in sorted(pids - over)]
        alarms = state.handle(float(at), trainers, workers, NOTHING, [killed(pid) for pid in ended - over])
        over |= ended
        gone += [alarm.pid for alarm in alarms if alarm.kind.endswith("_gone")]
    assert len(gone) == len(set(gone))
