"""The live status: what a copy waits for the device is shown as such."""

import numpy as np
import pytest

from headrace.launch import LiveTally
from headrace.model import EventKind, copy_arg

_DTYPE = np.dtype([("kind", "<u2"), ("duration_ns", "<u8"), ("value", "<i8"), ("arg", "<u4")])


def test_waits_of_copies_are_waits_for_the_device() -> None:
    tally = LiveTally()
    ms = 1_000_000
    records = np.array(
        [
            (EventKind.WAIT, 100 * ms, 0, 0),
            (EventKind.H2D, 400 * ms, 8, copy_arg(100 * ms)),
            (EventKind.H2D, 100 * ms, 8, 0),
            (EventKind.SYNC, 50 * ms, 0, 3),
        ],
        _DTYPE,
    )
    tally.feed(1, records, 10.0)
    status = tally.status(10.5)
    assert status is not None
    span_s = 1.0
    assert status.shares["h2d"] == pytest.approx(0.2 / span_s)
    assert status.shares["sync"] == pytest.approx(0.35 / span_s)
    tally.feed(1, records[1:2], 10.5)  # no other wait for the device in this one
    status = tally.status(10.5)
    assert status is not None
    assert status.shares["h2d"] == pytest.approx(0.3 / span_s)
    assert status.shares["sync"] == pytest.approx(0.65 / span_s)
