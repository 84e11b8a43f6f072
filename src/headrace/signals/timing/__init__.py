"""Timing what a loader does: samples and their parts, tasks and what they used, every `next`.

- `next_watch`: the seam through which somebody from outside is there when a loop asks our loader for a batch.
- `sample_clock`: the clock of a sample: what it took, and of that each part that is timed from outside. Every mome…
- `task_pace`: which tasks of a fetcher are looked into: their samples one by one, their resources in /proc. Pure.
- `task_resources`: what a task of a worker used: CPU time, time without a core and bytes read of its process.
"""

from .next_watch import watch_next, watched_next
from .sample_clock import EventSink, PartFrame, SampleClock, begin_sample, current_sample, end_sample
from .task_pace import SHORT_TASK_NS, TaskPace
from .task_resources import TaskResources, born_ns

__all__ = [
    "SHORT_TASK_NS",
    "EventSink",
    "PartFrame",
    "SampleClock",
    "TaskPace",
    "TaskResources",
    "begin_sample",
    "born_ns",
    "current_sample",
    "end_sample",
    "watch_next",
    "watched_next",
]
