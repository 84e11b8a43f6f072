"""A function timed from outside: same name, same result, one event for the outermost call of each thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from .tape import now, tape


class Depth(threading.local):
    """How deep a thread is in calls that count as one."""

    calls = 0


def timed(function: Callable[..., Any], kind: int, what: str, depth: Depth) -> Callable[..., Any]:
    """Return the function with its calls recorded; nested ones that share `depth` are one event."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if depth.calls:
            return function(*args, **kwargs)
        depth.calls = 1
        start = now()
        try:
            return function(*args, **kwargs)
        finally:
            depth.calls = 0
            tape.write(kind, start, now() - start, 0, tape.name(what))

    return wrapper


def replace(owner: Any, name: str, kind: int, what: str, depth: Depth) -> None:
    """Put the timed function in the place of `owner.name`, where there is one."""
    function = getattr(owner, name, None)
    if function is not None and not hasattr(function, "__wrapped_by_headrace__"):
        wrapper = timed(function, kind, what, depth)
        wrapper.__wrapped_by_headrace__ = True  # type: ignore[attr-defined]
        setattr(owner, name, wrapper)
