"""A function timed from outside: same name, same result; as an event of its own, or as a part of the sample in hand.

What is an event is one for the outermost call of each thread. What is a part of a sample can still be pickled, bound,
scripted and compiled as before.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from headrace.signals import current_sample

from ..tape import now, tape

LIBRARIES = ("<frozen ", "/dist-packages/", "/lib/python3", "/site-packages/")  # in the paths of code that is no script

Inside = set[int]  # the threads that are inside of calls that count as one (a thread's variable costs 1 µs more, cold)
ValueOf = Callable[[tuple[Any, ...], dict[str, Any]], int]
_no_value: ValueOf = lambda _args, _kwargs: 0  # noqa: E731


def instead_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Put the function that follows in the place of `owner.name`, under that one's name."""
    return lambda ours: setattr(owner, name, functools.wraps(getattr(owner, name))(ours))


def outermost(function: Callable[..., Any], inside: Inside, tell: Callable[..., None]) -> Callable[..., Any]:
    """Return the function; of each thread's outermost call `tell` gets start, duration and arguments."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        thread = get_ident()
        if thread in inside:
            return function(*args, **kwargs)
        inside.add(thread)
        start = now()
        try:
            return function(*args, **kwargs)
        finally:
            inside.discard(thread)
            tell(start, now() - start, args, kwargs)

    return wrapper


def timed(
    function: Callable[..., Any], kind: int, what: str, inside: Inside, value_of: ValueOf = _no_value, least_ns: int = 0
) -> Callable[..., Any]:
    """Return the function with its calls recorded; nested ones that share `inside` are one event, short ones none.

    `what` names it, where a report is to. `value_of` makes the event's value of the call's arguments, once it is over.
    """

    def tell(start: int, duration: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        value = 0
        with contextlib.suppress(Exception):  # whatever a user's object is: what is not known is 0
            value = value_of(args, kwargs)
        if duration >= least_ns:
            tape.write(kind, start, duration, value, tape.name(what) if what else 0)

    return outermost(function, inside, tell)


def replace(owner: Any, name: str, kind: int, what: str, inside: Inside, value_of: ValueOf = _no_value) -> None:
    """Put the timed function in the place of `owner.name`, where there is one."""
    function = getattr(owner, name, None)
    if function is not None and not hasattr(function, "__wrapped_by_headrace__"):
        wrapper = timed(function, kind, what, inside, value_of)
        wrapper.__wrapped_by_headrace__ = True  # type: ignore[attr-defined]
        setattr(owner, name, wrapper)


NameOf = Callable[[Any], str]


def replace_part(owner: Any, path: str, name: str | NameOf, *, is_compiling: Callable[[], bool] | None = None) -> bool:
    """Put a timed function in the place of `owner.path`, where there is one; say whether there was.

    `name` is what the part is called, or makes that of the first argument. A function is replaced where it was defined
    and in the module by whose name it is pickled, too. `is_compiling` tells when a compiler is looking, which is to see
    the function itself.
    """
    *parents, last = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    function = getattr(owner, last, None)
    if function is None or hasattr(function, "__part_by_headrace__"):
        return False
    wrapper = timed_part(function, name, is_compiling=is_compiling)
    wrapper.__part_by_headrace__ = True
    setattr(owner, last, wrapper)
    if getattr(function, "__qualname__", "") == last:
        for names in (vars(sys.modules.get(function.__module__, owner)), getattr(function, "__globals__", {})):
            if names.get(last) is function:
                names[last] = wrapper
    return True


def timed_part(function: Any, name: str | NameOf, *, is_compiling: Callable[[], bool] | None = None) -> Any:
    """Return the function, its calls timed while a sample is under way in the calling thread."""
    fixed, name_of = (name, str) if isinstance(name, str) else ("", name)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if (is_compiling is not None and is_compiling()) or (sample := current_sample.sample) is None:
            return function(*args, **kwargs)
        frame, nbytes = sample.enter(), 0
        try:
            result = function(*args, **kwargs)
            nbytes = bytes_of(result) if fixed else 0
            return result
        finally:
            sample.leave(frame, fixed or name_of(args[0] if args else None), nbytes)

    if not hasattr(type(function), "__get__"):
        return _TimedBuiltin(function, wrapper)
    # By this mark TorchScript compiles the function itself, with the names that it sees.
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    wrapper.__original_fn = function  # type: ignore[attr-defined]
    return wrapper


class _TimedBuiltin:
    """A function written in C: as an attribute of a class it is not bound to the instance, and nor is this."""

    def __init__(self, function: Any, timed: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._timed = function, timed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])  # as functions are pickled


def bytes_of(result: Any) -> int:
    """Return the bytes that a part put out, where they can be told at once."""
    if type(result) is bytes:
        return len(result)
    nbytes = getattr(result, "nbytes", 0)
    return nbytes if type(nbytes) is int else 0
