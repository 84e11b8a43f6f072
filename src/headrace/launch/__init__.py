"""How a training is started: `headrace run`, and a line of code for those who prefer one.

- `command`: what the user named, as a command line, and how its Python processes are reached.
- `child`: the command as a child process: its signals, its exit code, and somebody who records it.
- `hooks`: what is timed inside an unchanged script.
- `live`: what a training is doing now.
- `monitoring`: waits, slow batches, a bar's postfix; the user's own marks; a recording of this very process.
- `tape`: where the hooks of a process write, and what could not be timed.
- `site/sitecustomize.py`: what every Python process under `headrace run` finds first.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .child import Ended, run_recorded
    from .command import command_of, new_run_directory
    from .live import LiveStatus, LiveTally
    from .monitoring import monitor, phase
    from .tape import read_notes

__all__ = [
    "Ended",
    "LiveStatus",
    "LiveTally",
    "command_of",
    "monitor",
    "new_run_directory",
    "phase",
    "read_notes",
    "run_recorded",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    child="Ended run_recorded",
    command="command_of new_run_directory",
    live="LiveStatus LiveTally",
    monitoring="monitor phase",
    tape="read_notes",
)
