"""A run directory is readable at any moment, whoever was killed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import UnusableInput
from headrace.model import EventKind
from headrace.signals.recording import Recorder, Recording, RunFacts, read_run
from headrace.signals.recording.event_file import EVENTS_FILE, AppendedFile, FrameType, file_head, frame, note
from headrace.signals.recording.run_facts import RUN_FILE
from headrace.signals.recording.system_samples import SYSTEM_FILE

DEADLINE_S = 60.0

# A training that writes an event every millisecond and starts a worker that does, too.
_TRAINER = """
import os, sys, time
from headrace.signals.recording import open_lane
lane = open_lane(role="trainer")
pid = os.fork()
open_lane(role="trainer" if pid else "worker")
number = 0
while True:
    start = time.perf_counter_ns()
    time.sleep(0.001)
    lane.write(11 if pid else 41, start, time.perf_counter_ns() - start, number)
    number += 1
"""

# The recorder with its training, as `headrace run` has it; says the training's pid.
_RECORDER = """
import os, subprocess, sys
from headrace.signals.recording import Recorder, RunFacts
command = [sys.executable, "-c", sys.argv[2]]
with Recorder(sys.argv[1], interval_s=0.05, sample_interval_s=0.1, facts=RunFacts.here(command)) as recorder:
    child = subprocess.Popen(command, env={**os.environ, **recorder.environment}, start_new_session=True)
    recorder.watch(child.pid)
    recorder.start()
    print(child.pid, flush=True)
    recorder.close(exit_code=child.wait())
"""


class Session:
    """A recorder process and its training."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-c", _RECORDER, str(directory), _TRAINER]
        self.recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.recorder.stdout is not None
        self.trainer_pid = int(self.recorder.stdout.readline())

    def kill_training(self) -> None:
        os.killpg(self.trainer_pid, signal.SIGKILL)

    def close(self) -> None:
        try:
            self.kill_training()
        except ProcessLookupError:
            pass
        self.recorder.kill()
        self.recorder.communicate(timeout=DEADLINE_S)


@pytest.fixture
def session(tmp_path: Path):  # type: ignore[no-untyped-def]
    session = Session(tmp_path / "run")
    yield session
    session.close()


def read_until(directory: Path, is_enough: Callable[[Recording], bool]) -> Recording:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        run = read_run(directory)
        if is_enough(run):
            return run
        assert time.monotonic() < deadline, run
        time.sleep(0.05)


def has_both(run: Recording) -> bool:
    has_events = all(len(run.events_of(kind)) > 20 for kind in (EventKind.WAIT, EventKind.SAMPLE))
    return has_events and any(len(sample.processes) > 1 for sample in run.system)


def check(run: Recording, trainer_pid: int) -> None:
    """What holds of every recording of that training, whenever it was cut off."""
    trainer, worker = (next(p for p in run.processes if p.role == role) for role in ("trainer", "worker"))
    assert (trainer.pid, worker.parent) == (trainer_pid, trainer_pid)
    for kind, process in ((EventKind.WAIT, trainer), (EventKind.SAMPLE, worker)):
        events = run.events_of(kind, process.pid)
        assert np.diff(events["value"]).tolist() == [1] * (len(events) - 1)  # none lost, none twice
        assert events["value"][0] == 0
        assert (events["duration_ns"] >= 1_000_000).all()
        assert (events["start_ns"] >= run.facts.start_monotonic_ns).all()
        assert (np.diff(run.events["start_ns"]) >= 0).all()
    sample = next(one for one in run.system if one.process(worker.pid) is not None)
    known = sample.process(worker.pid)
    assert known is not None
    assert (known.parent, known.threads) == (trainer_pid, 1)
    assert run.lost_records == 0


def test_it_can_be_read_while_it_is_written(session: Session, tmp_path: Path) -> None:
    run = read_until(tmp_path / "run", has_both)
    check(run, session.trainer_pid)
    assert not run.facts.is_finished
    assert any("has not written an end" in problem for problem in run.problems)
    assert session.recorder.poll() is None


def test_the_training_is_killed(session: Session, tmp_path: Path) -> None:
    read_until(tmp_path / "run", has_both)
    session.kill_training()
    session.recorder.wait(DEADLINE_S)
    run = read_run(tmp_path / "run")
    check(run, session.trainer_pid)
    assert (run.facts.exit_code, run.facts.exit_signal) == (None, signal.SIGKILL)
    assert run.facts.duration_s is not None
    assert run.problems == ()
    # its worker, an orphan now, may still be ending when the recorder has nothing more to wait for
    assert all(process.end_ns is not None for process in run.processes if process.role == "trainer")


