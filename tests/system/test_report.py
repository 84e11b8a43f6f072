"""`headrace run --report`: what a recording says, afterwards, and of whatever wrote it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.model import EventKind
from headrace.signals.recording import read_run

from .test_cli import _environment
from .test_run_command import _DEADLINE_S, run, script

MONITORED = """
import os, sys, time
import headrace

path = os.environ.get("PYTHONPATH")
watched = headrace.monitor([1] * 40, record=sys.argv[1] if sys.argv[1] != "True" else True)
print(watched.recorded_in, flush=True)
for number, item in enumerate(watched):
    time.sleep(0.002)
    if number == 20:
        with headrace.phase("checkpoint"):
            time.sleep(0.3)
        if sys.argv[2] == "raises":
            raise ValueError("sample 20")
        if sys.argv[2] == "waits":
            print("ready", flush=True)
            time.sleep(600)
        if sys.argv[2] == "ends":
            watched.end_recording()
            assert "HEADRACE_RECORDING" not in os.environ
            assert os.environ.get("PYTHONPATH") == path
            watched.end_recording()
assert watched.stats().batches == 40
"""

STARTED = """
import sys
import torch
import headrace
from torch.utils.data import DataLoader

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.zeros(4)

if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Samples(), batch_size=4, num_workers=1, multiprocessing_context=sys.argv[2])
    for batch in headrace.monitor(loader, record=sys.argv[1]):
        pass
"""


def report(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return run("--report", directory, *options, cwd=directory.parent)


def monitored(
    tmp_path: Path, kind: str, record: str | None = None, rank: str = ""
) -> "subprocess.CompletedProcess[str]":
    path = script(tmp_path, MONITORED)
    return subprocess.run(
        [sys.executable, str(path), record or str(tmp_path / "run"), kind],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment({"RANK": rank} if rank else None),
        timeout=_DEADLINE_S,
    )


def files_of(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_line_of_code_leaves_a_recording_that_can_be_reported(tmp_path: Path) -> None:
    done = monitored(tmp_path, "plain")
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "run") == {"events.bin", "run.json", "system.jsonl"}
    told = report(tmp_path / "run", "--json", str(tmp_path / "why.json"))
    assert told.returncode == 1, told.stderr
    found = json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))
    assert "checkpoint" in [finding["cause"] for finding in found["findings"]]
    assert sum(row["share"] for row in found["times"]) == pytest.approx(1, abs=0.01)
    assert "no end was written" not in told.stdout
    assert told.stderr == ""
    assert "里的录制" in report(tmp_path / "run", "--lang", "zh").stdout
    assert report(tmp_path / "run", "-q").stdout.count("\n") == 1


def test_true_makes_a_directory_and_a_chosen_end_is_an_end(tmp_path: Path) -> None:
    done = monitored(tmp_path, "ends", "True")
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "headrace-runs").iterdir()
    assert directory.name.startswith("script-")
    assert done.stdout.strip() == str(directory.relative_to(tmp_path))
    facts = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    assert facts["end_monotonic_ns"] is not None


def test_ranks_have_directories_of_their_own(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        done = monitored(tmp_path, "plain", rank=rank)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"run", "run-rank1"}
    again = monitored(tmp_path, "plain")
    assert again.returncode == 1
    assert "holds a recording already" in again.stderr


def test_an_exception_leaves_the_exit_code_and_the_traceback(tmp_path: Path) -> None:
    done = monitored(tmp_path, "raises")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("ValueError: sample 20")
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["exit_code"] == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_after_a_kill_or_an_interrupt_it_can_be_read(tmp_path: Path, number: signal.Signals) -> None:
    path = script(tmp_path, MONITORED)
    running = subprocess.Popen(
        [sys.executable, str(path), str(tmp_path / "run"), "waits"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
    )
    assert running.stdout is not None
    assert [running.stdout.readline().strip() for _ in range(2)] == [str(tmp_path / "run"), "ready"]
    deadline = time.monotonic() + _DEADLINE_S
    while (tmp_path / "run" / "events.bin").stat().st_size < 20 * 32 and time.monotonic() < deadline:
        time.sleep(0.05)  # the pause between two looks
    running.send_signal(number)
    running.wait(_DEADLINE_S)
    running.stdout.close()
    assert files_of(tmp_path / "run") == {"events.bin", "run.json", "system.jsonl"}
    told = report(tmp_path / "run")
    assert told.returncode in (0, 1), told.stderr
    assert ("no end was written down" in told.stdout) == (number == signal.SIGKILL)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_workers_that_are_not_forked_are_recorded(tmp_path: Path, method: str) -> None:
    done = subprocess.run(
        [sys.executable, str(script(tmp_path, STARTED)), str(tmp_path / "run"), method],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    recording = read_run(tmp_path / "run")
    (worker,) = (one for one in recording.processes if one.role == "worker")
    assert len(recording.events_of(EventKind.FETCH, worker.pid)) == 24 / 4
    assert len(recording.events_of(EventKind.SAMPLE, worker.pid)) >= 4  # of the first task at least
    assert not (tmp_path / "run" / "not-timed.txt").exists()


def test_what_is_no_recording_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, said in (("nowhere", "no run directory"), ("empty", "holds no recording")):
        told = report(tmp_path / name)
        assert (told.returncode, told.stdout) == (2, "")
        assert said in told.stderr
    told = run("--report", tmp_path / "empty", "train.py", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert "runs nothing" in told.stderr


def test_under_run_the_recording_is_the_runs(tmp_path: Path) -> None:
    path = script(tmp_path, MONITORED)
    done = run("--out", tmp_path / "outer", path, str(tmp_path / "inner"), "plain", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "None\n")
    assert not (tmp_path / "inner").exists()
    assert os.path.exists(tmp_path / "outer" / "findings.json")
