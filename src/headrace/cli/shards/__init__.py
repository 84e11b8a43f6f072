"""`headrace shards`.

- `command`: `headrace shards`: index tar shards, list them, and say what is wrong with them.
- `messages`: the sentences of `headrace shards`, in English and in Chinese.
- `text`: what a survey of shards found, as text and as JSON.
"""

from .command import add_parser

__all__ = ["add_parser"]
