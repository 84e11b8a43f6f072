"""Processes write into lanes of their own, however they were started, and nothing they write can hurt them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.model import EventKind
from headrace.signals.recording import Lane, Recorder, Recording, close_lane, open_lane, read_run
from headrace.signals.recording.area import NUM_LANES, Area, Word
from headrace.signals.recording.recorder import LaneDrain

DEADLINE_S = 60.0


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A recorder that this process and its children find."""
    with Recorder(tmp_path / "run") as recorder:
        for name, value in recorder.environment.items():
            monkeypatch.setenv(name, value)
        yield recorder
        close_lane()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def finish(recorder: Recorder, exit_code: int = 0) -> Recording:
    recorder.close(exit_code=exit_code)
    return read_run(recorder.directory)


_ALL_WAYS = """
import multiprocessing, os, sys, time
from headrace.signals.recording import open_lane
assert "numpy" not in sys.modules, "writing an event needs no NumPy"

def work(number):
    lane = open_lane(role="worker")
    lane.write(41, time.perf_counter_ns(), 5, number, lane.name("mine"))

if __name__ == "__main__":
    lane = open_lane(role="trainer")
    for number, way in enumerate(["fork", "spawn", "forkserver"]):
        process = multiprocessing.get_context(way).Process(target=work, args=(number,))
        process.start()
        process.join()
        assert process.exitcode == 0
        lane.write(11, time.perf_counter_ns(), 7, number)
"""


def test_children_of_every_start_method_take_part(recorder: Recorder, tmp_path: Path) -> None:
    script = tmp_path / "ways.py"
    script.write_text(_ALL_WAYS)
    assert subprocess.run([sys.executable, script], timeout=DEADLINE_S).returncode == 0
    run = finish(recorder)
    assert sorted(process.role for process in run.processes) == ["trainer", "worker", "worker", "worker"]
    samples = run.events_of(EventKind.SAMPLE)
    assert samples["value"].tolist() == [0, 1, 2]  # in the order of their start
    assert len(set(samples["pid"].tolist())) == 3
    assert [run.name_of(one["pid"], one["arg"]) for one in samples] == ["mine"] * 3
    assert run.events_of(EventKind.WAIT)["value"].tolist() == [0, 1, 2]
    assert (run.lost_records, run.problems) == (0, ())


def test_without_a_recording_there_is_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_RECORDING", raising=False)
    assert open_lane(role="trainer") is None


