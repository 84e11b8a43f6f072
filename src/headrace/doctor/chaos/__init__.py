"""A loader under faults, each sample checked.

- `data`: the data set that `headrace chaos` uses when it is given none: small samples of several kinds of content.
- `fault_acts`: what each fault does to the process that it strikes.
- `fault_log`: which fault struck when, written by whoever it strikes before it strikes: what a dying worker says s…
- `fault_plan`: which fault strikes which sample or which batch: drawn from a seed, so that a run can be repeated. …
- `faulty_dataset`: a data set that fails as a plan says, and whose samples carry their index and a digest of their…
- `leftovers`: what a process has that it should give back: child processes, open files, entries of /dev/shm.
- `referee`: the referee: starts the process under test, strikes its workers from outside, and notices when nothing…
- `report`: what a run of chaos found: each round judged against the order that seed and epoch define. Pure.
- `settings`: what a run of chaos is asked for, and what one round of it is told: plain values that travel as JSON.
- `subject`: the process under test: runs a loader through rounds of faults, and tells what came out of it.
- `tight_machine`: make the machine tight for one process: a /dev/shm that is full, few file descriptors.
"""

from .fault_plan import ALL_KINDS, Fault, FaultKind, draw_faults, epoch_order, expected_delivery
from .referee import run_chaos
from .report import PROBLEMS, ChaosReport, Condemned, KindFigures, RoundFacts, RoundVerdict, judge_round
from .settings import PRACTICE, ChaosSettings, Subject

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
