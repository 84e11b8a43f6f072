"""Does a second thread nearly double the rate of a data set?"""

from __future__ import annotations

import threading
import time
from typing import Any

from headrace.model import record_stages

from ..memory import Task, Work

# a block's offset in a 32-bit field of a message, in units of its alignment
_PAYLOAD_UNIT = 64


def measure_task(block: int) -> Work:
    """The task that measures threads on the indices in a block."""
    return Work(-1, 0, 0, Task.MEASURE, block // _PAYLOAD_UNIT)


def block_of(work: Work) -> int:
    """The block with the indices that such a task is about."""
    return work.argument * _PAYLOAD_UNIT


def second_thread_gain(dataset: Any, indices: list[Any]) -> float | None:
    """Rate of two threads over that of one, on samples that are thrown away: a third alone, two thirds at once.

    None where a sample fails: it will fail again in its own batch, where somebody hears of it.
    """
    part = max(1, len(indices) // 3)
    failed = threading.Event()

    def fetch(some: list[Any]) -> None:
        try:
            for index in some:
                dataset[index]
        except Exception:
            failed.set()

    with record_stages(None, for_process=True):  # nobody gets these samples: their stages do not count
        fetch(indices[:1])  # what only the first sample pays for
        started = time.perf_counter()
        fetch(indices[:part])
        alone = time.perf_counter() - started
        other = threading.Thread(target=fetch, args=(indices[part : 2 * part],), name="headrace-measure")
        started = time.perf_counter()
        other.start()
        fetch(indices[2 * part : 3 * part])
        other.join()
        together = time.perf_counter() - started
    return None if failed.is_set() else 2 * alone / max(together, 1e-9)
