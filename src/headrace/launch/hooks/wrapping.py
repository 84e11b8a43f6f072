"""A function timed from outside: same name, same result, one event for the outermost call of each thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..tape import now, tape


class Depth(threading.local):
    """How deep a thread is in calls that count as one."""

    calls = 0


class ThreadsInside:
    """The same for calls of every step: with cold caches a set costs 1 us less than a variable of a thread."""

    def __init__(self) -> None:
        self.idents: set[int] = set()

    def __repr__(self) -> str:
        return f"ThreadsInside({len(self.idents)})"

    @property
    def calls(self) -> int:
        return int(get_ident() in self.idents)

    @calls.setter
    def calls(self, number: int) -> None:
        (self.idents.add if number else self.idents.discard)(get_ident())


ValueOf = Callable[[tuple[Any, ...], dict[str, Any]], int]


def timed(
    function: Callable[..., Any],
    kind: int,
    what: str,
    depth: Depth | ThreadsInside,
    value_of: ValueOf | None = None,
) -> Callable[..., Any]:
    """Return the function with its calls recorded; nested ones that share `depth` are one event.

    `value_of` makes the event's value of the call's arguments, once it is over.
    """

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
            duration = now() - start
            tape.write(kind, start, duration, _value(value_of, args, kwargs), tape.name(what))

    return wrapper


def _value(value_of: ValueOf | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    if value_of is None:
        return 0
    try:
        return value_of(args, kwargs)
    except Exception:  # whatever a user's object is: what is not known is 0
        return 0


def replace(
    owner: Any, name: str, kind: int, what: str, depth: Depth | ThreadsInside, value_of: ValueOf | None = None
) -> None:
    """Put the timed function in the place of `owner.name`, where there is one."""
    function = getattr(owner, name, None)
    if function is not None and not hasattr(function, "__wrapped_by_headrace__"):
        wrapper = timed(function, kind, what, depth, value_of)
        wrapper.__wrapped_by_headrace__ = True  # type: ignore[attr-defined]
        setattr(owner, name, wrapper)
