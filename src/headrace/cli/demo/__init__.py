"""`headrace demo`.

- `command`: torch's loader and ours in turn, each in a process of its own, then the table.
- `loop`: one measured run of the training loop, over small volumes on a disk that is slow on purpose.
"""

from .command import add_parser

__all__ = ["add_parser"]
