"""`headrace run`.

- `command`: a training script as it is, timed, and why it waits.
- `display`: what `--live` shows while the script runs: a line at the bottom of a terminal, or a line now and then.
"""

from .command import add_parser

__all__ = ["add_parser"]
