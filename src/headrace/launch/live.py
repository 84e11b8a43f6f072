"""What a training is doing now, from the events that have just come in. Pure, but for the clock it is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model import EventKind, copied_ns

_WINDOW_S = 10.0
_COUNTED = {
    int(kind): kind
    for kind in (
        EventKind.WAIT,
        EventKind.FORWARD,
        EventKind.BACKWARD,
        EventKind.OPTIMIZER,
        EventKind.H2D,
        EventKind.SYNC,
        EventKind.RANKS,
        EventKind.CHECKPOINT,
        EventKind.EVALUATION,
        EventKind.LOGGING,
        EventKind.GC,
        EventKind.IDLE,
        EventKind.FETCH,
    )
}


@dataclass(frozen=True, kw_only=True)
class LiveStatus:
    """The last seconds of a training, over all of its training processes."""

    steps: int  # since the start
    steps_per_s: float
    wait_share: float
    worst_wait_s: float
    quiet_s: float  # since anything was timed
    num_workers: int
    busy_share: float | None  # of the workers
    shares: Mapping[str, float]  # of the training processes' time, by kind of event; they may lie inside each other


class LiveTally:
    """Sums of events over the last seconds."""

    def __init__(self) -> None:
        self._steps = 0
        self._trainers: set[int] = set()
        self._workers: set[int] = set()
        self._last_s = 0.0
        self._recent: deque[tuple[float, int, dict[EventKind, tuple[int, float, float]]]] = deque()

    def feed(self, pid: int, records: Any, now_s: float) -> None:
        """Take in the records that a process has written since the last time."""
        sums: dict[EventKind, tuple[int, float, float]] = {}
        kinds, durations, values = records["kind"], records["duration_ns"], records["value"]
        waited_s = 0.0  # by copies, for the device
        for number, kind in _COUNTED.items():
            chosen = kinds == number
            count = int(chosen.sum())
            if not count:
                continue
            if kind is EventKind.WAIT:
                self._trainers.add(pid)
                count = int((values[chosen] >= 0).sum())
                self._steps += count
            elif kind is EventKind.IDLE:
                self._workers.add(pid)
            sums[kind] = (count, float(durations[chosen].sum()) / 1e9, float(durations[chosen].max()) / 1e9)
            if kind is EventKind.H2D:
                pairs = zip(durations[chosen].tolist(), records["arg"][chosen].tolist(), strict=True)
                waited_s = sum(duration - copied_ns(duration, arg) for duration, arg in pairs) / 1e9
                sums[kind] = (count, sums[kind][1] - waited_s, sums[kind][2])
        if waited_s:
            count, seconds, longest = sums.get(EventKind.SYNC, (0, 0.0, 0.0))
            sums[EventKind.SYNC] = (count, seconds + waited_s, longest)
        if sums:
            self._recent.append((now_s, pid, sums))
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
        totals: dict[EventKind, float] = {}
        steps, worst, seen = 0, 0.0, set()
        for _, pid, sums in self._recent:
            for kind, (count, seconds, longest) in sums.items():
                if kind in {EventKind.IDLE, EventKind.FETCH}:
                    seen.add(pid)
                elif pid not in self._trainers:
                    continue
                totals[kind] = totals.get(kind, 0.0) + seconds
                if kind is EventKind.WAIT:
                    steps, worst = steps + count, max(worst, longest)
        trained_s = span_s * len(self._trainers)
        workers = seen & self._workers
        fetched, idled = totals.pop(EventKind.FETCH, 0.0), totals.pop(EventKind.IDLE, 0.0)
        return LiveStatus(
            steps=self._steps,
            steps_per_s=steps / span_s,
            wait_share=min(1.0, totals.get(EventKind.WAIT, 0.0) / trained_s),
            worst_wait_s=worst,
            quiet_s=max(0.0, now_s - self._last_s),
            num_workers=len(workers),
            busy_share=fetched / (fetched + idled) if workers and fetched + idled > 0 else None,
            shares={kind.name.lower(): min(1.0, seconds / trained_s) for kind, seconds in totals.items()},
        )
