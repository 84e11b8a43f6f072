"""`headrace chaos`, as a user runs it: stdout, stderr and exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DATA = """
import numpy as np

class Numbers:
    def __len__(self):
        return 120

    def __getitem__(self, index):
        if index == 31:
            raise ValueError("scan_0031 is cut off")
        return np.full(10, index)

def make():
    return Numbers()

good = list(range(80))
"""

# what others leave in /dev/shm for a moment would be laid to the loader's charge
looks_at_shm = pytest.mark.alone


def run(*args: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    silent = {"HEADRACE_LANG", "LC_ALL", "LC_MESSAGES", "LANG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    command = [sys.executable, "-m", "headrace", "chaos", *args]
    return subprocess.run(
        command, capture_output=True, text=True, env={**environment, "PYTHONUTF8": "1"}, timeout=100, cwd=cwd
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_data.py").write_text(DATA)
    return tmp_path


@looks_at_shm
def test_a_good_data_set_survives(folder: Path) -> None:
    done = run("own_data:good", "--faults", "exit", "--num-faults", "3", "--workers", "2", cwd=folder)
    assert (done.returncode, "0 lost, 0 repeated" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "worker leaves (os._exit)" in done.stdout
    assert "seed 0" in done.stdout
    assert 'DataLoader(…, on_error="quarantine", quarantine_file="bad.jsonl")' in done.stdout


@looks_at_shm
def test_bad_samples_of_the_users_are_a_finding(folder: Path) -> None:
    options = ("--faults", "exit", "--num-faults", "1", "--workers", "2", "--json", "-q")
    done = run("own_data.py:make", *options, cwd=folder)
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/chaos/1"
    assert document["is_clean"]
    (own,) = document["own_failures"]
    assert (own["index"], own["exception"]) == (31, "ValueError")
    assert document["totals"]["lost"] == document["totals"]["hangs"] == document["totals"]["leftovers"] == 0


@looks_at_shm
def test_it_speaks_chinese(folder: Path) -> None:
    done = run("own_data:good", "--faults", "abort", "--num-faults", "1", "--workers", "1", "--lang", "zh", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "丢失 0" in done.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("own_data:nothing",), "own_data has no 'nothing'"),  # the other targets: tests/doctor/chaos/test_targets.py
        (("--faults", "fire"), "fire is no fault"),
        (("--workers", "0"), "0 is not between 1 and 64"),
        (("--seconds", "soon"), "'soon' is no length of time"),
    ],
)
def test_what_cannot_run_is_explained(folder: Path, args: tuple[str, ...], said: str) -> None:
    done = run(*args, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
