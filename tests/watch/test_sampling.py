"""What the kernel alone tells of a loop that waits."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from headrace.watch.reading import TrainerActivity, WorkerActivity, read_kernel, read_trainer_look
from headrace.watch.sampling import KernelSampler

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
                sampler.begin({process.pid: [child]})
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
