"""Log writers: handlers of `logging`, TensorBoard, wandb, tqdm's display."""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from .tape import now, tape
from .wrapping import Depth, replace

_KIND = int(EventKind.LOGGING)
_WORTH_NS = 20_000  # a short line: many of them become one event
_TOGETHER_NS = 1_000_000
_depth = Depth()


class _Small:
    """Many short writes, told of as one event when they have become worth it."""

    total_ns = 0


def _timed_often(function: Any, what: str) -> Any:
    """Time a function that is called for every line; what takes microseconds is summed up first."""
    small = _Small()

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _depth.calls:
            return function(*args, **kwargs)
        _depth.calls = 1
        start = now()
        try:
            return function(*args, **kwargs)
        finally:
            _depth.calls = 0
            duration = now() - start
            if duration >= _WORTH_NS:
                tape.write(_KIND, start, duration, 1, tape.name(what))
            else:
                small.total_ns += duration
                if small.total_ns >= _TOGETHER_NS:
                    tape.write(_KIND, start + duration - small.total_ns, small.total_ns, 0, tape.name(what))
                    small.total_ns = 0

    return wrapper


def time_logging(_torch: ModuleType) -> None:
    """Time what handlers of the standard library's `logging` take."""
    logging.Handler.handle = _timed_often(logging.Handler.handle, "logging")  # type: ignore[method-assign]


def time_tqdm(std: ModuleType) -> None:
    """Time what it takes tqdm to draw its bar."""
    std.tqdm.display = _timed_often(std.tqdm.display, "tqdm")


def time_summary_writer(writer: ModuleType) -> None:
    """Time everything that a SummaryWriter adds or flushes."""
    cls = writer.SummaryWriter
    for name in dir(cls):
        if name.startswith("add_") or name in {"flush", "close"}:
            replace(cls, name, _KIND, "tensorboard", _depth)


def time_wandb(run: ModuleType) -> None:
    """Time `wandb.log`, which is a method of the run."""
    for name in ("log", "save", "log_artifact"):
        replace(run.Run, name, _KIND, "wandb", _depth)
