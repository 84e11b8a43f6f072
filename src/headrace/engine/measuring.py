"""Does a second thread nearly double the rate of a data set?"""

from __future__ import annotations

import threading
import time
from typing import Any

from ..model import record_stages


def second_thread_gain(dataset: Any, indices: list[Any]) -> float:
    """Rate of two threads over that of one, on samples that are thrown away: a third alone, two thirds at once."""
    part = max(1, len(indices) // 3)

    def fetch(some: list[Any]) -> None:
        for index in some:
            dataset[index]

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
    return 2 * alone / max(together, 1e-9)