@pytest.mark.parametrize("place", ["nonsense", "/proc/self/fd/0:1", "/proc/999999999/fd/3:1", "/dev/null:0", ":"])
def test_a_recording_that_cannot_be_had_is_none(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("HEADRACE_RECORDING", place)
    assert open_lane() is None


def test_another_recording_at_the_same_place_is_not_ours(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    place = recorder.environment["HEADRACE_RECORDING"]
    monkeypatch.setenv("HEADRACE_RECORDING", place + "1")  # another token, as a pid that came back would have
    assert open_lane() is None


def test_the_first_to_say_a_role_decides(recorder: Recorder) -> None:
    lane = open_lane()
    assert lane is not None
    assert open_lane(role="trainer") is lane
    assert open_lane(role="worker") is lane
    (process,) = finish(recorder).processes
    assert (process.role, process.pid, process.parent) == ("trainer", os.getpid(), os.getppid())


def test_names_from_before_a_fork_hold_in_the_child(recorder: Recorder) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    before = lane.name("tensorboard")
    pid = os.fork()
    if not pid:
        try:
            lane.write(EventKind.LOGGING, 1, 2, 3, before)
            lane.write(EventKind.LOGGING, 2, 2, 4, lane.name("wandb"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    lane.write(EventKind.LOGGING, 3, 2, 5, before)
    run = finish(recorder)
    logged = run.events_of(EventKind.LOGGING)
    assert logged["pid"].tolist() == [pid, pid, os.getpid()]
    assert [run.name_of(one["pid"], one["arg"]) for one in logged] == ["tensorboard", "wandb", "tensorboard"]
    assert {process.pid: process.role for process in run.processes} == {os.getpid(): "trainer", pid: ""}


def test_a_fork_that_writes_nothing_takes_no_lane(recorder: Recorder) -> None:
    assert open_lane(role="trainer") is not None
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert [process.pid for process in finish(recorder).processes] == [os.getpid()]


def test_threads_have_numbers_and_names(recorder: Recorder) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    threads = [
        threading.Thread(target=lambda n=n: lane.write(EventKind.READ, n, 1, n), name=f"reader-{n}") for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lane.write(EventKind.WAIT, 9, 1)
    run = finish(recorder)
    assert run.events_of(EventKind.WAIT)["thread"].tolist() == [0]
    names = {one["thread"]: run.name_of(one["pid"], one["arg"]) for one in run.events_of(EventKind.THREAD)}
    reads = run.events_of(EventKind.READ)
    told = {names[one["thread"]] for one in reads}
    # a thread that begins when another has ended may get its identity, and then has its number too
    assert told <= {"reader-0", "reader-1", "reader-2"}
    assert 0 not in reads["thread"].tolist()


def test_many_threads_lose_and_repeat_nothing(recorder: Recorder) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    num_threads, each = 8, 3000

    def write(first: int) -> None:
        for number in range(first, first + each):
            lane.write(EventKind.SAMPLE, number, 1, number)

    threads = [threading.Thread(target=write, args=(n * each,)) for n in range(num_threads)]
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            recorder.step()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch_s)
    run = finish(recorder)
    values = run.events_of(EventKind.SAMPLE)["value"].tolist()
    assert len(set(values)) == len(values)
    assert len(values) + run.lost_records == num_threads * each
    assert run.lost_records == 0 or len(values) > 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"value": 1 << 70}, {"value": (1 << 63) - 1}),
        ({"value": -(1 << 70)}, {"value": -(1 << 63) + 1}),
        ({"value": 2.75}, {"value": 2}),
        ({"value": float("nan")}, {"value": 0}),
        ({"value": "seven"}, {"value": 0}),
        ({"value": None, "arg": -1}, {"value": 0, "arg": 0}),
        ({"value": np.int64(5)}, {"value": 5}),
        ({"duration_ns": -1}, {"duration_ns": 0}),
    ],
)
def test_whatever_is_written_nothing_is_raised(recorder: Recorder, given: dict[str, object], kept: object) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    lane.write(**{"kind": EventKind.PHASE, "start_ns": 1, "duration_ns": 1, **given})  # type: ignore[arg-type]
    run = finish(recorder)
    (event,) = run.events_of(EventKind.PHASE)
    assert {name: int(event[name]) for name in kept} == kept  # type: ignore[attr-defined]
    assert run.lost_records == 0


def test_more_than_a_ring_holds_keeps_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(tmp_path / "run", area=Area.create(num_lanes=1, lane_records=64)) as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        lane = open_lane()
        assert lane is not None
        for number in range(1000):
            lane.write(EventKind.SAMPLE, number, 0)
        close_lane()
        run = finish(recorder)
    assert run.events["start_ns"].tolist() == list(range(936, 1000))
    assert run.lost_records == 936
    assert any("936 events were overwritten" in problem for problem in run.problems)


def test_names_beyond_a_lanes_room_are_refused_and_said(recorder: Recorder) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    numbers = [lane.name(f"{n}-" + "x" * 900) for n in range(50)]
    assert numbers[:3] == [2, 3, 4]
    assert numbers[-1] == 0
    lane.write(EventKind.PHASE, 1, 1, 0, numbers[0])
    lane.write(EventKind.PHASE, 2, 1, 0, numbers[-1])
    run = finish(recorder)
    texts = [run.name_of(one["pid"], one["arg"])[:2] for one in run.events_of(EventKind.PHASE)]
    assert texts == ["0-", ""]
    assert any("names found no room" in problem for problem in run.problems)


def test_a_name_of_any_script_arrives_whole(recorder: Recorder) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    lane.write(EventKind.PHASE, 1, 1, 0, lane.name("保存检查点"))
    lane.write(EventKind.PHASE, 2, 1, 0, lane.name("bad \udc80 name"))
    run = finish(recorder)
    first, second = run.events_of(EventKind.PHASE)
    assert run.name_of(first["pid"], first["arg"]) == "保存检查点"
    assert run.name_of(second["pid"], second["arg"]).startswith("bad ")


