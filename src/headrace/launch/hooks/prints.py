"""`print` to a stdout that is slow to take it counts as logging: a pipe nobody reads, a network disk, a terminal.

The stream stays the script's own. Its `write` and `flush` are timed where they lie on the instance, which both `print`
and Python's own code look at first; a call that takes less than some microseconds is not told of.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import now, tape
from .log_writers import logging_depth

_LOGGING = int(EventKind.LOGGING)
_WORTH_NS = 100_000  # a line into a buffer takes one, into a pipe with room ten microseconds


def time_stdout(_dataloader: ModuleType) -> None:
    """Time what stdout takes, until the script's end."""
    stream = sys.stdout
    if not hasattr(stream, "__dict__") or {"write", "flush"} & vars(stream).keys():
        return  # somebody else's object: it is not ours to change
    for name in ("write", "flush"):
        original: Any = getattr(stream, name)
        try:
            setattr(stream, name, _timed(original))
        except (AttributeError, TypeError):
            return
    atexit.register(_leave, stream)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        if logging_depth.calls:  # a log writer that ends here is told of as such
            return original(*args, **kwargs)
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            duration = now() - start
            if duration >= _WORTH_NS:
                tape.write(_LOGGING, start, duration, 1, tape.name("print"))

    method.__name__ = method.__qualname__ = getattr(original, "__name__", "method")
    method.__doc__ = original.__doc__
    return method


def _leave(stream: Any) -> None:
    """Python flushes once more when our modules are gone."""
    for name in ("write", "flush"):
        with contextlib.suppress(AttributeError):
            delattr(stream, name)
