"""The live status: steps, waits and workers of the last seconds."""

import numpy as np

from headrace.launch import LiveTally
from headrace.model import EventKind

_DTYPE = np.dtype([("kind", "<u2"), ("duration_ns", "<u8"), ("value", "<i8"), ("arg", "<u4")])
_MS = 1_000_000


def _records(*rows: tuple[EventKind, int, int]) -> np.ndarray:
    return np.array([(int(kind), ms * _MS, value, 0) for kind, ms, value in rows], _DTYPE)


def test_waits_and_workers_of_the_last_seconds_count() -> None:
    tally = LiveTally()
    assert tally.said(10.0).en == "no batch yet"
    tally.feed(1, _records((EventKind.WAIT, 100, 0), (EventKind.WAIT, 300, 1), (EventKind.WAIT, 50, -1)), 10.0)
    tally.feed(2, _records((EventKind.FETCH, 300, 0), (EventKind.IDLE, 100, 0)), 10.0)
    said = tally.said(10.5)  # over a second: drains come twice in it
    assert said.en == "2 steps, 2.00/s, waiting for data 45 %, worst wait 300 ms, workers busy 75 %"
    assert said.zh == "2 步，2.00 步/秒，等数据 45 %，最长等待 300 ms，worker 忙碌 75 %"
    assert tally.said(60.0).en == "2 steps, and nothing that is timed for 50.0 s"
    tally.feed(2, _records((EventKind.IDLE, 100, 0)), 60.0)  # what is older no longer counts
    assert tally.said(60.5).en == "2 steps, 0/s, waiting for data 0.0 %, worst wait 0 ms, workers busy 0.0 %"
