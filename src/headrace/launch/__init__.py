"""How a training is started or reached: a script that runs unchanged and is timed all the same.

- `command`: what the user named, as a command line.
- `child`: the command as a child process: its signals, its exit code, and somebody who records it.
- `hooks`: which modules are timed once they are imported; `hooks_*`: one subject each.
- `live`: what a training is doing now.
- `monitoring`: a line of code for those who prefer one: waits, slow batches, a bar's postfix.
- `notes`: what could not be timed.
- `phases`: the user's own marks.
- `slow_batches`: which batches were slow, as far as the loop alone can know.
- `tape`: where the hooks of a process write.
- `wrapping`: a function timed from outside.
- `site/sitecustomize.py`: what every Python process under `headrace run` finds first.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .child import Ended, RunOptions, run_recorded
    from .command import Command, command_of
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
    "phase",
    "read_notes",
    "run_recorded",
]

_HOME_OF = {
    "Command": ".command",
    "Ended": ".child",
    "LiveStatus": ".live",
    "LiveTally": ".live",
    "Monitor": ".monitoring",
    "RunOptions": ".child",
    "command_of": ".command",
    "monitor": ".monitoring",
    "phase": ".phases",
    "read_notes": ".notes",
    "run_recorded": ".child",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value
