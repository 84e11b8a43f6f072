"""Our own DataLoader: every `next` in the training process, tasks and idling in its workers."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from .hooks_loader import timed_next
from .hooks_worker import TaskResources
from .replaying import with_replay
from .tape import now, tape
from .task_pace import SHORT_TASK_NS, TaskPace

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
        self.__dict__["_headrace_looks"] = _Looks()
        try:
            return run(self, *args, **kwargs)
        finally:
            tape.mark_task(0)
            tape.write_kept()

    @functools.wraps(serve)
    def timed_serve(self: Any, work: Any) -> Any:
        looks = self.__dict__.get("_headrace_looks")
        if looks is None:
            return serve(self, work)
        looks.number += 1
        if looks.number >= looks.next:
            looks.resources.start()
        start = now()
        try:
            return serve(self, work)
        finally:
            duration = now() - start
            tape.keep(_FETCH, start, duration, work.rows)
            if looks.number >= looks.next:
                looks.resources.write(start, duration)
                looks.next = looks.pace.looked(looks.number, start, duration)
            elif duration >= SHORT_TASK_NS:
                looks.next = looks.pace.long_task(looks.number)

    @functools.wraps(next_message)
    def timed_next_message(self: Any) -> Any:
        tape.mark_task(0)
        start = now()
        try:
            return next_message(self)
        finally:
            end = now()
            tape.mark_task(end)
            tape.keep(_IDLE, start, end - start)

    cls.run, cls._serve, cls._next_message = timed_run, timed_serve, timed_next_message


class _Looks:
    """Which of a worker's tasks are looked at."""

    def __init__(self) -> None:
        self.number, self.next = -1, 0
        self.pace, self.resources = TaskPace(times_samples=False), TaskResources()
