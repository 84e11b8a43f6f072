"""The live status: steps, waits and workers of the last seconds."""

import numpy as np
import pytest

from headrace.launch import LiveTally
from headrace.model import EventKind

_DTYPE = np.dtype([("kind", "<u2"), ("duration_ns", "<u8"), ("value", "<i8"), ("arg", "<u4")])
_MS = 1_000_000


def _records(*rows: tuple[EventKind, int, int]) -> np.ndarray:
    return np.array([(int(kind), ms * _MS, value, 0) for kind, ms, value in rows], _DTYPE)


def test_waits_and_workers_of_the_last_seconds_count() -> None:
    tally = LiveTally()
    assert tally.status(10.0) is None
    tally.feed(1, _records((EventKind.WAIT, 100, 0), (EventKind.WAIT, 300, 1), (EventKind.WAIT, 50, -1)), 10.0)
    tally.feed(2, _records((EventKind.FETCH, 300, 0), (EventKind.IDLE, 100, 0)), 10.0)
    status = tally.status(10.5)  # over a second: drains come twice in it
    assert status is not None
    assert (status.steps, status.steps_per_s, status.quiet_s) == (2, 2.0, 0.5)
    assert status.wait_share == pytest.approx(0.45)
    assert status.worst_wait_s == pytest.approx(0.3)
    assert status.busy_share == pytest.approx(0.75)
    later = tally.status(60.0)
    assert later is not None
    assert (later.steps, later.wait_share, later.busy_share, later.quiet_s) == (2, 0.0, None, 50.0)
