"""A series of steps: which were slow, at which distances, and where the time went.

- `stalls`: which steps took much longer than they typically do, for once or from some step on.
- `periods`: whether slow steps come at equal distances, at which, and what that may be called.
- `data_waits`: what the waits for data say.
- `losses`: where the time of a series went, and the evidence in sentences.
"""

from .data_waits import (
    BOUND_FROM,
    LOCKSTEP_LIMIT,
    SUPPLY_CAUSES,
    WAITS_FROM,
    lockstep_rounds,
    long_wait_s,
    supply_and_demand,
    waits_evidence,
)
from .losses import PLENTY, SLOW_STEPS, Analysis, analyse, evidence_of, report_from, verdict_of
from .periods import LostTime, StepPeriod, find_period, find_rhythm
from .stalls import Cost, cost_of, of_weight

__all__ = [
    "BOUND_FROM",
    "LOCKSTEP_LIMIT",
    "PLENTY",
    "SLOW_STEPS",
    "SUPPLY_CAUSES",
    "WAITS_FROM",
    "Analysis",
    "Cost",
    "LostTime",
    "StepPeriod",
    "analyse",
    "cost_of",
    "evidence_of",
    "find_period",
    "find_rhythm",
    "lockstep_rounds",
    "long_wait_s",
    "of_weight",
    "report_from",
    "supply_and_demand",
    "verdict_of",
    "waits_evidence",
]
