"""`headrace demo`.

- `command`: `headrace demo`: one training loop with torch's loader and with ours, side by side.
- `data`: the data set of the demo: small compressed volumes on a disk that is slow on purpose.
- `loop`: one measured run of the demo's training loop, in a process of its own.
- `memory`: the memory of a tree of processes, shared pages counted once.
- `report`: the figures of the demo, as text and as JSON from the same object.
- `runs`: all runs of the demo: torch's loader and ours in turn, each in a process of its own.
"""

from .command import add_parser

__all__ = ["add_parser"]
