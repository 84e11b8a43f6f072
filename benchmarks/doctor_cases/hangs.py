"""Samples that never come, workers that never answer: sleeps, locks, sockets, OpenMP after a fork."""

from __future__ import annotations

import socket
import threading
import time

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

CASES = {
    "sleeps_at_once": {"finds": "sample_hangs", "options": ["--timeout", "6"], "quick": "sample_hangs"},
    "sleeps_at_sample_3": {"finds": "sample_hangs", "options": ["--timeout", "6"]},
    "lock_that_is_held": {"finds": "sample_hangs", "options": ["--timeout", "6"], "also": ["unpicklable"]},
    "silent_server": {"finds": "sample_hangs", "options": ["--timeout", "6"], "also": ["unpicklable", "shared_handle"]},
    "sleeps_in_workers": {"finds": "worker_hangs", "options": ["--timeout", "6"]},
    "waits_in_worker_1": {"finds": "worker_hangs", "options": ["--timeout", "6"]},
    "lock_held_at_fork": {
        "finds": "fork_deadlock",
        "also": ["worker_hangs", "unpicklable"],
        "options": ["--timeout", "6"],
    },
    "openmp_after_fork": {"finds": "fork_deadlock", "also": ["worker_hangs"], "options": ["--timeout", "6"]},
    "opencv_after_fork": {"finds": ""},
    "slow_but_alive": {"finds": ""},
}


class Rows(Dataset[torch.Tensor]):
    """Healthy but for `fetch`."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        self.fetch(index)
        return torch.full((8,), float(index))

    def fetch(self, index: int) -> None:
        pass


class Sleeps(Rows):
    """At one sample, or at all."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def fetch(self, index: int) -> None:
        if self.at in (None, index):
            time.sleep(3600)


class Locked(Rows):
    """A lock that nobody gives back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()

    def fetch(self, index: int) -> None:
        if index == 2:
            with self.lock:
                pass


class Asks(Rows):
    """A server that takes connections and never answers."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]

    def fetch(self, index: int) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as asked:
            asked.sendall(b"give me %d" % index)
            asked.recv(100)


class SleepsInWorkers(Rows):
    """All is well without workers."""

    def __init__(self, which: int | None) -> None:
        self.which = which

    def fetch(self, index: int) -> None:  # noqa: ARG002  # whichever it is
        info = get_worker_info()
        if info is not None and self.which in (None, info.id):
            time.sleep(3600)


class HeldAtFork(Rows):
    """A thread of the training process logs under a lock; whoever is forked meanwhile inherits it locked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        threading.Thread(target=self._log, daemon=True).start()

    def _log(self) -> None:
        while True:
            with self.lock:
                time.sleep(0.04)
            time.sleep(0.002)

    def fetch(self, index: int) -> None:  # noqa: ARG002  # whichever it is
        with self.lock:
            pass


class OpenMp(Rows):
    """GNU's OpenMP does not survive a fork: its threads are gone, and it waits for them."""

    def __init__(self) -> None:
        self.mean = (torch.rand(1 << 20) + 1).mean()

    def fetch(self, index: int) -> None:
        torch.set_num_threads(2)
        torch.rand(1 << 20) * index


class OpenCv(Rows):
    """Threads of OpenCV before and after the fork: with OpenCV 5.0 it works, with some older ones it hung."""

    def __init__(self) -> None:
        cv2.setNumThreads(4)
        cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.uint8), (31, 31), 0)

    def fetch(self, index: int) -> None:
        cv2.GaussianBlur(np.full((500, 500, 3), index, np.uint8), (31, 31), 0)


class Slow(Rows):
    """One sample takes two seconds: that is allowed."""

    def fetch(self, index: int) -> None:
        time.sleep(2 if index == 5 else 0.01)


def sleeps_at_once() -> Dataset[torch.Tensor]:
    return Sleeps(None)


def sleeps_at_sample_3() -> Dataset[torch.Tensor]:
    return Sleeps(3)


def lock_that_is_held() -> Dataset[torch.Tensor]:
    return Locked()


def silent_server() -> Dataset[torch.Tensor]:
    return Asks()


def sleeps_in_workers() -> DataLoader[torch.Tensor]:
    return DataLoader(SleepsInWorkers(None), batch_size=4, num_workers=2)


def waits_in_worker_1() -> DataLoader[torch.Tensor]:
    return DataLoader(SleepsInWorkers(1), batch_size=4, num_workers=2)


def lock_held_at_fork() -> DataLoader[torch.Tensor]:
    return DataLoader(HeldAtFork(), batch_size=4, num_workers=2)


def openmp_after_fork() -> DataLoader[torch.Tensor]:
    return DataLoader(OpenMp(), batch_size=4, num_workers=2)


def opencv_after_fork() -> DataLoader[torch.Tensor]:
    return DataLoader(OpenCv(), batch_size=4, num_workers=2)


def slow_but_alive() -> DataLoader[torch.Tensor]:
    return DataLoader(Slow(), batch_size=4, num_workers=2)
