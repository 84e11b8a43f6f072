"""Real processes die of real causes, and each is told as what it was."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import pytest

from headrace.forensics.deaths import Death, DeathCause, DeathFacts, DeathWatch, describe_death
from headrace.signals.system import memory_groups

FORK = multiprocessing.get_context("fork")


def death_of(target: Callable[[], None], *, then: Callable[[int], None] = lambda pid: None) -> Death:
    """Start a process, let it die, and describe its death."""
    watch = DeathWatch(time.monotonic())
    process = FORK.Process(target=plainly, args=(target,))
    process.start()
    assert process.pid is not None
    then(process.pid)
    process.join(60)
    known = DeathFacts(workers=(0,), pid=process.pid, exit_code=process.exitcode, died_at_s=time.monotonic())
    process.close()
    return describe_death(watch.complete(known))


def plainly(target: Callable[[], None]) -> None:
    faulthandler.disable()  # pytest's own, which would print every crash
    target()


def read_null() -> None:
    ctypes.string_at(0)


def read_behind_the_end() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(4 * mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), 4 * mmap.PAGESIZE)
        file.truncate(mmap.PAGESIZE)
        print(mapped[3 * mmap.PAGESIZE])


def leave() -> None:
    os._exit(3)


def forever() -> None:
    time.sleep(60)


def send(number: int) -> Callable[[int], None]:
    return lambda pid: os.kill(pid, number)


@pytest.mark.parametrize(
    ("target", "then", "cause", "words"),
    [
        (read_null, None, DeathCause.CRASHED, "crashed in native code (SIGSEGV)"),
        (read_behind_the_end, None, DeathCause.MAPPED_FILE, "a mapped file that was truncated"),
        (leave, None, DeathCause.EXITED, "ended itself with exit code 3"),
        (os.abort, None, DeathCause.ABORTED, "SIGABRT"),
        (forever, send(signal.SIGKILL), DeathCause.KILLED, "somebody sent SIGKILL, not the kernel's memory killer"),
        (forever, send(signal.SIGTERM), DeathCause.TERMINATED, "somebody sent SIGTERM"),
        (forever, send(signal.SIGXCPU), DeathCause.CPU_LIMIT, "processor time"),
        (forever, send(signal.SIGRTMIN + 5), DeathCause.OTHER_SIGNAL, "was ended by signal 39"),
    ],
)
def test_a_death_is_told_as_what_it_was(
    target: Callable[[], None], then: Callable[[int], None] | None, cause: DeathCause, words: str
) -> None:
    death = death_of(target, then=then or (lambda pid: None))
    assert (death.cause, words in death.sentence) == (cause, True), death.sentence


# A training process in a group of its own, and a worker that takes more memory than the group may have. It prints the
# death as JSON; the training process itself must survive, for the kernel kills the largest first.
_IN_A_GROUP = """
import json, multiprocessing, os, pathlib, sys, time
from headrace.signals.system import memory_groups, read_limits
from headrace.forensics import DeathFacts, DeathWatch, MemoryWatch, SampleInHand, describe_death

def hog():
    kept = []
    while True:
        kept.append(bytearray(b"x" * (4 << 20)))
        time.sleep(0.004)

pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
watch = DeathWatch(time.monotonic())
memory = MemoryWatch(os.getpid(), groups=watch.groups, every_s=0.05)
process = multiprocessing.get_context("fork").Process(target=hog)
process.start()
while process.is_alive():
    memory.sample(time.monotonic(), (process.pid,))
    process.join(0.05)
sample = SampleInHand(position=118, index=4711, age_s=0.1, file="scan_0031.npz")
now = time.monotonic()
known = {"memory": memory.recent(), "samples": (sample,)}
facts = DeathFacts(workers=(3,), pid=process.pid, exit_code=process.exitcode, died_at_s=now, **known)
death = describe_death(watch.complete(facts))
last = max(memory.recent(), key=lambda sample: sample.tree_bytes)
limits = [m.limit_bytes for m in read_limits(watch.groups)]
print(json.dumps([death.cause.name, death.sentence, dict(death.evidence), limits, last.tree_bytes]))
"""


@pytest.mark.root
def test_a_control_groups_limit_kills_a_worker_for_real() -> None:
    groups = memory_groups()
    if not groups or groups[0].version != 1 or not os.access(groups[0].folder, os.W_OK):
        pytest.skip("needs a writable v1 memory hierarchy")
    folder = groups[0].folder / f"headrace-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(128 << 20))
        command = [sys.executable, "-c", _IN_A_GROUP, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        cause, sentence, evidence, limits, tree_bytes = json.loads(done.stdout)
    finally:
        _remove(folder)
    assert cause == "MEMORY_LIMIT", sentence
    assert sentence.startswith("worker 3 was killed by the kernel for memory (cgroup v1 limit 128 MiB, tree at ")
    assert sentence.endswith(" before) while working on sample 4711 (scan_0031.npz, for 0.1 s)")
    assert evidence["memory_kills"] == "0 → 1"
    assert (128 << 20) in limits
    assert tree_bytes > 0  # how close to the death the last look was is the machine's speed


def _remove(folder: os.PathLike[str]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            os.rmdir(folder)
            return
        except OSError:  # the kernel is still taking the last process out of it
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
