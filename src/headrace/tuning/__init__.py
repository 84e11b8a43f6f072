"""What to change: how much memory a configuration takes, how many samples a second it gives, and which one is best.

- `fitting`: which configurations fit a machine: safe, balanced, aggressive, limit.
- `measuring`: what a sample and a worker cost, measured in a process of its own.
- `memory`: how much memory a configuration takes at its peak, term by term. Pure.
- `model`: samples a second of a candidate, from what one sample costs. Pure.
- `probing`: runs one candidate for a stretch, in a process of its own.
- `search`: which candidate to try next, or which one is best. Pure.
- `tuner`: the search, driven; what came out of it, in words and as code.

Names are loaded when they are first used: the model needs no NumPy.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .fitting import Machine, Tier, TierRow, tier_rows, with_own_ahead
    from .measuring import Measured, measure_target
    from .memory import Configuration, LoaderName, MemoryPlan, SampleCost, Term, TermKind, peak_memory
    from .model import Candidate, Service, ThroughputModel, candidates, worker_counts
    from .probing import ProbeHost
    from .search import Failure, Probe, ProbeOutcome, Problem, TuneAnswer, answer_of, next_of_sweep, next_step
    from .tuner import FAILURES, TuneReport, TuneSettings, arguments, profile_settings, reasons, tune

__all__ = [
    "FAILURES",
    "Candidate",
    "Configuration",
    "Failure",
    "LoaderName",
    "Machine",
    "Measured",
    "MemoryPlan",
    "Probe",
    "ProbeHost",
    "ProbeOutcome",
    "Problem",
    "SampleCost",
    "Service",
    "Term",
    "TermKind",
    "ThroughputModel",
    "Tier",
    "TierRow",
    "TuneAnswer",
    "TuneReport",
    "TuneSettings",
    "answer_of",
    "arguments",
    "candidates",
    "measure_target",
    "next_of_sweep",
    "next_step",
    "peak_memory",
    "profile_settings",
    "reasons",
    "tier_rows",
    "tune",
    "with_own_ahead",
    "worker_counts",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    fitting="Machine Tier TierRow tier_rows with_own_ahead",
    measuring="Measured measure_target",
    memory="Configuration LoaderName MemoryPlan SampleCost Term TermKind peak_memory",
    model="Candidate Service ThroughputModel candidates worker_counts",
    probing="ProbeHost",
    search="TuneAnswer Failure Probe ProbeOutcome Problem answer_of next_of_sweep next_step",
    tuner="FAILURES TuneReport TuneSettings arguments profile_settings reasons tune",
)
