"""`headrace quarantine`.

- `choice`: which failures of a quarantine are asked for.
- `command`: `headrace quarantine`: the samples that runs have condemned, shown, filtered and counted.
- `messages`: the sentences of `headrace quarantine`, in English and in Chinese.
- `report`: the condemned samples as text and as JSON, from the same object.
"""

from .command import add_parser

__all__ = ["add_parser"]
