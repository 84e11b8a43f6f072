"""What goes wrong, as events of a recording where there is one: workers lost and hung, samples that failed."""

import time

from headrace.model import EventKind
from headrace.signals.recording import open_lane


def record_incident(kind: EventKind, value: int, *, lasted_s: float = 0.0) -> None:
    """Write an event that ends now; `value` is the process of a worker, or the key of a sample, -1 for no number."""
    lane = open_lane()
    if lane is not None:
        duration_ns = int(lasted_s * 1e9)
        lane.write(kind, time.perf_counter_ns() - duration_ns, duration_ns, value)
