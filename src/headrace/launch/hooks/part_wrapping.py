"""A function as a part of a sample: same name, same result, same way to be pickled, bound, scripted and compiled."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from headrace.signals.timing import current_sample

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
        homes = [vars(sys.modules.get(function.__module__, owner)), getattr(function, "__globals__", {})]
        for names in homes:
            if names.get(last) is function:
                names[last] = wrapper
    return True


def timed_part(function: Any, name: str | NameOf, *, is_compiling: Callable[[], bool] | None = None) -> Any:
    """Return the function, its calls timed while a sample is under way in the calling thread."""
    if not hasattr(type(function), "__get__"):
        return _TimedBuiltin(function, name if isinstance(name, str) else name(None))
    if isinstance(name, str):
        fixed = name

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            sample = current_sample.sample
            if sample is None:
                return function(*args, **kwargs)
            frame, nbytes = sample.enter(), 0
            try:
                result = function(*args, **kwargs)
                nbytes = bytes_of(result)
                return result
            finally:
                sample.leave(frame, fixed, nbytes)

    else:
        name_of = name

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if is_compiling is not None and is_compiling():
                return function(*args, **kwargs)
            sample = current_sample.sample
            if sample is None:
                return function(*args, **kwargs)
            frame = sample.enter()
            try:
                return function(*args, **kwargs)
            finally:
                sample.leave(frame, name_of(args[0]) if args else name_of(None), 0)

    # By this mark TorchScript compiles the function itself, with the names that it sees.
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    wrapper.__original_fn = function  # type: ignore[attr-defined]
    return wrapper


class _TimedBuiltin:
    """A function written in C: as an attribute of a class it is not bound to the instance, and nor is this."""

    def __init__(self, function: Any, name: str) -> None:
        functools.update_wrapper(self, function)
        self._function, self._name = function, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        sample = current_sample.sample
        if sample is None:
            return self._function(*args, **kwargs)
        frame, nbytes = sample.enter(), 0
        try:
            result = self._function(*args, **kwargs)
            nbytes = bytes_of(result)
            return result
        finally:
            sample.leave(frame, self._name, nbytes)

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


class ClassNames(dict[Any, str]):
    """Names of parts after the class of an object, each made once."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, cls: Any) -> str:
        name = self[cls] = f"{self._prefix}{cls.__name__}"
        return name

    def of(self, one: Any) -> str:
        """Return the name for an object."""
        return self[type(one)]
