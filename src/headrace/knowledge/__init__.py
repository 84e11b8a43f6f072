"""The knowledge base of messages: what each one truly means, which check decides, what to do and what not.

- `anchors`: a fast look for the few lines of a log that may hold a message.
- `entries`: the entries and the advice, read from the files in `data/`.
- `lookup`: what a piece of text means: a pasted message, an error that is raised.
- `rendering`: what was found, as plain text, Markdown or a dictionary.
- `scanner`: a log in, the messages in it out, in bounded memory.
- `story`: which of several messages is the first cause, and what they decide about each other.
"""

from .entries import Advice, MessageEntry, TrueCause, advice, advice_for, entries, entry
from .lookup import Hint, add_hint, hint_for, look_up
from .rendering import message_as_dict, render_markdown, render_text
from .scanner import MessageScanner
from .story import MessageFound

__all__ = [
    "Advice",
    "Hint",
    "MessageEntry",
    "MessageFound",
    "MessageScanner",
    "TrueCause",
    "add_hint",
    "advice",
    "advice_for",
    "entries",
    "entry",
    "hint_for",
    "look_up",
    "message_as_dict",
    "render_markdown",
    "render_text",
]
