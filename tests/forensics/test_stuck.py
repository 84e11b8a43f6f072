"""Real processes that do not come back: each is recognised for what holds it."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.forensics.hangs import (
    Diagnosis,
    StuckKind,
    StuckReport,
    look_at,
    recognise,
)
from headrace.signals import StackFile, find_py_spy

from ..signals.registered import FORK, run_registered, running, wait_until

HERE = Path(__file__).name
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="uses a system call's number")
both_ways = pytest.mark.parametrize(
    "use_py_spy",
    [
        pytest.param(False, id="faulthandler"),
        pytest.param(True, id="py-spy", marks=pytest.mark.skipif(find_py_spy() is None, reason="py-spy is missing")),
    ],
)


def seen(
    kind: StuckKind, pid: int, stack_file: StackFile, *, use_py_spy: bool = False, tid: int | None = None
) -> tuple[Diagnosis, StuckReport]:
    """Look until the process has come to where it hangs."""
    deadline = time.monotonic() + 60
    while True:
        report = look_at(pid, (tid,) if tid else None, stack_file=stack_file, use_py_spy=use_py_spy)
        diagnosis = recognise(report, tid)
        if diagnosis.kind is kind:
            for language in ("en", "zh"):
                assert diagnosis.said(language)
            return diagnosis, report
        assert time.monotonic() < deadline, f"{diagnosis}\n{report!s}"


# ---------------------------------------------------------------------------------------- deadlocks inherited by fork


@contextmanager
def held(lock: threading.Lock | threading.RLock) -> Iterator[None]:  # type: ignore[valid-type]
    """Another thread of this process holds the lock: at a fork it is taken along, the thread is not."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:  # type: ignore[attr-defined]
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


@both_ways
def test_a_lock_that_was_held_at_the_fork(use_py_spy: bool) -> None:
    lock = threading.Lock()

    def decode() -> None:
        with lock:
            pass

    with held(lock), running(decode) as (pid, stack_file):
        diagnosis, report = seen(StuckKind.FORK_DEADLOCK, pid, stack_file, use_py_spy=use_py_spy)
    assert diagnosis.at is not None
    assert diagnosis.at.function.endswith("decode")
    sentence = diagnosis.said()
    assert sentence.startswith(f"is in a deadlock ({HERE}:")
    assert "another thread of the training process held it at the moment of the fork" in sentence
    assert "spawn" in diagnosis.next_step()
    assert "decode" in str(report)


def test_a_condition_that_nobody_will_signal() -> None:
    def wait() -> None:
        threading.Event().wait()

    with running(wait) as (pid, stack_file):
        diagnosis, _ = seen(StuckKind.FORK_DEADLOCK, pid, stack_file)
    assert diagnosis.at is not None
    assert diagnosis.at.function == "wait"
    assert HERE in diagnosis.at.file  # the user's line, not threading.py's


def test_a_lock_that_another_thread_may_still_release_is_no_deadlock() -> None:
    def wait_for_a_thread() -> None:
        thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
        thread.start()
        thread.join()

    with running(wait_for_a_thread) as (pid, stack_file):
        assert seen(StuckKind.LOCK_WAIT, pid, stack_file)


def test_a_lock_with_a_timeout_is_no_deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    with running(lambda: lock.acquire(timeout=60)) as (pid, stack_file):
        assert seen(StuckKind.LOCK_WAIT, pid, stack_file)


def test_a_lock_between_processes_is_no_deadlock() -> None:
    lock = FORK.Lock()
    lock.acquire()
    with running(lock.acquire) as (pid, stack_file):
        assert seen(StuckKind.LOCK_WAIT, pid, stack_file)


_OPENMP = """
import os, sys, time, torch
torch.set_num_threads(2)
size = 4_000_000
torch.exp(torch.rand(size))            # starts OpenMP's threads in this process
pid = os.fork()
if pid == 0:
    torch.exp(torch.rand(size))        # waits for threads that the fork did not copy
    os._exit(0)
from headrace.forensics import look_at, recognise
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    diagnosis = recognise(look_at(pid, use_py_spy=False))
    if diagnosis.kind.name in ("FORKED_POOL", "ENDED"):
        break
print(diagnosis.kind.name, diagnosis.said(), sep="|")
os.kill(pid, 9)
os.waitpid(pid, 0)
"""


def test_openmp_after_a_fork_needs_no_debugger_to_be_seen() -> None:
    done = subprocess.run([sys.executable, "-c", _OPENMP], capture_output=True, text=True, timeout=90, check=True)
    kind, sentence = done.stdout.strip().split("|")
    if kind == "ENDED":
        pytest.skip("this torch was built with an OpenMP that survives a fork")
    assert kind == "FORKED_POOL"
    assert "threads of OpenMP (lib" in sentence


# ---------------------------------------------------------------------------------------- states and waits


@both_ways
def test_stopped(use_py_spy: bool) -> None:
    with running(lambda: time.sleep(60)) as (pid, stack_file):
        os.kill(pid, signal.SIGSTOP)
        diagnosis, _ = seen(StuckKind.STOPPED, pid, stack_file, use_py_spy=use_py_spy)
        assert f"`kill -CONT {pid}`" in diagnosis.said()
        assert (diagnosis.at is not None) == use_py_spy  # py-spy reads memory; a stopped process answers no signal


@needs_x86
def test_uninterruptible_sleep() -> None:
    def vfork() -> None:
        ctypes.CDLL(None).syscall(58)  # the parent sleeps in state D until its child ends
        time.sleep(60)

    with running(vfork) as (pid, stack_file):
        _, report = seen(StuckKind.DISK_SLEEP, pid, stack_file)
    assert "does not answer" in str(report)


