"""Our own DataLoader: every `next` in the training process, and what the tasks of its workers use."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from .hooks_loader import timed_next
from .hooks_worker import TaskResources
from .replaying import with_replay
from .tape import now, tape
from .task_pace import SHORT_TASK_NS, TaskPace


def time_iterator(workers: ModuleType) -> None:
    """Time `next` on the iterator over a pool."""
    cls = workers.WorkersIterator
    cls.__next__ = with_replay(timed_next(cls.__next__))


def time_worker(module: ModuleType) -> None:
    """Look at what its tasks use. The tasks themselves, and that it has none, a worker of ours writes by itself."""
    cls = module.Worker
    serve, run = cls._serve, cls.run

    @functools.wraps(run)
    def timed_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape.say_role("worker")
        self.__dict__["_headrace_looks"] = _Looks()
        return run(self, *args, **kwargs)

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
            if looks.number >= looks.next:
                looks.resources.write(start, duration)
                looks.next = looks.pace.looked(looks.number, start, duration)
            elif duration >= SHORT_TASK_NS:
                looks.next = looks.pace.long_task(looks.number)

    cls.run, cls._serve = timed_run, timed_serve


class _Looks:
    """Which of a worker's tasks are looked at."""

    def __init__(self) -> None:
        self.number, self.next = -1, 0
        self.pace, self.resources = TaskPace(times_samples=False), TaskResources()
