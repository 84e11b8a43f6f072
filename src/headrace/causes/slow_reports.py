"""What reports of slow batches alone say: their distance, what was supplied and what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .logs import Recent, StepStore
from .steps import Period, find_period, find_rhythm, of_weight

_LONGEST = 1_000_000  # steps over which a rhythm is looked for


@dataclass(frozen=True, kw_only=True)
class SlowReports:
    """A loader seen only through its slow batches."""

    steps: tuple[int, ...]
    waits_s: tuple[float, ...]
    period: Period | None
    wall_s: float | None  # from the first to the last report; None without time stamps
    lost_s: float | None  # of it, waiting in the batches reported
    num_steps: int  # in that time
    supply_per_s: float | None
    demand_per_s: float | None
    demand_is_told: bool  # the log tells the step time; else it is what remains without the waits
    window: Recent | None  # a watcher's window in which one batch holds nearly all the waiting
    one_holds_all: int  # so many windows are like that
    num_windows: int


def read_slow_reports(store: StepStore, recent: Sequence[Recent], fast_step_s: float | None) -> SlowReports | None:
    """Return what the reports of slow batches amount to; None where there are fewer than two."""
    steps, waits, at_s = (np.asarray(store.column(name)) for name in ("step", "wait_s", "at_s"))
    stamped = ~np.isnan(at_s)
    if stamped.mean() > 0.5:  # the others are quotations of one
        steps, waits, at_s = steps[stamped], waits[stamped], at_s[stamped]
    if len(steps) < 2:
        return None
    # Excerpts may stand in any order. In the order of time a step that goes back is a new epoch.
    order = np.argsort(at_s if stamped.mean() > 0.5 else steps, kind="stable")
    steps, waits, at_s = steps[order], waits[order], at_s[order]
    parts = np.split(steps, np.flatnonzero(np.diff(steps) < 0) + 1)
    wall_s = lost_s = supply = None
    num_steps = int(steps[-1] - steps[0])
    if not np.isnan(at_s).any() and at_s.max() > at_s.min() and num_steps > 0 and len(parts) == 1:
        wall_s = float(at_s.max() - at_s.min())
        lost_s = min(wall_s, float(waits[1:].sum()))  # the first one's wait lies before the first report
        supply = num_steps / wall_s
    demand = 1 / fast_step_s if fast_step_s else None
    if demand is None and wall_s is not None and lost_s is not None and wall_s > lost_s:
        demand = num_steps / (wall_s - lost_s)
    telling = [one for one in recent if one.worst_s > 0.9 * one.count * one.mean_s]
    return SlowReports(
        steps=tuple(int(step) for step in steps),
        waits_s=tuple(float(wait) for wait in waits),
        period=_period(parts, np.split(waits, np.flatnonzero(np.diff(steps) < 0) + 1)),
        wall_s=wall_s,
        lost_s=lost_s,
        num_steps=num_steps,
        supply_per_s=supply,
        demand_per_s=demand,
        demand_is_told=fast_step_s is not None,
        window=telling[0] if telling else None,
        one_holds_all=len(telling),
        num_windows=len(recent),
    )


def _period(steps: Sequence[NDArray[np.float64]], waits: Sequence[NDArray[np.float64]]) -> Period | None:
    """Return the distance of the reports: of all, of those that carry the loss, or the rhythm of the waits."""
    whole = find_period([part.tolist() for part in steps])
    if whole is not None:
        return whole
    kept = of_weight(np.concatenate(waits))
    ends = np.cumsum([len(part) for part in steps])
    heavy = [part[flags].tolist() for part, flags in zip(steps, np.split(kept, ends[:-1]), strict=True)]
    period = find_period(heavy)
    longest = max(range(len(steps)), key=lambda index: len(steps[index]))
    length = int(steps[longest][-1] - steps[longest][0]) + 1
    if period is None and length <= _LONGEST:
        line = np.zeros(length)
        line[(steps[longest] - steps[longest][0]).astype(int)] = waits[longest]
        period = find_rhythm(line)
    return period
