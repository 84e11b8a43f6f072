"""What to change: how much memory a configuration takes, and which ones fit a machine.

- `fitting`: which configurations fit a machine: safe, balanced, aggressive, limit.
- `measuring`: what a sample and a worker cost, measured in a process of its own.
- `memory`: how much memory a configuration takes at its peak, term by term. Pure.
"""

from .fitting import Machine, Tier, TierRow, tier_rows, with_own_ahead
from .measuring import Measured, measure_target
from .memory import Configuration, LoaderName, MemoryPlan, SampleCost, Term, TermKind, peak_memory

__all__ = [
    "Configuration",
    "LoaderName",
    "Machine",
    "Measured",
    "MemoryPlan",
    "SampleCost",
    "Term",
    "TermKind",
    "Tier",
    "TierRow",
    "measure_target",
    "peak_memory",
    "tier_rows",
    "with_own_ahead",
]