def test_a_dead_child_and_a_gone_one() -> None:
    process = FORK.Process(target=os._exit, args=(0,))
    process.start()
    assert process.pid is not None
    wait_until(lambda: recognise(look_at(process.pid or 0, use_py_spy=False)).kind is StuckKind.ENDED)
    pid = process.pid
    process.join()
    process.close()
    diagnosis = recognise(look_at(pid))
    assert (diagnosis.kind, diagnosis.said()) == (StuckKind.ENDED, "has ended")


def spin() -> None:
    number = 0
    while True:
        number += 1
        number *= 3
        number %= 7


@both_ways
def test_busy_in_python(use_py_spy: bool) -> None:
    with running(spin) as (pid, stack_file):
        diagnosis, _ = seen(StuckKind.BUSY, pid, stack_file, use_py_spy=use_py_spy)
    assert diagnosis.at is not None
    assert diagnosis.at.function == "spin"


@both_ways
def test_busy_in_native_code(use_py_spy: bool) -> None:
    data = os.urandom(1 << 20) * 64

    def compress() -> None:
        while True:
            zlib.compress(data, 9)

    with running(compress) as (pid, stack_file):
        kind = StuckKind.BUSY_NATIVE if use_py_spy else StuckKind.BUSY
        diagnosis, _ = seen(kind, pid, stack_file, use_py_spy=use_py_spy)
    assert diagnosis.at is not None
    assert diagnosis.at.function.endswith("compress")


@both_ways
def test_waiting_for_the_network(use_py_spy: bool) -> None:
    ours, theirs = socket.socketpair()
    with running(lambda: theirs.recv(1)) as (pid, stack_file):
        diagnosis, _ = seen(StuckKind.NETWORK, pid, stack_file, use_py_spy=use_py_spy)
        assert diagnosis.file is not None
        assert diagnosis.file.kind == "socket"
    theirs.settimeout(60)  # then Python waits in poll() before it receives
    with running(lambda: theirs.recv(1)) as (pid, stack_file):
        assert seen(StuckKind.NETWORK, pid, stack_file, use_py_spy=use_py_spy)
    ours.close()
    theirs.close()


def test_waiting_for_a_file_lock(tmp_path: Path) -> None:
    path = tmp_path / "index.lock"
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def lock() -> None:
            with open(path) as other:
                fcntl.flock(other, fcntl.LOCK_EX)

        with running(lock) as (pid, stack_file):
            diagnosis, _ = seen(StuckKind.FILE_LOCK, pid, stack_file)
        assert diagnosis.file is not None
        assert diagnosis.file.path == str(path)
        assert str(path) in diagnosis.said()


def test_waiting_for_a_child_a_pipe_and_the_clock() -> None:
    with running(lambda: subprocess.run(["sleep", "60"], check=False)) as (pid, stack_file):
        assert seen(StuckKind.CHILD, pid, stack_file)
    with running(lambda: time.sleep(60)) as (pid, stack_file):
        assert seen(StuckKind.SLEEP, pid, stack_file)
    read_end, write_end = os.pipe()
    with running(lambda: os.read(read_end, 1)) as (pid, stack_file):
        assert seen(StuckKind.PIPE, pid, stack_file)
    os.close(read_end)
    os.close(write_end)


def test_open_files_are_shown_with_their_positions(tmp_path: Path) -> None:
    path = tmp_path / "scan_0031.npz"
    path.write_bytes(b"x" * 1000)

    def read_some() -> None:
        with open(path, "rb", 0) as file:
            file.read(300)
            time.sleep(60)

    with running(read_some) as (pid, stack_file):
        _, report = seen(StuckKind.SLEEP, pid, stack_file)
    (file,) = [file for file in report.files if file.path == str(path)]
    assert (file.position, file.size, file.is_remote) == (300, 1000, False)
    assert f"{path}" in str(report)
    assert "at 300 of 1000" in str(report)


def test_one_thread_of_a_process() -> None:
    shared = FORK.Value("i", 0)

    def two_threads() -> None:
        def work() -> None:
            shared.value = threading.get_native_id()
            subprocess.run(["sleep", "60"], check=False)

        threading.Thread(target=work, daemon=True).start()
        time.sleep(60)

    with running(two_threads) as (pid, stack_file):
        wait_until(lambda: shared.value != 0)
        assert seen(StuckKind.CHILD, pid, stack_file, tid=shared.value)
        assert seen(StuckKind.SLEEP, pid, stack_file)


def test_a_process_that_never_came_to_register() -> None:
    """The first batch never came: what the kernel shows is enough, and no signal ends the process."""
    lock = threading.Lock()
    lock.acquire()
    stack_file = StackFile.create()
    process = FORK.Process(target=lock.acquire)
    process.start()
    assert process.pid is not None
    diagnosis, report = seen(StuckKind.FORK_DEADLOCK, process.pid, stack_file)
    assert diagnosis.at is None
    assert "has not come to register" in str(report)
    assert process.is_alive()
    process.kill()
    process.join()
    process.close()
    stack_file.close()


def test_it_travels_to_a_spawned_process() -> None:
    stack_file = StackFile.create()
    process = multiprocessing.get_context("spawn").Process(target=run_registered, args=(sleep_a_minute, stack_file))
    process.start()
    assert process.pid is not None
    try:
        diagnosis, report = seen(StuckKind.SLEEP, process.pid, stack_file)
        assert diagnosis.at is not None
        assert diagnosis.at.function == "sleep_a_minute"
        assert report.is_forked is False
    finally:
        process.kill()
        process.join()
        process.close()
        stack_file.close()


def sleep_a_minute() -> None:
    time.sleep(60)
