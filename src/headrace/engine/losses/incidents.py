"""What goes wrong, as events of a recording where there is one: workers lost and hung, samples that failed."""

import time
from typing import Any

from headrace.model import EventKind
from headrace.signals.recording import open_lane


def record_loss(pid: int) -> None:
    """A worker's process is gone before its time."""
    _write(EventKind.WORKER_LOST, 0, pid)


def record_hang(pid: int, age_s: float) -> None:
    """A worker stood still for so long, and is ended for it."""
    _write(EventKind.WORKER_HANG, int(age_s * 1e9), pid)


def record_bad_sample(key: Any) -> None:
    """A sample is left out."""
    _write(EventKind.BAD_SAMPLE, 0, key if type(key) is int else -1)


def _write(kind: EventKind, duration_ns: int, value: int) -> None:
    lane = open_lane()
    if lane is not None:
        lane.write(kind, time.perf_counter_ns() - duration_ns, duration_ns, value)
