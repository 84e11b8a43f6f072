"""The knowledge base of messages: what each one truly means, which check decides, what to do and what not.

- `entry`: what an entry and a piece of wrong advice hold.
- `store`: the entries and the advice, read from the files in `data/`.
- `anchors`: a fast look for the few lines of a log that may hold a message.
- `scanner`: a log in, the messages in it out, in bounded memory.
- `story`: which of several messages is the first cause, and what they decide about each other.
- `lookup`: one message, as a person pastes it.
- `hints`: what an error means, in one line, for whoever raises or logs it.
- `wrong_advice`: well-known wrong advice, recognised in text.
- `rendering`: what was found, as plain text, Markdown or a dictionary.
"""

from .entry import Advice, Entry, TrueCause
from .hints import Hint, add_hint, hint_for
from .lookup import look_up
from .rendering import message_as_dict, render_markdown, render_text
from .scanner import MessageScanner
from .store import advice, advice_for, entries, entry, find_entry
from .story import MessageFound
from .wrong_advice import AdviceFound, find_advice

__all__ = [
    "Advice",
    "AdviceFound",
    "Entry",
    "Hint",
    "MessageFound",
    "MessageScanner",
    "TrueCause",
    "add_hint",
    "advice",
    "advice_for",
    "entries",
    "entry",
    "find_advice",
    "find_entry",
    "hint_for",
    "look_up",
    "message_as_dict",
    "render_markdown",
    "render_text",
]