def test_the_recorder_is_killed_and_the_training_goes_on(session: Session, tmp_path: Path) -> None:
    read_until(tmp_path / "run", has_both)
    session.recorder.kill()
    session.recorder.wait(DEADLINE_S)
    os.kill(session.trainer_pid, 0)
    run = read_run(tmp_path / "run")
    check(run, session.trainer_pid)
    assert (run.facts.exit_code, run.facts.exit_signal, run.facts.duration_s) == (None, None, None)
    assert run.end_ns >= int(run.events["start_ns"][-1])


def test_both_are_killed_at_once(session: Session, tmp_path: Path) -> None:
    read_until(tmp_path / "run", has_both)
    session.recorder.kill()
    session.kill_training()
    session.recorder.wait(DEADLINE_S)
    check(read_run(tmp_path / "run"), session.trainer_pid)


def test_a_torn_tail_is_said_and_costs_only_itself(session: Session, tmp_path: Path) -> None:
    read_until(tmp_path / "run", has_both)
    session.close()
    whole = read_run(tmp_path / "run")
    torn = tmp_path / "torn"
    shutil.copytree(tmp_path / "run", torn)
    for name in (EVENTS_FILE, SYSTEM_FILE):
        os.truncate(torn / name, (torn / name).stat().st_size - 5)
    run = read_run(torn)
    assert 0 < len(run.events) < len(whole.events)
    assert len(run.system) == len(whole.system) - 1
    assert any(problem.startswith("events.bin: its last frame is cut off") for problem in run.problems)
    assert any(problem.startswith("system.jsonl: its last line is cut off") for problem in run.problems)


def test_the_facts_of_a_run(tmp_path: Path) -> None:
    before = time.time()
    with Recorder(tmp_path / "run", facts=RunFacts.here(["python", "train.py"])) as recorder:
        recorder.step()
        assert "records=0" in repr(recorder)
        recorder.close(exit_code=3)
        recorder.close(exit_code=4)  # safe, and without effect
    assert recorder.step() == 0
    facts = read_run(tmp_path / "run").facts
    assert facts == recorder.facts
    assert (facts.command, facts.exit_code, facts.is_finished) == (("python", "train.py"), 3, True)
    assert before <= facts.start_wall_s <= time.time()
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts.versions["numpy"] == np.__version__
    assert (facts.gpus is None) == bool(facts.gpu_note)
    document = json.loads((tmp_path / "run" / RUN_FILE).read_text())
    assert document["schema"] == "headrace/run/1"
    assert document["duration_s"] == facts.duration_s


def test_an_argument_that_is_no_unicode_is_kept(tmp_path: Path) -> None:
    argument = os.fsdecode(b"data-\xff.npz")
    with Recorder(tmp_path / "run", facts=RunFacts(command=("数据", argument))):
        pass
    assert read_run(tmp_path / "run").facts.command == ("数据", argument)


def test_an_observer_sees_each_drain_and_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.signals.recording import close_lane, open_lane

    seen: list[tuple[int, int]] = []

    def observe(pid: int, block: object) -> None:
        seen.append((pid, len(block)))  # type: ignore[arg-type]
        raise RuntimeError("an observer's own trouble")

    with Recorder(tmp_path / "run", observer=observe) as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        lane = open_lane()
        assert lane is not None
        for number in range(3):
            lane.write(EventKind.WAIT, number, 1)
        assert recorder.step() == 3
        close_lane()
    assert seen == [(os.getpid(), 3)]
    assert len(read_run(tmp_path / "run").events) == 3


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_task_that_was_never_ended_is_told_of(tmp_path: Path, is_killed: bool) -> None:
    """A worker says that it took a task by one store; the rest before it may be kept back, and die with the worker."""
    working = (
        "import os, time\n"
        "from headrace.signals.recording import KeptEvents, open_lane\n"
        "lane = open_lane(role='worker')\n"
        "kept = KeptEvents(lane)\n"
        f"kept.keep({EventKind.IDLE:d}, 5, 1)\n"
        "lane.mark_task(6)\n"
        f"kept.keep({EventKind.FETCH:d}, 6, 10)\n"
        "lane.mark_task(0)\n"
        f"kept.{f'keep({EventKind.IDLE:d}, 16, 4)' if is_killed else 'write()'}\n"
        f"lane.mark_task({20 if is_killed else 0})\n"
        "print('ready', flush=True)\n"
        f"time.sleep({600 if is_killed else 0})\n"
    )
    with Recorder(tmp_path / "run") as recorder:
        environment = {**os.environ, **recorder.environment}
        worker = subprocess.Popen([sys.executable, "-c", working], env=environment, stdout=subprocess.PIPE)
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        if is_killed:
            worker.kill()
        worker.wait(DEADLINE_S)
        worker.stdout.close()
        recorder.close(exit_code=0)
    run = read_run(tmp_path / "run")
    idle, fetches = run.events_of(EventKind.IDLE, worker.pid), run.events_of(EventKind.FETCH, worker.pid)
    if is_killed:
        assert [(int(one["start_ns"]), int(one["duration_ns"])) for one in idle] == [(20, 0)]
        assert len(fetches) == 0
    else:
        assert [(int(one["start_ns"]), int(one["duration_ns"])) for one in idle] == [(5, 1)]
        assert len(fetches) == 1


