"""Starts the trainings of `trainings.py` and ends them with everything they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

SCRIPT = Path(__file__).parent / "trainings.py"
# Generous: a machine of CI may take many times as long as a desk to import torch.
WITHIN_S = 90.0


@contextmanager
def training(scenario: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training that has taken its first step; ended at the end, whatever state it is in."""
    ready = folder / "ready"
    command = [sys.executable, str(SCRIPT), scenario, str(ready)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None
        yield process
    finally:
        if process.poll() is None:
            family = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
            for pid in family:
                kill(pid, signal.SIGKILL)
        process.wait()


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def wait_until(is_so: Callable[[], object], *, within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
