"""How a training that runs is reached from outside, and what it waits for.

- `session`: watching, stretch by stretch, until the training ends or nobody asks any more.
- `sampling`: what is looked at many times a second: Python stacks, and what the kernel says of threads.
- `processes`: who trains, who loads for it, who only started them; how a process that is not our child ended.
- `reading`: from a stack, and from the kernel's word, to what a trainer or a worker is doing.
- `judging`: from what was sampled in a stretch to what each process did.
- `shares`: shares of time from samples that follow each other, with an interval that allows for their likeness.
- `look`: what was seen in one stretch: plain values, and their JSON.
- `alarms`: when to raise an alarm, and the user's command for it.
- `findings`: from all that was watched to a verdict and findings, in sentences.
"""

from .alarms import AlarmSettings, AlertCommand, MemoryLine
from .findings import History, judge
from .look import SCHEMA, Alarm, Look, MachineLook, TrainerLook, WorkerLook
from .processes import End
from .session import WatchSession, WatchSettings
from .shares import Share

__all__ = [
    "SCHEMA",
    "Alarm",
    "AlarmSettings",
    "AlertCommand",
    "End",
    "History",
    "Look",
    "MachineLook",
    "MemoryLine",
    "Share",
    "TrainerLook",
    "WatchSession",
    "WatchSettings",
    "WorkerLook",
    "judge",
]
