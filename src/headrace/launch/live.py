"""What a training is doing now, from the events that have just come in. Pure, but for the clock it is given."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from headrace.model import EventKind

_WINDOW_S = 10.0
_COUNTED = (EventKind.WAIT, EventKind.FETCH, EventKind.IDLE)


@dataclass(frozen=True, kw_only=True)
class LiveStatus:
    """The last seconds of a training, over all of its training processes."""

    steps: int  # since the start
    steps_per_s: float
    wait_share: float
    worst_wait_s: float
    quiet_s: float  # since anything was timed
    busy_share: float | None  # of the workers


class LiveTally:
    """Sums of events over the last seconds."""

    def __init__(self) -> None:
        self._steps = 0
        self._trainers: set[int] = set()
        self._has_workers = False
        self._last_s = 0.0
        # when, what; how many, their seconds, the longest
        self._recent: deque[tuple[float, EventKind, int, float, float]] = deque()

    def feed(self, pid: int, records: Any, now_s: float) -> None:
        """Take in the records that a process has written since the last time."""
        for kind in _COUNTED:
            chosen = records[records["kind"] == int(kind)]
            if len(chosen):
                count, durations_s = int((chosen["value"] >= 0).sum()), chosen["duration_ns"] / 1e9
                self._recent.append((now_s, kind, count, float(durations_s.sum()), float(durations_s.max())))
                self._has_workers |= kind is EventKind.IDLE
                if kind is EventKind.WAIT:
                    self._trainers.add(pid)
                    self._steps += count
        if len(records):
            self._last_s = now_s

    def status(self, now_s: float) -> LiveStatus | None:
        """Return what is known; None before the first batch."""
        if not self._trainers:
            return None
        while self._recent and self._recent[0][0] < now_s - _WINDOW_S:
            self._recent.popleft()
        first_s = self._recent[0][0] if self._recent else now_s
        span_s = max(0.5, min(_WINDOW_S, now_s - first_s + 0.5))
        waits, fetched, idled = ([row[2:] for row in self._recent if row[1] is kind] for kind in _COUNTED)
        fetched_s, idled_s = (sum(seconds for _, seconds, _ in rows) for rows in (fetched, idled))
        worked_s = fetched_s + idled_s
        return LiveStatus(
            steps=self._steps,
            steps_per_s=sum(count for count, _, _ in waits) / span_s,
            wait_share=min(1.0, sum(seconds for _, seconds, _ in waits) / (span_s * len(self._trainers))),
            worst_wait_s=max((longest for _, _, longest in waits), default=0.0),
            quiet_s=max(0.0, now_s - self._last_s),
            busy_share=fetched_s / worked_s if self._has_workers and worked_s else None,
        )
