"""Timing what a loader does: samples and their parts, tasks and what they used, every `next`.

- `sample_clock`: what is timed from outside: a sample with its parts, and every `next` of a loader.
- `tasks`: which tasks of a worker are looked into, and what they used.
"""

from .sample_clock import NextWatch, PartFrame, SampleClock, begin_sample, current_sample, end_sample
from .tasks import SHORT_TASK_NS, TaskPace, TaskUsage, born_ns

__all__ = [
    "SHORT_TASK_NS",
    "NextWatch",
    "PartFrame",
    "SampleClock",
    "TaskPace",
    "TaskUsage",
    "begin_sample",
    "born_ns",
    "current_sample",
    "end_sample",
]
