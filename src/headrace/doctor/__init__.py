"""Does this loader work on this machine, with this data set: one module a check.

- `chaos_data`: the data set that chaos uses when it is given none.
- `chaos_report`: each round judged against the order that seed and epoch define.
- `chaos_run`: the referee that starts the process under test and strikes it from outside.
- `chaos_settings`: what a run is asked for.
- `chaos_subject`: the process under test.
- `fault_acts`: what each fault does to the process that it strikes.
- `fault_log`: which fault struck when.
- `fault_plan`: which fault strikes which sample or batch.
- `faulty_dataset`: a data set that fails as a plan says.
- `leftovers`: what a process has that it should give back.
- `targets`: what a user named as `module:attribute`.
- `tight_machine`: a full /dev/shm, few file descriptors.
"""

from .chaos_report import PROBLEMS, ChaosReport, Condemned, KindFigures, RoundFacts, RoundVerdict, judge_round
from .chaos_run import run_chaos
from .chaos_settings import PRACTICE, ChaosSettings, Subject
from .fault_plan import ALL_KINDS, Fault, FaultKind, draw_faults, epoch_order, expected_delivery

__all__ = [
    "ALL_KINDS",
    "PRACTICE",
    "PROBLEMS",
    "ChaosReport",
    "ChaosSettings",
    "Condemned",
    "Fault",
    "FaultKind",
    "KindFigures",
    "RoundFacts",
    "RoundVerdict",
    "Subject",
    "draw_faults",
    "epoch_order",
    "expected_delivery",
    "judge_round",
    "run_chaos",
]
