"""`headrace run`.

- `command`: `headrace run`: a training script as it is, timed, and why it waits.
- `live`: what `headrace run` shows while the script runs: nothing, a line at the bottom, a line now and then, or a…
- `messages`: the sentences of `headrace run`, in English and in Chinese.
- `replay`: what `headrace run --replay` says before, during and after: it changes the training, so also with `-q`.
- `report`: what a run directory tells: its findings, and `headrace run --report DIR` for one that is there already.
- `screen`: the live screen of `headrace run --tui`: the last seconds, where their time went, and what the script w…
- `status_line`: a line at the bottom of a terminal whose other rows stay with whoever writes there.
"""

from .command import add_parser

__all__ = ["add_parser"]
