"""Our own DataLoader: every `next` in the training process, tasks and idling in its workers."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from .hooks_loader import timed_next
from .hooks_worker import _Resources
from .replaying import with_replay
from .tape import now, tape

_FETCH, _IDLE = int(EventKind.FETCH), int(EventKind.IDLE)


def time_iterator(workers: ModuleType) -> None:
    """Time `next` on the iterator over a pool."""
    cls = workers.WorkersIterator
    cls.__next__ = with_replay(timed_next(cls.__next__))


def time_worker(module: ModuleType) -> None:
    """Time what a worker serves and how long it has nothing to serve."""
    cls = module.Worker
    serve, next_message, run = cls._serve, cls._next_message, cls.run

    @functools.wraps(run)
    def timed_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape.say_role("worker")
        self.__dict__["_headrace_resources"] = _Resources()
        return run(self, *args, **kwargs)

    @functools.wraps(serve)
    def timed_serve(self: Any, work: Any) -> Any:
        resources = self.__dict__.get("_headrace_resources")
        if resources is not None:
            resources.start()
        start = now()
        try:
            return serve(self, work)
        finally:
            duration = now() - start
            tape.write(_FETCH, start, duration, work.rows)
            if resources is not None:
                resources.write(start, duration)

    @functools.wraps(next_message)
    def timed_next_message(self: Any) -> Any:
        start = now()
        try:
            return next_message(self)
        finally:
            tape.write(_IDLE, start, now() - start)

    cls.run, cls._serve, cls._next_message = timed_run, timed_serve, timed_next_message
