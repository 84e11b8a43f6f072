"""What writing logs takes: handlers of `logging` by their class, loguru, TensorBoard, wandb, tqdm, and slow prints."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import now, tape
from .wrapping import Depth, replace

_KIND = int(EventKind.LOGGING)
_WORTH_NS = 20_000  # a short line: many of them become one event
_TOGETHER_NS = 1_000_000
_WORTH_PRINT_NS = 100_000  # a line into a buffer takes one, into a pipe with room ten microseconds
logging_depth = Depth()


def _timed_often(function: Any, what: str) -> Any:
    """Time a method that is called for every line; what takes microseconds is summed up first.

    An empty `what` stands for the class of the object.
    """
    small: dict[str, int] = {}  # many short writes, told of as one event when they have become worth it

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if logging_depth.calls:
            return function(*args, **kwargs)
        logging_depth.calls = 1
        start = now()
        try:
            return function(*args, **kwargs)
        finally:
            logging_depth.calls = 0
            duration = now() - start
            name = what or _class_of(args[0])
            if duration >= _WORTH_NS:
                tape.write(_KIND, start, duration, 1, tape.name(name))
            else:
                total_ns = small.get(name, 0) + duration
                if total_ns >= _TOGETHER_NS:
                    tape.write(_KIND, start + duration - total_ns, total_ns, 0, tape.name(name))
                    total_ns = 0
                small[name] = total_ns

    return wrapper


def _class_of(handler: object) -> str:
    return f"{type(handler).__module__}.{type(handler).__qualname__}"


def time_logging(_torch: ModuleType) -> None:
    """Time what handlers of the standard library's `logging` take."""
    logging.Handler.handle = _timed_often(logging.Handler.handle, "")  # type: ignore[method-assign]


def time_loguru(handler: ModuleType) -> None:
    """Time what loguru's sinks take."""
    handler.Handler.emit = _timed_often(handler.Handler.emit, "loguru")


def time_tqdm(std: ModuleType) -> None:
    """Time what it takes tqdm to draw its bar."""
    std.tqdm.display = _timed_often(std.tqdm.display, "tqdm")


def time_summary_writer(writer: ModuleType) -> None:
    """Time everything that a SummaryWriter adds or flushes."""
    cls = writer.SummaryWriter
    for name in dir(cls):
        if name.startswith("add_") or name in {"flush", "close"}:
            replace(cls, name, _KIND, "tensorboard", logging_depth)


def time_wandb(run: ModuleType) -> None:
    """Time `wandb.log`, which is a method of the run."""
    for name in ("log", "save", "log_artifact"):
        replace(run.Run, name, _KIND, "wandb", logging_depth)


def time_stdout(_dataloader: ModuleType) -> None:
    """Time what a stdout that is slow to take it costs: a pipe nobody reads, a network disk, a terminal.

    The stream stays the script's own. Its `write` and `flush` are timed where they lie on the instance, which both
    `print` and Python's own code look at first; a call that takes less than some microseconds is not told of.
    """
    stream = sys.stdout
    if not hasattr(stream, "__dict__") or {"write", "flush"} & vars(stream).keys():
        return  # somebody else's object: it is not ours to change
    for name in ("write", "flush"):
        original: Any = getattr(stream, name)
        try:
            setattr(stream, name, _timed_print(original))
        except (AttributeError, TypeError):
            return
    atexit.register(_leave_stdout, stream)


def _timed_print(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        if logging_depth.calls:  # a log writer that ends here is told of as such
            return original(*args, **kwargs)
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            duration = now() - start
            if duration >= _WORTH_PRINT_NS:
                tape.write(_KIND, start, duration, 1, tape.name("print"))

    method.__name__ = method.__qualname__ = getattr(original, "__name__", "method")
    method.__doc__ = original.__doc__
    return method


def _leave_stdout(stream: Any) -> None:
    """Python flushes once more when our modules are gone."""
    for name in ("write", "flush"):
        with contextlib.suppress(AttributeError):
            delattr(stream, name)
