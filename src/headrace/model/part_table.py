"""What the workers' time went into, part by part: rows that add up to the time of their tasks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PartKind(Enum):
    """What a part of a worker's task is."""

    READ = "read"
    DECODE = "decode"
    TRANSFORM = "transform"
    STAGE = "stage"  # named in the data set: `with headrace.stage(...)`
    OTHER = "other"  # of a sample: code that nobody timed
    COLLATE = "collate"


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """One part, over all workers. Shares are of its own time, without parts inside it: they add up to 1."""

    kind: PartKind
    name: str
    count: int  # samples in which it was called; of a stage and of collating: calls
    total_s: float  # of a stage: with what is inside it
    own_s: float
    median_s: float
    p95_s: float
    share: float  # of the tasks' time
    still_share: float | None = None  # of its own time, for which the worker stood still; None: not known
    mb_per_s: float | None = None  # None: nobody said how many bytes came out

    def as_json(self) -> dict[str, object]:
        """Return it as it stands in a document."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "count": self.count,
            "total_s": _rounded(self.total_s),
            "own_s": _rounded(self.own_s),
            "median_s": _rounded(self.median_s),
            "p95_s": _rounded(self.p95_s),
            "share": round(self.share, 4),
            "still_share": None if self.still_share is None else round(self.still_share, 4),
            "mb_per_s": None if self.mb_per_s is None else _rounded(self.mb_per_s),
        }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
