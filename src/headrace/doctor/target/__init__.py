"""Whether a target works here: its samples, its batches in-process and from workers, stage by stage.

- `inspecting`: what a data set is made of: which part cannot be pickled, holds a file open, is copied into workers.
- `judging`: what came of the stages, as checks with findings. Pure.
- `patient`: the process that has the target and goes through the stages.
- `problems`: what can be wrong, in words.
- `stages`: the command's side: one stage after the other, bounded in time and memory.
"""

from collections.abc import Callable

from headrace.model import Text

from ..checks import Check
from .judging import Judge
from .stages import DoctorSettings, StageResult, run_stages

__all__ = ["DoctorSettings", "Judge", "StageResult", "examine", "run_stages"]


def examine(settings: DoctorSettings, tell: Callable[[Text], None] = lambda _: None) -> tuple[Check, ...]:
    """Test a target stage by stage; `tell` is told what is going on."""
    return tuple(Judge(settings.target, run_stages(settings, tell)).checks())
