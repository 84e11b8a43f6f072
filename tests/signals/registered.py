"""Processes that answer when they are asked for their stacks."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from headrace.signals import StackFile

FORK = multiprocessing.get_context("fork")


def run_registered(target: Callable[[], object], stack_file: StackFile) -> None:
    faulthandler.disable()  # pytest's own
    stack_file.register(tracer_pid=os.getppid())
    target()


@contextmanager
def running(target: Callable[[], object]) -> Iterator[tuple[int, StackFile]]:
    """A forked process that has registered its handler and does `target`; killed at the end, with its children."""
    stack_file = StackFile.create()
    process = FORK.Process(target=run_registered, args=(target, stack_file))
    process.start()
    assert process.pid is not None
    try:
        wait_until(lambda: stack_file.signal_number() is not None)
        yield process.pid, stack_file
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.join(60)
        process.close()
        stack_file.close()


def wait_until(is_so: Callable[[], bool], *, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
