"""When stacks are sampled, at the price that is promised; and what the kernel alone tells of a loop that waits."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.watch.reading import TrainerActivity, WorkerActivity, read_kernel, read_trainer_look
from headrace.watch.sampling import KernelSampler, StackPace

WHO = frozenset({(1, 10), (2, 20)})
STRETCH_S = 2.0


def sampled_at(seconds: float, cpu_s: float, *, still_from_s: float = 1e9, others_from_s: float = 1e9) -> list[float]:
    """Return when stacks were sampled in a watch whose every sampling costs `cpu_s`."""
    pace, at_s, found = StackPace(), 0.0, []
    while at_s < seconds:
        who = WHO if at_s < others_from_s else frozenset({(3, 30)})
        if pace.is_due(at_s, who, is_still=at_s >= still_from_s):
            found.append(at_s)
            pace.sampled(at_s, who, cpu_s)
        at_s += STRETCH_S
    return found


@given(cpu_s=st.floats(0.01, 5.0))
def test_in_the_long_run_stacks_take_the_share_that_they_may(cpu_s: float) -> None:
    times = [at_s for at_s in sampled_at(5000.0, cpu_s) if at_s >= 6.0]
    assert len(times) * cpu_s <= 0.011 * 5000 + cpu_s


@given(cpu_s=st.floats(0.0, 5.0))
def test_the_first_seconds_are_sampled_without_a_gap(cpu_s: float) -> None:
    assert sampled_at(6.0, cpu_s) == [0.0, 2.0, 4.0]


def test_new_processes_are_looked_at_soon() -> None:
    times = sampled_at(120.0, 0.2, others_from_s=61.0)
    assert min(at_s for at_s in times if at_s >= 61.0) <= 66.0


def test_one_that_stands_still_is_looked_at_again_and_again() -> None:
    times = [at_s for at_s in sampled_at(200.0, 0.2, still_from_s=100.0) if at_s >= 100.0]
    assert all(b - a <= 4.0 + STRETCH_S for a, b in pairwise(times))
    assert len(times) >= 16


def test_stacks_that_cost_nothing_are_always_sampled() -> None:
    assert len(sampled_at(60.0, 0.0)) == 30


# A parent that waits for a pipe which its child keeps open: itself, or in a thread as torch's pinning one is named.
_SCRIPT = """
import ctypes, os, select, sys, threading, time
way = sys.argv[1]
ours, theirs = os.pipe()
child = os.fork()
if child == 0:
    os.close(ours)
    time.sleep(300)
    os._exit(0)
os.close(theirs)
poller = select.poll()
poller.register(ours, select.POLLIN)
def pin():
    ctypes.CDLL(None).prctl(15, b"pt_data_pin", 0, 0, 0)
    print(child, flush=True)
    poller.poll(300_000)
if way == "pinned":
    threading.Thread(target=pin, daemon=True).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=300)
else:
    print(child, flush=True)
    poller.poll(300_000) if way == "pipe" else time.sleep(300)
"""


@pytest.mark.parametrize(("way", "activity"), [("pipe", "DATA_WAIT"), ("pinned", "DATA_WAIT"), ("sleep", "UNKNOWN")])
def test_a_wait_for_the_workers_pipe(way: str, activity: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _SCRIPT, way], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        sampler = KernelSampler()
        deadline = time.monotonic() + 60
        try:
            while True:
                sampler.begin([process.pid, child], {process.pid: [child]})
                sampler.look()
                (look,), (worker,) = sampler.looks[process.pid], sampler.looks[child]
                is_there = look.call is not None and worker.call is not None and worker.state == "S"  # both asleep
                if is_there and read_trainer_look(look).activity is TrainerActivity[activity]:
                    break
                assert time.monotonic() < deadline, (look, worker)
                time.sleep(0.02)
            assert read_kernel(worker) is WorkerActivity.BLOCKED
        finally:
            process.kill()
            subprocess.run(["kill", "-9", str(child)], check=False)
