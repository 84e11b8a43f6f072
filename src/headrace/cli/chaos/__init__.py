"""`headrace chaos`.

- `command`: `headrace chaos`: let faults strike a loader over the user's own data set, and check every sample it d…
- `messages`: the sentences of `headrace chaos`, in English and in Chinese.
- `text`: what `headrace chaos` found, as text and as JSON from the same object.
"""

from .command import add_parser

__all__ = ["add_parser"]
