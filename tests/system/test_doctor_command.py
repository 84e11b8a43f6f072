"""`headrace doctor` and `headrace quick` as a user runs them: stdout, stderr, exit code, what stays behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headrace.signals.system import read_all_stats

from .test_cli import HEADRACE, run

DATA = """\
import time
import numpy as np
import torch
import headrace
from torch.utils.data import DataLoader, Dataset

class Volumes(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        with headrace.stage("make"):
            return {"volume": torch.full((2, 3, 4), float(index)), "label": index}

class Truncated(Volumes):
    def __getitem__(self, index):
        raise EOFError("No data left in file")

class Ragged(Volumes):
    def __getitem__(self, index):
        return torch.zeros(3 + index % 2)

class Stuck(Volumes):
    def __getitem__(self, index):
        time.sleep(3600)

class SlowInWorkers(Volumes):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and index % 8 == 7:
            time.sleep(3600)
        return torch.zeros(1 << 20)

def loader():
    return DataLoader(Volumes(), batch_size=4, num_workers=2)
"""


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "volumes.py"
    path.write_text(DATA)
    return str(path)


def test_quick_says_what_is_in_a_sample_and_a_batch(data: str) -> None:
    done = run("quick", f"{data}:loader")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == [f"{data}:loader:", "Volumes"]
    assert ["volume", "Tensor", "2×3×4", "float32", "96", "B"] in lines
    assert ["volume", "Tensor", "4×2×3×4", "float32", "384", "B"] in lines
    assert ["label", "Tensor", "4", "int64", "32", "B"] in lines
    assert any(line[-1:] == ["make"] for line in lines)
    assert done.stdout.splitlines()[-1] == f"Next: `headrace doctor {data}:loader` tests it with workers."


def test_quick_takes_a_first_batch_from_a_sampler_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "weighted.py"
    path.write_text(
        "from torch.utils.data import DataLoader, WeightedRandomSampler\n"
        "data = [float(number) for number in range(100)]\n"
        "loader = DataLoader(data, batch_size=4, sampler=WeightedRandomSampler([1.0] * 100, 100))\n"
    )
    done = run("quick", f"{path}:loader")
    assert done.returncode == 0, done.stdout


def test_quick_shows_the_traceback_and_what_it_means(data: str) -> None:
    done = run("quick", f"{data}:Truncated")
    assert done.returncode == 1
    assert f'File "{data}", line 16, in __getitem__' in done.stdout
    assert "EOFError: No data left in file" in done.stdout
    assert "KB-33" in done.stdout
    chinese = run("quick", f"{data}:Ragged", "--lang", "zh").stdout
    assert "拼" in chinese
    assert "stack expects each tensor to be equal size" in chinese


def test_quick_as_a_document(data: str) -> None:
    done = run("quick", f"{data}:Volumes", "--json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["findings"]) == ("headrace/findings/1", [])
    assert [check["name"] for check in document["checks"]] == ["import", "sample", "loader"]
    assert document["batch"][0] == ["volume", "Tensor", [8, 2, 3, 4], "float32", 768]
    assert {"import", "sample", "make", "batch", "collate"} == set(document["times"])


def test_doctor_finds_the_cause_and_says_what_to_do(data: str) -> None:
    done = run("doctor", f"{data}:Ragged", "--lang", "en")
    assert done.returncode == 1
    assert "FAIL  loader in-process" in done.stdout
    assert "have different shapes" in done.stdout
    assert "SKIP  benchmark" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"then `headrace doctor {data}:Ragged` again")
    document = json.loads(run("doctor", f"{data}:Ragged", "--json", "--lang", "zh").stdout)
    wrong = [check for check in document["checks"] if check["name"] == "loader"]
    assert [(check["problem"], check["outcome"]) for check in wrong] == [("shapes_differ", "fail")]
    assert "形状不同" in wrong[0]["says"]


def test_no_such_target_could_not_run(tmp_path: Path) -> None:
    done = run("quick", f"{tmp_path}/none.py:data")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no file" in done.stderr


def test_interrupted_while_workers_run_it_leaves_nothing_behind(data: str, tmp_path: Path) -> None:
    own = tmp_path / "temporary"
    own.mkdir()
    command, env = [HEADRACE, "doctor", f"{data}:SlowInWorkers"], {**os.environ, "TMPDIR": str(own)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        deadline = time.monotonic() + 60
        while not list(own.glob("headrace-doctor-*/worker-1")):  # both have started
            assert time.monotonic() < deadline
            time.sleep(0.05)
        sessions = _sessions_below(process.pid)
        pids = [one.pid for one in read_all_stats().values() if one.session in sessions]
        assert len(pids) >= 3
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said.endswith("interrupted\n")
    assert [one for one in read_all_stats().values() if one.session in sessions and not one.has_ended] == []
    assert os.listdir(own) == []
    assert [name for name in os.listdir("/dev/shm") if name.startswith(tuple(f"torch_{pid}_" for pid in pids))] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing_behind(data: str, tmp_path: Path, number: int, code: int) -> None:
    own = tmp_path / "temporary"
    own.mkdir()
    command, env = [HEADRACE, "quick", f"{data}:Stuck"], {**os.environ, "TMPDIR": str(own)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        _wait_for_session(process.pid)
        sessions = _sessions_below(process.pid)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
    assert process.returncode == code
    assert said.endswith("interrupted\n") == (number == signal.SIGINT)
    assert [one for one in read_all_stats().values() if one.session in sessions and not one.has_ended] == []
    assert os.listdir(own) == []


def _sessions_below(pid: int) -> set[int]:
    return {one.session for one in read_all_stats().values() if one.parent == pid} - {os.getsid(0)}


def _wait_for_session(pid: int) -> None:
    deadline = time.monotonic() + 30
    while not _sessions_below(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # somewhere into its import
