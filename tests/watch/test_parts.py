"""Parts of the watch on their own: stacks of py-spy, open files, access, ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.model import Text
from headrace.watch.alarms import AlertCommand
from headrace.watch.judging import Stretch, StretchJudge
from headrace.watch.look import Alarm
from headrace.watch.processes import EndWatch, ProcessFacts, TrainingTree, explain_refusal
from headrace.watch.reading import TrainerActivity
from headrace.watch.sampling import KernelSampler, parse_speedscope

# ---------------------------------------------------------------------------------------- stacks, files, tree


def test_py_spys_document_is_read_in_order_innermost_first() -> None:
    frames = [
        {"name": 'process 7:"python t.py"', "file": "", "line": 0},
        {"name": "thread (7): MainThread", "file": "", "line": 0},
        {"name": "main", "file": "/t.py", "line": 9},
        {"name": "step", "file": "/t.py", "line": 3},
    ]
    profile = {"name": 'Process 7 Thread 7 "MainThread"', "samples": [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]]}
    other = {"name": 'Process 8 Thread 9 "Thread-1 (_serve)"', "samples": [[2]]}
    empty = {"name": "Process 8 Thread 10", "samples": []}
    found = parse_speedscope(json.dumps({"shared": {"frames": frames}, "profiles": [profile, other, empty]}))
    (main,) = found[7]
    assert [[str(frame) for frame in stack.frames] for stack in main] == [
        ["t.py:3 in step", "t.py:9 in main"],
        ["t.py:9 in main"],
        ["t.py:3 in step", "t.py:9 in main"],
    ]
    assert main[0].is_main
    assert found[8][0][0].name == "Thread-1 (_serve)"
    assert not found[8][0][0].is_main


def test_processes_that_are_gone_are_forgotten() -> None:
    gone, there = (ProcessFacts(pid=pid, parent_pid=1, started=10 * pid, name="python") for pid in (4, 5))
    judge, nothing = StretchJudge(), Stretch(at_s=1.0, windows={}, kernel=KernelSampler(), before=(), after=())
    for one in (gone, there):
        assert judge.trainer(one, nothing).activity is TrainerActivity.UNKNOWN
    judge.forget_others([there])
    assert judge.known.keys() == {there.identity}


def test_a_process_is_found_by_its_command_line_and_below_its_parents() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)', 'needle-5f1'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            tree = TrainingTree()
            deadline = time.monotonic() + 60
            while not any("needle-5f1" in one.command[-1:] for one in tree.below([process.pid])):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            found = tree.below([process.pid])
            assert [one.is_python for one in found] == [True, True]
            child = found[1]
            assert child.command[-1] == "needle-5f1"
            assert not child.has_torch
            assert not child.is_forked
            assert TrainingTree().matching("needle-5f1") == (process.pid,)  # the parent's command line holds it, too
            assert process.pid in tree.parents_of(child.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


# ---------------------------------------------------------------------------------------- access


def root_with(folder: Path, *, uid: int = 1000, scope: str = "", in_container: bool = False) -> Path:
    """A /proc in which process 7 belongs to somebody, and we have no rights."""
    for name, text in (("7/status", f"Uid:\t{uid}\t{uid}\n"), ("self/status", "CapEff:\t0000000000000000\n")):
        (folder / "proc" / name).parent.mkdir(parents=True)
        (folder / "proc" / name).write_text(text)
    if scope:
        (folder / "proc/sys/kernel/yama").mkdir(parents=True)
        (folder / "proc/sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    if in_container:
        (folder / ".dockerenv").touch()
    return folder


@pytest.mark.parametrize(
    ("facts", "why", "what"),
    [
        ({"uid": 1001}, "belongs to user 1001", "as that user"),
        ({"scope": "1"}, "ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0"),
        ({"scope": "3"}, "until the machine restarts", "sudo headrace watch 7"),
        ({"in_container": True}, "no CAP_SYS_PTRACE", "--cap-add SYS_PTRACE"),
        ({}, "refuses", "sudo"),
    ],
)
def test_a_refusal_says_why_and_what_would_help(facts: dict[str, Any], why: str, what: str, tmp_path: Path) -> None:
    reason, step = explain_refusal(7, our_uid=1000, root=root_with(tmp_path, **facts))
    assert why in reason
    assert what in step


# ---------------------------------------------------------------------------------------- ends and alerts


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit(7)", "ended with exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal SIGKILL"),
        ("pass", "ended with exit code 0"),
    ],
)
def test_how_a_stranger_ended(code: str, said: str) -> None:
    """Of a process that is not our child: the kernel tells it while its parent has not asked, and newer ones after."""
    child = f"import sys; sys.stdin.read(); {code}"
    parent = (
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}]); print(p.pid, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", f"{parent}; p.wait()"], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        with closing(EndWatch()) as ends:
            ends.hold(pid)
            process.stdin.close()
            (end,) = ends.wait(60)
            assert ends.wait(0) == ()  # told once
    assert end.pid == pid
    assert end.text().en in (said, "has ended (how, only its parent knows)")


def test_an_alert_command_that_hangs_does_not_pile_up(tmp_path: Path) -> None:
    alarm = Alarm(kind="stuck", pid=7, what=Text("it hangs", "卡住了"))
    done = tmp_path / "go"
    with closing(AlertCommand(f"while [ ! -e {done} ]; do sleep 0.05; done")) as alerts:
        began = time.monotonic()
        for _ in range(10):
            alerts.tell(alarm, "7")
        assert time.monotonic() - began < 30
        assert alerts.num_left_out == 6
        done.touch()
