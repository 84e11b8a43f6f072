"""How a training is started or reached.

Attaching to one that runs (`headrace watch`):

- `stack_rules`, `stack_reading`, `worker_reading`: from a Python stack to what a process is doing.
- `watch_tree`, `watch_roles`: the processes below one, and which of them train, load, launch.
- `watch_stacks`, `watch_kernel`, `watch_source`: stacks many times a second, threads' states, source lines.
- `watch_usage`, `watch_machine`: what a process used, and the machine around it.
- `watch_shares`, `watch_still`: shares of time with their intervals; how long a process has not got on.
- `watch_judging`: from a stretch of samples to what each process did.
- `watch_look`: what was seen, as plain values and JSON.
- `watch_alarms`, `watch_alerts`: when to raise an alarm, and the user's command for it.
- `watch_end`: how a process ended that is not our child.
- `watch_access`: why a process may not be looked into.
- `watch_session`: the watch itself.
- `watch_findings`, `watch_advice`: the verdict, and its sentences.
- `watch_dump`: everything that can be seen of a run that hangs.
"""

from .stack_reading import Activity, Detail, Reading, read_trainer
from .watch_advice import ACTIVITIES, DOING
from .watch_alarms import AlarmSettings, MemoryLine
from .watch_alerts import AlertCommand
from .watch_dump import dump_run
from .watch_end import End
from .watch_findings import History, judge
from .watch_look import SCHEMA as WATCH_SCHEMA
from .watch_look import Alarm, Look, MachineLook, TrainerLook, WorkerLook
from .watch_session import WatchSession, WatchSettings
from .watch_shares import Share
from .worker_reading import WorkerActivity, read_worker

__all__ = [
    "ACTIVITIES",
    "DOING",
    "WATCH_SCHEMA",
    "Activity",
    "Alarm",
    "AlarmSettings",
    "AlertCommand",
    "Detail",
    "End",
    "History",
    "Look",
    "MachineLook",
    "MemoryLine",
    "Reading",
    "Share",
    "TrainerLook",
    "WatchSession",
    "WatchSettings",
    "WorkerActivity",
    "WorkerLook",
    "dump_run",
    "judge",
    "read_trainer",
    "read_worker",
]
