"""`headrace run -- torchrun …` with two real ranks: which one is slow, which one fell, and that all of them end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from .test_cli import HEADRACE, _environment
from .test_run_command import assert_adds_up, document
from .test_run_terminal import Screen

pytestmark = pytest.mark.slow
_DEADLINE_S = 110
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))

RANKS = """
import os, sys, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
rank, case = int(os.environ["RANK"]), sys.argv[1]

class Samples(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        time.sleep(0.05 if rank == 1 and case == "slow" else 0)
        return torch.ones(4)

def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for step, batch in enumerate(DataLoader(Samples(), batch_size=2)):
        model(batch).mean().backward()
        if rank == 0 and case == "saves":
            time.sleep(0.1)
            torch.save({}, os.devnull)
        if case == "saves":
            dist.barrier()
        if rank == 1 and step == 12 and case == "raises":
            raise ValueError("rank one has a bad sample")
        if rank == 1 and step == 12 and case == "killed":
            os.kill(os.getpid(), 9)
        if step == 5 and case == "waits":
            os.write(1, b"waiting\\n")
            time.sleep(600)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def words(folder: Path, case: str) -> list[str]:
    (folder / "ranks.py").write_text(RANKS, encoding="utf-8")
    return ["run", "--out", "recorded", "--", TORCHRUN, "--standalone", "--nproc-per-node", "2", "ranks.py", case]


def run(folder: Path, case: str) -> tuple["subprocess.CompletedProcess[str]", str]:
    done = subprocess.run(
        [HEADRACE, *words(folder, case)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment({"COLUMNS": "400"}),
        timeout=_DEADLINE_S,
    )
    found = document(folder / "recorded")
    assert_adds_up(found)
    return done, str(found["facts"])


def test_the_slow_rank_is_named(tmp_path: Path) -> None:
    done, facts = run(tmp_path, "slow")
    assert done.returncode == 0, done.stderr
    assert "2 training processes" in facts
    assert "rank 0 (pid " in facts
    assert "rank 1 (pid " in facts
    assert "holds the others up: waiting for data" in facts
    assert "are those of rank 1" in facts


def test_the_rank_that_others_meet_in_a_barrier_is_named(tmp_path: Path) -> None:
    done, facts = run(tmp_path, "saves")
    assert done.returncode == 0, done.stderr
    held = facts[facts.index("holds the others up") - 30 :]
    assert "rank 0 (pid " in held


def test_the_rank_that_raised_is_named(tmp_path: Path) -> None:
    done, facts = run(tmp_path, "raises")
    assert done.returncode == 1
    assert "rank 1 (pid " in facts
    assert "ended first, after 13 batches" in facts
    assert "ValueError: rank one has a bad sample" in facts


def test_the_rank_that_was_killed_is_told_of(tmp_path: Path) -> None:
    done, facts = run(tmp_path, "killed")
    assert done.returncode == 1
    assert "rank 1 (pid " in facts
    assert "ended first, by SIGKILL, as its launcher says; 13 batches came before" in facts


def waiting_family(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def assert_all_end(family: list[psutil.Process]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family):
        assert time.monotonic() < deadline, [one for one in family if one.is_running()]
        time.sleep(0.1)


def test_a_signal_to_us_ends_every_rank(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [HEADRACE, *words(tmp_path, "waits")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
    )
    assert running.stdout is not None
    assert [running.stdout.readline(), running.stdout.readline()] == ["waiting\n", "waiting\n"]
    family = waiting_family(running.pid)
    assert len(family) >= 4  # ourselves, torchrun, two ranks
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=_DEADLINE_S)
    assert "recorded in" in said
    assert "2 training processes" in said
    assert running.returncode != 0
    assert_all_end(family)


def test_ctrl_c_ends_every_rank(tmp_path: Path) -> None:
    screen = Screen(tmp_path, *words(tmp_path, "waits"))
    try:
        screen.read_until(b"waiting", times=2)
        family = waiting_family(screen.running.pid)
        screen.press(b"\x03")
        assert screen.end() != 0
        assert b"recorded in" in screen.said
        assert_all_end(family)
    finally:
        screen.close()
