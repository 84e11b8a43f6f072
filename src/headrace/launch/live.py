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
        # when, and for each kind: how many, their seconds, the longest
        self._recent: deque[tuple[float, dict[EventKind, tuple[int, float, float]]]] = deque()

    def feed(self, pid: int, records: Any, now_s: float) -> None:
        """Take in the records that a process has written since the last time."""
        sums = {}
        kinds, durations, values = records["kind"], records["duration_ns"] / 1e9, records["value"]
        for kind in _COUNTED:
            chosen = kinds == int(kind)
            if chosen.any():
                count = int((values[chosen] >= 0).sum())
                sums[kind] = (count, float(durations[chosen].sum()), float(durations[chosen].max()))
        if EventKind.WAIT in sums:
            self._trainers.add(pid)
            self._steps += sums[EventKind.WAIT][0]
        self._has_workers = self._has_workers or EventKind.IDLE in sums
        if len(kinds):
            self._recent.append((now_s, sums))
            self._last_s = now_s
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while self._recent and self._recent[0][0] < now_s - _WINDOW_S:
            self._recent.popleft()

    def status(self, now_s: float) -> LiveStatus | None:
        """Return what is known; None before the first batch."""
        if not self._trainers:
            return None
        self._forget(now_s)
        first_s = self._recent[0][0] if self._recent else now_s
        span_s = max(0.5, min(_WINDOW_S, now_s - first_s + 0.5))
        waits = [sums[EventKind.WAIT] for _, sums in self._recent if EventKind.WAIT in sums]
        fetched_s, idled_s = (
            sum(sums[kind][1] for _, sums in self._recent if kind in sums) for kind in (EventKind.FETCH, EventKind.IDLE)
        )
        worked_s = fetched_s + idled_s
        return LiveStatus(
            steps=self._steps,
            steps_per_s=sum(count for count, _, _ in waits) / span_s,
            wait_share=min(1.0, sum(seconds for _, seconds, _ in waits) / (span_s * len(self._trainers))),
            worst_wait_s=max((longest for _, _, longest in waits), default=0.0),
            quiet_s=max(0.0, now_s - self._last_s),
            busy_share=fetched_s / worked_s if self._has_workers and worked_s else None,
        )
