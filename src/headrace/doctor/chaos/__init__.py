"""A loader under faults, each sample checked.

- `fault_plan`: what a run is asked for, and which fault strikes which sample or batch. Pure.
- `faulty_dataset`: a data set that fails as a plan says, in each of its ways, and whose samples carry a digest.
- `referee`: starts the process under test, strikes its workers, notices when nothing comes.
- `report`: each round judged against the order that seed and epoch define. Pure.
- `subject`: the process under test: runs a loader through rounds of faults, those of the machine among them, and
  tells what it did not give back.
"""

from .fault_plan import PRACTICE, ChaosSettings
from .referee import run_chaos
from .report import ChaosReport, RoundVerdict

__all__ = ["PRACTICE", "ChaosReport", "ChaosSettings", "RoundVerdict", "run_chaos"]
