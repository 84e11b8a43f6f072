"""The seam through which somebody from outside is there when a loop asks our loader for a batch.

Whoever records a program (`headrace run`) wants to time each `next` and may give a batch of its own; torch's iterators
are wrapped for that, ours ask here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Take = Callable[[Any], Any]  # takes the iterator, returns the next batch

_wrap: Callable[[Take], Take] | None = None
_wrapped: dict[Take, Take] = {}


def watch_next(wrap: Callable[[Take], Take] | None) -> None:
    """Have every `next` of our loader in this process go through what `wrap` makes of it from here on; None: nobody."""
    global _wrap
    _wrap = wrap
    _wrapped.clear()


def watched_next(take: Take) -> Take:
    """Return how an iterator is to take its next batch: as it would, or as whoever watches has it."""
    if _wrap is None:
        return take
    if take not in _wrapped:
        _wrapped[take] = _wrap(take)
    return _wrapped[take]
