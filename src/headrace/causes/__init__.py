"""Why training waits or stops: what can be said from signals, logs and messages.

- `knowledge`: what the messages of torch, its libraries, the kernel and Slurm truly mean; how to find them in a log.
"""

from .knowledge import (
    Advice,
    AdviceFound,
    Entry,
    MessageFound,
    MessageScanner,
    Text,
    TrueCause,
    advice,
    advice_for,
    entries,
    entry,
    find_advice,
    look_up,
    message_as_dict,
    render_markdown,
    render_text,
)

__all__ = [
    "Advice",
    "AdviceFound",
    "Entry",
    "MessageFound",
    "MessageScanner",
    "Text",
    "TrueCause",
    "advice",
    "advice_for",
    "entries",
    "entry",
    "find_advice",
    "look_up",
    "message_as_dict",
    "render_markdown",
    "render_text",
]
