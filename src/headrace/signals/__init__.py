"""What is happening: written by whoever feeds, read by whoever wants to know why.

- `recording`: a recorded run: events in shared memory, drained into a run directory, and read back.
- `system`: what the kernel says of processes, threads, control groups and the machine.
- `timing`: timing what a loader does: samples and their parts, tasks, every `next`.
- `stacks`: Python stacks of another process.
- `quarantine`: the samples that runs over a data set have condemned, in a file.
"""

from .quarantine import DamagedLine, QuarantinedSample, QuarantineFile, merge_failures, skip_set
from .stacks import Frame, StackFile, Stacks, ThreadStack, dump_with_py_spy, find_py_spy
from .timing import (
    SHORT_TASK_NS,
    NextWatch,
    PartFrame,
    SampleClock,
    TaskPace,
    TaskUsage,
    begin_sample,
    born_ns,
    current_sample,
    end_sample,
)

__all__ = [
    "SHORT_TASK_NS",
    "DamagedLine",
    "Frame",
    "NextWatch",
    "PartFrame",
    "QuarantineFile",
    "QuarantinedSample",
    "SampleClock",
    "StackFile",
    "Stacks",
    "TaskPace",
    "TaskUsage",
    "ThreadStack",
    "begin_sample",
    "born_ns",
    "current_sample",
    "dump_with_py_spy",
    "end_sample",
    "find_py_spy",
    "merge_failures",
    "skip_set",
]
