"""Where the time of a process went: rows that add up to its wall clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Activity(Enum):
    """What a training process was doing."""

    STARTUP = "startup"  # before the first epoch: imports, building the model
    EPOCH_START = "epoch_start"  # `iter(loader)` and the first batch of an epoch
    WAIT = "wait"  # every other `next(loader)`
    PIN = "pin"
    H2D = "h2d"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    SYNC = "sync"  # the host waits for the device, which computes
    RANKS = "ranks"  # the host waits for other ranks
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    LOGGING = "logging"
    GC = "gc"
    PHASE = "phase"  # the user's own mark
    REPLAY = "replay"  # steps on cached batches, which measure the ceiling; copying them
    ENDING = "ending"  # after the last thing that was timed: the script's end
    OTHER = "other"  # the loop's own code, and what nobody timed


@dataclass(frozen=True, kw_only=True)
class TimeRow:
    """One row: exclusive time, so that what lies inside another activity is counted once."""

    activity: Activity
    seconds: float
    share: float  # of the wall clock
    count: int = 0
    name: str = ""  # of a phase
    parts: Mapping[str, float] | None = None  # of a wait: what the workers did meanwhile, as shares of it

    def as_json(self) -> dict[str, object]:
        """Return it as it stands in a document."""
        row: dict[str, object] = {
            "activity": self.activity.value,
            "seconds": round(self.seconds, 4),
            "share": round(self.share, 4),
            "count": self.count,
        }
        if self.name:
            row["name"] = self.name
        if self.parts:
            row["workers"] = {name: round(part, 4) for name, part in self.parts.items()}
        return row
