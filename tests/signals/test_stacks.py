"""Stacks come from a process that is asked for them, and from one that crashed."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest

from headrace.signals import StackFile, dump_with_py_spy
from headrace.signals.stacks import parse_dump

from .registered import FORK, run_registered, running

HERE = Path(__file__).name


def test_stacks_come_again_and_again_and_harm_nothing() -> None:
    ours, theirs = FORK.Pipe()

    def echo() -> None:
        while True:
            theirs.send(theirs.recv() + 1)

    with running(echo) as (pid, stack_file):
        for number in range(20):
            stacks = stack_file.ask(pid)
            assert stacks.source == "faulthandler"
            ours.send(number)
            assert ours.recv() == number + 1
    ours.close()
    theirs.close()


def test_a_crash_leaves_its_frames() -> None:
    stack_file = StackFile.create()

    def crash() -> None:
        ctypes.string_at(0)

    process = FORK.Process(target=run_registered, args=(crash, stack_file))
    process.start()
    process.join(60)
    frames = stack_file.crash()
    assert process.exitcode == -signal.SIGSEGV
    process.close()
    stack_file.close()
    assert [frame.function for frame in frames][:2] == ["string_at", "crash"]
    assert str(frames[1]).startswith(f"{HERE}:")


def test_a_signal_that_is_taken_is_left_alone() -> None:
    caught = FORK.Value("i", 0)

    def run() -> None:
        last = signal.SIGRTMAX - 1
        signal.signal(last, lambda *_: None)
        number = stack_file.register()
        caught.value = number or -1
        assert signal.getsignal(last) not in (signal.SIG_DFL, None)

    stack_file = StackFile.create()
    process = FORK.Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert 0 < caught.value < signal.SIGRTMAX - 1
    process.close()
    stack_file.close()


def test_a_users_own_fault_handler_stays(tmp_path: Path) -> None:
    path = tmp_path / "crash.txt"
    stack_file = StackFile.create()

    def run() -> None:
        with open(path, "w") as file:
            faulthandler.enable(file)
            stack_file.register()
            os.abort()

    process = FORK.Process(target=run)
    process.start()
    process.join(60)
    process.close()
    assert "Fatal Python error: Aborted" in path.read_text()
    assert stack_file.crash() == ()
    stack_file.close()


def test_dumps_of_several_pythons_are_understood() -> None:
    text = """
Thread 0x00007f0001 [Thread-1 (work)] (most recent call first):
  File "/a/b.py", line 7 in work
  File "<frozen importlib._bootstrap>", line ??? in _load

Current thread 0x00007f0002 (most recent call first):
  Garbage-collecting
  File "/a/with space.py", line 12 in outer.<locals>.inner
"""
    first, second = parse_dump(text)
    assert [str(frame) for frame in first.frames] == ["b.py:7 in work", "<frozen importlib._bootstrap>:0 in _load"]
    assert (first.is_main, second.is_main) == (False, True)
    assert second.frames[0].line == 12


def test_without_py_spy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "headrace[stacks]" in dump_with_py_spy(os.getpid()).problem
