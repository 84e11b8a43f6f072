"""`headrace run`.

- `command`: a training script as it is, timed, and why it waits.
- `display`: what is shown while the script runs: nothing, a line at the bottom, a line now and then, or a screen.
"""

from .command import add_parser

__all__ = ["add_parser"]