def test_a_ring_that_fills_fast_is_drained_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.signals.recording import close_lane, open_lane
    from headrace.signals.recording.area import Area

    area = Area.create(num_lanes=1, lane_records=64)
    with Recorder(tmp_path / "run", interval_s=0.4, area=area) as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        lane = open_lane()
        assert lane is not None
        for number in range(40):
            lane.write(EventKind.WAIT, number, 1)
        recorder.step()
        assert recorder.pause_s == 0.2
        for _ in range(5):
            recorder.step()
        assert recorder.pause_s == 0.4
        close_lane()


def test_a_directory_that_holds_a_recording_is_refused(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run"):
        pass
    with pytest.raises(UnusableInput, match="holds a recording already") as caught:
        Recorder(tmp_path / "run")
    assert "another directory" in caught.value.next_step


def test_what_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="there is no run directory"):
        read_run(tmp_path / "nowhere")
    run = read_run(tmp_path)
    assert len(run.events) == 0
    assert any("run.json cannot be read" in problem for problem in run.problems)


@pytest.mark.parametrize("name", [EVENTS_FILE, SYSTEM_FILE, RUN_FILE])
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"[]", b"{}\n", b'{"schema": "other/1", "fields": {}}\n', b"\xff"]
)
def test_foreign_content_is_a_problem_not_a_crash(tmp_path: Path, name: str, content: bytes) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.step()
    (tmp_path / "run" / name).write_bytes(content)
    run = read_run(tmp_path / "run")
    assert run.problems or (name == SYSTEM_FILE and not content) or name == EVENTS_FILE
    assert "Recording(" in repr(run)


def test_a_pid_that_came_back_keeps_its_names_apart(tmp_path: Path) -> None:
    def process(number: int, text: str) -> bytes:
        record = np.zeros(1, [("a", "<u8", 3), ("arg", "<u4"), ("thread", "<u2"), ("kind", "u1"), ("lap", "u1")])
        record["arg"], record["kind"] = 1, EventKind.PHASE
        return (
            note(0, number, {"note": "process", "pid": 77, "parent": 1, "start_ns": number})
            + note(0, number, {"note": "names", "names": [text]})
            + frame(FrameType.RECORDS, 0, number, 1, record.tobytes())
        )

    (tmp_path / EVENTS_FILE).write_bytes(file_head() + process(1, "first") + process(2, "second"))
    run = read_run(tmp_path)
    assert [run.name_of(one["pid"], one["arg"]) for one in run.events] == ["first", "second"]
    assert [process.pid for process in run.processes] == [77, 77]


_FILL = """
import resource, signal, sys
from pathlib import Path
from headrace.signals.recording.event_file import AppendedFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing beyond the limit is an error, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = AppendedFile(Path(sys.argv[1]))
assert file.append(b"x" * 900)
assert not file.append(b"y" * 900)
assert file.append(b"z" * 100)
assert not file.append(b"y")
assert len(file.problems) == 1 and "could not be written 2 times" in file.problems[0], file.problems
"""


def test_a_full_disk_takes_back_the_half_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = subprocess.run([sys.executable, "-c", _FILL, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == b"x" * 900 + b"z" * 100
    assert "cannot write" in done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        AppendedFile(tmp_path / "file")


@pytest.mark.parametrize("wrong", [{"interval_s": 0}, {"sample_interval_s": -1}])
def test_intervals_must_be_more_than_nothing(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Recorder(tmp_path / "run", **wrong)  # type: ignore[arg-type]