_HOLD = """
import sys, time
from headrace.signals.recording import open_lane
lane = open_lane(role="worker")
print("none" if lane is None else "open", flush=True)
if lane is not None:
    lane.write(41, time.perf_counter_ns(), 1, int(sys.argv[1]))
print("wrote", flush=True)
sys.stdin.read()
"""


def hold(number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLD, str(number)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip(), process.stdout.readline().strip()]


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=DEADLINE_S)


def test_more_processes_than_lanes_then_lanes_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(tmp_path / "run", area=Area.create(num_lanes=2, lane_records=64)) as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        first, second = hold(1), hold(2)
        assert [said(first)[0], said(second)[0]] == ["open", "open"]
        third = hold(3)
        assert said(third)[0] == "none"  # and it went on
        end(first)
        recorder.step()  # finds it gone, and frees its lane
        fourth = hold(4)
        assert said(fourth)[0] == "open"
        for process in (second, third, fourth):
            end(process)
        run = finish(recorder)
    assert sorted(run.events_of(EventKind.SAMPLE)["value"].tolist()) == [1, 2, 4]
    assert len(run.processes) == 3
    assert any("1 time a process found no free lane among 2" in problem for problem in run.problems)
    assert run.lost_records == 0


def test_a_child_without_a_free_lane_writes_into_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(tmp_path / "run", area=Area.create(num_lanes=1, lane_records=64)) as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        lane = open_lane(role="trainer")
        assert lane is not None
        pid = os.fork()
        if not pid:
            try:
                lane.write(EventKind.SAMPLE, 1, 1)
                os._exit(7 if not lane.is_recording else 8)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        close_lane()
        run = finish(recorder)
    assert len(run.events_of(EventKind.SAMPLE)) == 0


def test_a_lane_outlives_its_recorder(recorder: Recorder) -> None:
    lane = open_lane(role="trainer")
    assert lane is not None
    run = finish(recorder)
    lane.write(EventKind.WAIT, 1, 1)
    lane.close()
    lane.write(EventKind.WAIT, 1, 1)
    lane.close()
    assert len(run.events_of(EventKind.WAIT)) == 0
    assert repr(lane) == "Lane(not recording)"


def test_what_a_killed_process_wrote_is_still_there(recorder: Recorder) -> None:
    process = hold(5)
    assert said(process) == ["open", "wrote"]
    process.send_signal(signal.SIGKILL)
    end(process)
    run = finish(recorder, exit_code=-9)
    assert run.events_of(EventKind.SAMPLE)["value"].tolist() == [5]
    assert (run.facts.exit_code, run.facts.exit_signal) == (None, 9)
    assert run.processes[0].end_ns is not None


def test_a_record_that_its_thread_never_finished_is_counted_once() -> None:
    area = Area.create(num_lanes=1, lane_records=64)
    lane, drain = Lane(area), LaneDrain(area)
    lane.write(EventKind.WAIT, 1, 1)
    lane._next()  # as an interrupt between taking a number and filling its record does
    lane.write(EventKind.WAIT, 2, 1)
    (block,) = [block for _, _, block in drain.drain()[0]]
    assert block["start_ns"].tolist() == [1, 2]
    assert drain.num_lost == 0  # it may still come
    drain.drain()
    assert drain.num_lost == 1
    drain.drain()
    assert drain.num_lost == 1
    lane.close()
    area.close()


def test_a_freed_lane_is_empty_for_the_next() -> None:
    area = Area.create(num_lanes=1, lane_records=64)
    first = area.claim()
    assert first is not None
    first.words[Word.CURSOR] = 5
    first.ring[:4] = b"abcd"
    first.names[:4] = b"abcd"
    assert area.claim() is None
    area.free(first)
    second = area.claim()
    assert second is not None
    assert (second.words[Word.CURSOR], bytes(second.ring[:4]), bytes(second.names[:4])) == (0, bytes(4), bytes(4))
    assert area.claimed() == [0]
    area.close()


def test_an_area_costs_only_what_is_written() -> None:
    area = Area.create()
    assert area.num_lanes == NUM_LANES
    assert os.fstat(area._own.fd).st_blocks * 512 < 1 << 16
    area.close()
