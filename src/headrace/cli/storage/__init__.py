"""`headrace storage`.

- `command`: `headrace storage`: what is under a path, how fast it reads, and how many reads at a time it is worth.
- `report`: what `headrace storage` found, as text and as JSON from the same object.
"""

from .command import add_parser

__all__ = ["add_parser"]
