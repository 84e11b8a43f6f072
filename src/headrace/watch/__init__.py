"""How a training that runs is reached from outside, and what it waits for.

- `access`: why another process may not be looked into, and what would allow it.
- `advice`: the sentences of what was watched: evidence and what helps, in English and in Chinese.
- `alarms`: when to raise an alarm: a state machine, looks in, alarms out; no process and no clock inside.
- `alerts`: runs the user's command for each alarm, without ever waiting for it.
- `dump`: everything that can be seen of a run that hangs: stacks, wait channels, open files, locks, of every process.
- `end`: how a process that is not our child ended: its exit code or signal, where the kernel still tells.
- `findings`: from all that was watched to a verdict and findings. Pure: looks in, findings out.
- `judging`: from what was sampled in a stretch to what each process did, with its shares since the watch began.
- `kernel`: many cheap looks at the threads of a training while stacks are sampled; without stacks they have to do.
- `look`: what `headrace watch` saw in one stretch of time: plain values, and the line of JSON that they make.
- `machine`: the machine around a training, from two samples of the system. Pure.
- `pace`: when the stacks of a training are sampled: at first always, then as often as their price allows. Pure.
- `roles`: which process trains, which load for it, which only started them. Pure: from facts and stacks.
- `session`: watching a training: stretch by stretch, what its processes did, until it ends or nobody asks any more.
- `shares`: shares of time from samples that follow each other, with an interval that allows for their likeness. Pure.
- `source`: the source line of a frame of another process, also where that process lives in a container.
- `stack_reading`: from a Python stack to what a training process is doing. Pure: recorded stacks are read as livin…
- `stack_rules`: which frames of a Python stack mean what: loaders, checkpoints, log writers, copies, evaluation.
- `stacks`: stacks of a process tree many times a second: one py-spy that samples for a while, and what it saw in o…
- `still`: how long each process has stood at the same place without getting on. Pure.
- `tree`: the processes at and below one: who started whom, with which command, with torch in it or not.
- `usage`: what a process used between two looks at the system, and the file that it is at. Pure.
- `worker_reading`: from a worker's stack and its thread's state to what the worker is doing. Pure.
"""

from .advice import ACTIVITIES, DOING
from .alarms import AlarmSettings, MemoryLine
from .alerts import AlertCommand
from .dump import dump_run
from .end import End
from .findings import History, judge
from .look import SCHEMA, Alarm, Look, MachineLook, TrainerLook, WorkerLook
from .session import WatchSession, WatchSettings
from .shares import Share
from .stack_reading import Activity, Detail, Reading, read_trainer
from .worker_reading import WorkerActivity, read_worker

__all__ = [
    "ACTIVITIES",
    "DOING",
    "SCHEMA",
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
