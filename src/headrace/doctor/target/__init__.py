"""Whether a target works here: its samples, its batches in-process and from workers, stage by stage.

- `inspecting`: what a data set is made of: which part cannot be pickled, holds a file open, is copied into workers.
- `judging`: what came of the stages, as checks with findings. Pure; its sentences are in `problems.toml`.
- `patient`: the process that has the target and goes through the stages.
- `stages`: the command's side: one stage after the other, bounded in time and memory.
"""

from .judging import Judge
from .stages import DoctorSettings, StageResult, run_stages

__all__ = ["DoctorSettings", "Judge", "StageResult", "run_stages"]
