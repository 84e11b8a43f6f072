"""What to change: how much memory a configuration takes, how many samples a second it gives, and which one is best.

- `measuring`: what a sample and a worker take of memory, measured.
- `memory`: how much memory a configuration takes at its peak, term by term; which ones fit a machine.
- `model`: samples a second of a candidate, from what one sample costs. Pure.
- `probing`: a process that has a target: runs one candidate for a stretch, or measures.
- `search`: which candidate to try next, or which one is best. Pure.
- `tuner`: the search, driven; what came out of it, in words and as code.

Names are loaded when they are first used: the model needs no NumPy.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .measuring import Measured
    from .memory import Configuration, Machine, MemoryPlan, SampleCost, TierRow, peak_memory, tier_rows
    from .model import Candidate, worker_counts
    from .probing import ProbeHost, TargetFacts
    from .search import ProbeOutcome
    from .tuner import TuneReport, TuneSettings, tune

__all__ = [
    "Candidate",
    "Configuration",
    "Machine",
    "Measured",
    "MemoryPlan",
    "ProbeHost",
    "ProbeOutcome",
    "SampleCost",
    "TargetFacts",
    "TierRow",
    "TuneReport",
    "TuneSettings",
    "peak_memory",
    "tier_rows",
    "tune",
    "worker_counts",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    measuring="Measured",
    memory="Configuration Machine MemoryPlan SampleCost TierRow peak_memory tier_rows",
    model="Candidate worker_counts",
    probing="ProbeHost TargetFacts",
    search="ProbeOutcome",
    tuner="TuneReport TuneSettings tune",
)
