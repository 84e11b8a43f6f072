"""`headrace watch`.

- `command`: `headrace watch`: attach to a training that runs already, and say what it waits for.
- `messages`: the sentences of `headrace watch`, in English and in Chinese.
- `text`: a look of `headrace watch` as a screen: the same parts for `--once`, for a live screen and for a line in …
"""

from .command import add_parser

__all__ = ["add_parser"]
