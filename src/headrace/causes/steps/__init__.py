"""A series of steps: which were slow, at which distances, and where the time went.

- `stalls`: which steps took much longer than they typically do, for once or from some step on.
- `periods`: whether slow steps come at equal distances, at which, and what that may be called.
- `data_waits`: what the waits for data say.
- `losses`: where the time of a series went, and the evidence in sentences.
- `timeline`: where a thread's time went, from events that lie inside each other: every moment is counted once.
"""

from .data_waits import lockstep_limit, supply_and_demand
from .losses import (
    REPORT_FROM,
    REPORT_FROM_ELSE,
    REPORT_ONCE_FROM,
    Analysis,
    LostTime,
    analyse,
    evidence_of,
    lockstep_rounds,
)
from .periods import StepPeriod, find_period, find_rhythm
from .stalls import of_weight
from .timeline import Span, exclusive_times

__all__ = [
    "REPORT_FROM",
    "REPORT_FROM_ELSE",
    "REPORT_ONCE_FROM",
    "Analysis",
    "LostTime",
    "Span",
    "StepPeriod",
    "analyse",
    "evidence_of",
    "exclusive_times",
    "find_period",
    "find_rhythm",
    "lockstep_limit",
    "lockstep_rounds",
    "of_weight",
    "supply_and_demand",
]
