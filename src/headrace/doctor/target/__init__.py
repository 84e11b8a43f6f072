"""Whether a target works here: its samples, its batches in-process and from workers, stage by stage.

- `inspecting`: what a data set is made of: which part cannot be pickled, holds a file open, is copied into workers.
- `judging`: what came of the stages, as checks with findings. Pure; its sentences are in `problems.toml`.
- `patient`: the process that has the target and goes through the stages.
- `stages`: the command's side: one stage after the other, bounded in time and memory.
"""

from collections.abc import Callable

from headrace.model import Text
from headrace.signals.system import read_machine

from ..checks import Check
from .judging import Judge
from .stages import DoctorSettings, StageResult, run_stages

__all__ = ["DoctorSettings", "Judge", "StageResult", "examine", "run_stages"]


def examine(settings: DoctorSettings, tell: Callable[[Text], None] = lambda _: None) -> tuple[Check, ...]:
    """Test a target stage by stage; `tell` is told what is going on."""
    machine = read_machine()
    free_bytes = machine.shm_free_bytes if machine is not None else None
    return tuple(Judge(settings.target, run_stages(settings, tell), free_bytes).checks())
