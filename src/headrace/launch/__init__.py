"""How a training is started: `headrace run`, and a line of code for those who prefer one.

- `command`: what the user named, as a command line.
- `child`: the command as a child process: its signals, its exit code, and somebody who records it.
- `hooks`: what is timed inside an unchanged script.
- `live`: what a training is doing now.
- `monitoring`: waits, slow batches, a bar's postfix.
- `notes`: what could not be timed.
- `phases`: the user's own marks.
- `reaching`: how Python processes that are started later are reached.
- `self_recording`: a recording of this very process.
- `slow_batches`: which batches were slow, as far as the loop alone can know.
- `tape`: where the hooks of a process write.
- `site/sitecustomize.py`: what every Python process under `headrace run` finds first.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .child import Ended, RunOptions, run_recorded
    from .command import Command, command_of, new_run_directory
    from .live import LiveStatus, LiveTally
    from .monitoring import Monitor, monitor
    from .notes import read_notes
    from .phases import phase

__all__ = [
    "Command",
    "Ended",
    "LiveStatus",
    "LiveTally",
    "Monitor",
    "RunOptions",
    "command_of",
    "monitor",
    "new_run_directory",
    "phase",
    "read_notes",
    "run_recorded",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "child": "Ended RunOptions run_recorded",
        "command": "Command command_of new_run_directory",
        "live": "LiveStatus LiveTally",
        "monitoring": "Monitor monitor",
        "notes": "read_notes",
        "phases": "phase",
    },
)
