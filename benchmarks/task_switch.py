"""Hooks switched from task to task, by the very process whose hooks they are: what they add to its CPU time.

Windows of the whole training (`switching.py`) hold what the scheduler does with three processes on two cores, and end
in the middle of tasks: one differs from the next by 10 %. A process that counts its own tasks and its own CPU time does
neither. It switches every few tasks, and whole tasks are compared with those just before and after. Each process
switches for itself; what they add together, over what they use together, is the cost. Where processors are what a
training lacks, that is time, too.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from hook_switch import (
    Place,
    hook_callbacks,
    original_of,
    put_callbacks,
    put_places,
    torch_worker_places,
    wrapped_places,
)
from tables import Result

_ROW = struct.Struct("<5q")
_MOST_ROWS = 1 << 16
_ROUNDS = 400  # of resampling


class Stretch(NamedTuple):
    """Some tasks of one process, one after another, with the hooks or without."""

    is_on: int
    start_ns: int
    end_ns: int
    tasks: int
    cpu_ns: int

    @property
    def task_ns(self) -> float:
        return self.cpu_ns / self.tasks


class TaskMeter:
    """Called at the end of every task: switches every `tasks` tasks, and writes down what those before took.

    The first task after a switch is not counted: a thread may still be sending what was made before it.
    """

    def __init__(self, path: Path, switch: Callable[[bool], None], tasks: int) -> None:
        self._switch, self._tasks = switch, tasks
        path.write_bytes(bytes(_MOST_ROWS * _ROW.size))
        with path.open("r+b") as file:
            self._rows = mmap.mmap(file.fileno(), 0)
        self._num_rows, self._done = 0, 0
        self._start_ns = self._cpu_ns = 0
        self.is_on = True

    def turn(self) -> None:
        """End a task."""
        self._done += 1
        if self._done == 1:
            self._start_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        elif self._done > self._tasks:
            cpu_ns = time.process_time_ns() - self._cpu_ns
            row = (int(self.is_on), self._start_ns, time.monotonic_ns(), self._tasks, cpu_ns)
            if self._num_rows < _MOST_ROWS:
                _ROW.pack_into(self._rows, self._num_rows * _ROW.size, *row)
                self._num_rows += 1
            self.is_on, self._done = not self.is_on, 0
            self._switch(self.is_on)


class SwitchInWorker:
    """A `worker_init_fn` that has a worker switch its own hooks; for torch's workers and for ours."""

    def __init__(self, folder: str, tasks: int, *, is_switched: bool = True) -> None:
        self._folder, self._tasks, self._is_switched = folder, tasks, is_switched

    def __call__(self, _worker: int) -> None:
        places: list[Place] = []
        callbacks = hook_callbacks()

        def switch(is_on: bool) -> None:
            if self._is_switched:
                put_places(places, is_on=is_on)
                put_callbacks(callbacks, is_on=is_on)

        meter = TaskMeter(Path(self._folder, f"tasks-{os.getpid()}"), switch, self._tasks)
        frame = _loop_of(sys._getframe())
        if frame is not None:
            _meter_queue(frame, meter, places, is_switched=self._is_switched)
        else:
            _meter_messages(meter, places)
        Path(self._folder, str(os.getpid())).touch()


def _loop_of(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code.co_name != "_worker_loop":
        frame = frame.f_back
    return None if frame is None or "index_queue" not in frame.f_locals else frame


def _meter_queue(loop: FrameType, meter: TaskMeter, places: list[Place], *, is_switched: bool) -> None:
    """Torch's worker: a task ends when the next one is asked for. Its fetcher is made after this."""
    queue = loop.f_locals["index_queue"]
    hooked, plain = queue.get, original_of(queue.get)

    def get(*args: Any, **kwargs: Any) -> Any:
        if not places:
            places.extend(torch_worker_places(loop))
        meter.turn()
        return (hooked if meter.is_on or not is_switched else plain)(*args, **kwargs)

    queue.get = get


def _meter_messages(meter: TaskMeter, places: list[Place]) -> None:
    """Our worker: a task ends when the next message is asked for."""
    from headrace.engine.worker.worker import Worker

    original = Worker._next_message
    places.extend(wrapped_places())

    def _next_message(self: Worker) -> bytes:
        meter.turn()
        return original(self)

    Worker._next_message = _next_message  # type: ignore[method-assign]


def read_stretches(path: Path, since_ns: int = 0) -> list[Stretch]:
    """What a meter wrote, from a moment on; begins and ends with the hooks off, so that each on has two beside it."""
    rows = [Stretch(*row) for row in _ROW.iter_unpack(path.read_bytes())]
    found = [row for row in rows if row.tasks and row.start_ns >= since_ns]
    while found and found[0].is_on:
        del found[0]
    while found and found[-1].is_on:
        del found[-1]
    return found


def combine(trainer: Sequence[Stretch], workers: Sequence[Sequence[Stretch]]) -> Result:
    """What hooks add to the CPU time of a batch, in percent of it, in all processes together.

    Of each process the trimmed mean of what a stretch takes more than those beside it: a tenth is left out at either
    end, for a stretch in which the machine did something else says nothing; what a hook does now and then stays in.
    The 95 % interval comes from drawing stretches again.
    """
    differences, base_ns = [], 0.0
    for stretches in (trainer, *workers):
        weight = _rate(stretches) / _rate(trainer)  # tasks a batch
        values = [weight * one.task_ns for one in stretches]
        differences.append([values[i] - (values[i - 1] + values[i + 1]) / 2 for i in range(1, len(values) - 1, 2)])
        base_ns += statistics.median(values[::2])
    choices = random.Random(0).choices
    drawn = sorted(sum(_trimmed(choices(one, k=len(one))) for one in differences) for _ in range(_ROUNDS))
    added_ns = sum(map(_trimmed, differences))
    return {
        "task_cost_percent": 100 * added_ns / base_ns,
        "task_cost_low_percent": 100 * drawn[int(0.025 * _ROUNDS)] / base_ns,
        "task_cost_high_percent": 100 * drawn[int(0.975 * _ROUNDS)] / base_ns,
        "batch_cpu_us": base_ns / 1e3,
        "batch_added_us": added_ns / 1e3,
        "trainer_added_us": _trimmed(differences[0]) / 1e3,
        "num_stretches": sum(map(len, differences)),
    }


def _rate(stretches: Sequence[Stretch]) -> float:
    """Tasks a nanosecond."""
    return sum(one.tasks for one in stretches) / sum(one.end_ns - one.start_ns for one in stretches)


def _trimmed(values: Sequence[float]) -> float:
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])
