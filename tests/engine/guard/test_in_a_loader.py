"""The guard's eyes on workers of a real loader: who hangs, and who only waits for work."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil

from headrace import DataLoader
from headrace.forensics.hangs import Diagnosis, StuckKind, look_at, recognise
from headrace.signals import StackFile


class OneHangs:
    """Its first sample takes a lock that another thread of the training process holds."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            return np.zeros(3)


def test_the_one_that_hangs_is_told_from_the_one_that_waits() -> None:
    files = [StackFile.create(), StackFile.create()]
    lock = threading.Lock()
    lock.acquire()
    loader = DataLoader(
        OneHangs(lock),
        batch_size=1,
        num_workers=2,
        multiprocessing_context="fork",
        worker_init_fn=lambda worker: files[worker].register() and None,
    )
    before = {child.pid for child in psutil.Process().children()}
    iterator = iter(loader)
    workers = {child.pid for child in psutil.Process().children()} - before
    try:
        found = look_until_settled(sorted(workers), files)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        del iterator
        for file in files:
            file.close()
    assert sorted(d.kind.name for d in found) == ["FORK_DEADLOCK", "IDLE"]
    (stuck,) = [d for d in found if d.kind is StuckKind.FORK_DEADLOCK]
    assert stuck.at is not None
    assert stuck.at.function == "__getitem__"


def look_until_settled(pids: list[int], files: list[StackFile]) -> list[Diagnosis]:
    deadline = time.monotonic() + 60
    while True:
        found = [recognise(look_at(pid, stack_file=f, use_py_spy=False)) for pid, f in zip(pids, files, strict=True)]
        if {d.kind for d in found} == {StuckKind.FORK_DEADLOCK, StuckKind.IDLE} or time.monotonic() > deadline:
            return found
