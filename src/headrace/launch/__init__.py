"""How a training is started: `headrace run`, and a line of code for those who prefer one.

- `child`: what the user named as a command line, that as a child process, which is recorded, and what it does now.
- `hooks`: what is timed inside an unchanged script.
- `monitoring`: waits, slow batches, a bar's postfix; the user's own marks; a recording of this very process.
- `tape`: where the hooks of a process write, and what could not be timed.
- `site/sitecustomize.py`: what every Python process under `headrace run` finds first.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .child import Ended, LiveTally, command_of, new_run_directory, run_recorded
    from .monitoring import monitor, phase
    from .tape import read_notes

__all__ = [
    "Ended",
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
    child="Ended LiveTally command_of new_run_directory run_recorded",
    monitoring="monitor phase",
    tape="read_notes",
)
