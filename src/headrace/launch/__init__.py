"""How a training is started or reached.

A script that runs unchanged and is timed all the same (`headrace run`):

- `command`: what the user named, as a command line.
- `child`: the command as a child process: its signals, its exit code, and somebody who records it.
- `copy_clock`: how long the device took for each copy to it.
- `hooks`: which modules are timed once they are imported; `hooks_*`: one subject each.
- `live`: what a training is doing now.
- `monitoring`: a line of code for those who prefer one: waits, slow batches, a bar's postfix.
- `notes`: what could not be timed.
- `batch_copies`: batches that are given more than once.
- `part_wrapping`: a function as a part of a sample.
- `phases`: the user's own marks.
- `reaching`: how Python processes that are started later are reached.
- `replay_plan`, `replaying`: `--replay`: when batches are kept and given again, and doing so.
- `saved_bytes`: how many bytes a save has written.
- `self_recording`: a recording of this very process.
- `slow_batches`: which batches were slow, as far as the loop alone can know.
- `tape`: where the hooks of a process write.
- `wrapping`: a function timed from outside.
- `site/sitecustomize.py`: what every Python process under `headrace run` finds first.

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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .child import Ended, RunOptions, run_recorded
    from .command import Command, command_of, new_run_directory
    from .live import LiveStatus, LiveTally
    from .monitoring import Monitor, monitor
    from .notes import read_notes
    from .phases import phase
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
    "Command",
    "Detail",
    "End",
    "Ended",
    "History",
    "LiveStatus",
    "LiveTally",
    "Look",
    "MachineLook",
    "MemoryLine",
    "Monitor",
    "Reading",
    "RunOptions",
    "Share",
    "TrainerLook",
    "WatchSession",
    "WatchSettings",
    "WorkerActivity",
    "WorkerLook",
    "command_of",
    "dump_run",
    "judge",
    "monitor",
    "new_run_directory",
    "phase",
    "read_notes",
    "read_trainer",
    "read_worker",
    "run_recorded",
]

_HOME_OF = {
    "ACTIVITIES": ".watch_advice",
    "Activity": ".stack_reading",
    "Alarm": ".watch_look",
    "AlarmSettings": ".watch_alarms",
    "AlertCommand": ".watch_alerts",
    "Command": ".command",
    "DOING": ".watch_advice",
    "Detail": ".stack_reading",
    "End": ".watch_end",
    "Ended": ".child",
    "History": ".watch_findings",
    "LiveStatus": ".live",
    "LiveTally": ".live",
    "Look": ".watch_look",
    "MachineLook": ".watch_look",
    "MemoryLine": ".watch_alarms",
    "Monitor": ".monitoring",
    "Reading": ".stack_reading",
    "RunOptions": ".child",
    "Share": ".watch_shares",
    "TrainerLook": ".watch_look",
    "WATCH_SCHEMA": ".watch_look",
    "WatchSession": ".watch_session",
    "WatchSettings": ".watch_session",
    "WorkerActivity": ".worker_reading",
    "WorkerLook": ".watch_look",
    "command_of": ".command",
    "dump_run": ".watch_dump",
    "judge": ".watch_findings",
    "monitor": ".monitoring",
    "new_run_directory": ".command",
    "phase": ".phases",
    "read_notes": ".notes",
    "read_trainer": ".stack_reading",
    "read_worker": ".worker_reading",
    "run_recorded": ".child",
}
_OTHERWISE_CALLED = {"WATCH_SCHEMA": "SCHEMA"}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), _OTHERWISE_CALLED.get(name, name))
    globals()[name] = value
    return value
