"""Times a training without Headrace: `PYTHONPATH=benchmarks/world/timers WORLD_TIMES=FILE python train.py`.

Only what a person would time by hand: each `next()` of a DataLoader, each optimizer step, `torch.save`, and how busy
the cores are meanwhile. A loader is for training if an optimizer steps between its batches; the
time from the `iter()` of any other until a loader is asked again is evaluation. `WORLD_CHANGE` makes a change that is
advised in a script that has no option for it.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_CLOCK = time.perf_counter


class _Times:
    def __init__(self) -> None:
        self.pid, self.begin, self.end = os.getpid(), 0.0, 0.0
        self.steps = 0
        self.save_s = 0.0
        self.loaders: list[dict[str, Any]] = []
        self.latest: dict[str, Any] | None = None  # the loader that was asked last: a step is its batch's
        self.started, self.busy, self.looked = _CLOCK(), [0.0, 0.0], 0.0

    def turn_to(self, record: dict[str, Any]) -> float:
        """Note which loader is asked now; the one before is left, be it at its end or not."""
        now = _CLOCK()
        if self.latest is not None and self.latest is not record:
            self.latest["left"] = now
        self.latest = record
        return now

    def touch(self) -> None:
        self.end = _CLOCK()
        if not self.begin:
            self.begin, self.busy[0] = self.end, _busy_s()
        if self.end - self.looked > 0.2:
            self.looked, self.busy[1] = self.end, _busy_s()

    def report(self) -> dict[str, Any]:
        training = [one for one in self.loaders if one["steps"] > 0]
        other = [one for one in self.loaders if one["steps"] == 0]
        wall = (self.end - self.begin) or _CLOCK() - self.started  # neither loader nor optimizer
        return {
            "wall_s": wall,
            "steps": self.steps,
            "batches": sum(one["batches"] for one in training),
            "wait_share": sum(one["wait_s"] for one in training) / wall,
            "first_waits_share": sum(one["first_s"] for one in training) / wall,
            "evaluation_share": sum((one["left"] or self.end) - one["begin"] for one in other) / wall,
            "save_share": self.save_s / wall,
            "passes": len(training),
            "evaluations": len(other),
            "workers": sorted({one["workers"] for one in training}),
            "cores_busy": (self.busy[1] - self.busy[0]) / max(self.looked - self.begin, 1e-9) / (os.cpu_count() or 1),
        }


def _busy_s() -> float:
    with open("/proc/stat") as file:
        user, nice, system, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _change(change: dict[str, Any]) -> None:
    """Do what is advised: other arguments of a DataLoader, or something at half of its cost."""
    from torch.utils.data import DataLoader
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    make = DataLoader.__init__

    @functools.wraps(make)  # Lightning reads its signature
    def other(self: Any, *args: Any, **settings: Any) -> None:
        frames = [sys._getframe(depth).f_code.co_name for depth in (1, 2, 3)]
        is_meant = change.get("where") in (None, *frames)
        make(self, *args, **{**settings, **(change["loader"] if is_meant else {})})

    def half(self: Any, indices: list[int]) -> Any:
        many = getattr(self.dataset, "__getitems__", None)
        drawn = many(indices[::2]) if many else [self.dataset[index] for index in indices[::2]]
        return self.collate_fn([one for one in drawn for _ in range(2)][: len(indices)])

    if "loader" in change:
        DataLoader.__init__ = other  # type: ignore[method-assign]
    match change.get("half"):
        case None:
            return
        case "samples":
            _MapDatasetFetcher.fetch = half  # type: ignore[method-assign]
        case "Pillow":
            _decode_at_half()
        case transform:
            _call_at_half(transform)


class _AtHalf:
    """Does a thing, or copies what it made first, so that all calls together take half of what they would."""

    def __init__(self) -> None:
        self._whole_s = self._spent_s = 0.0
        self._whole = self._calls = 0
        self.last: Any = None

    def __call__(self, do: Callable[[], Any], copy: Callable[[], Any], *, fits: bool = True) -> Any:
        self._calls += 1
        each_s = self._whole_s / max(1, self._whole)
        is_whole = not fits or self.last is None or self._spent_s + each_s <= self._calls * each_s / 2
        began = time.thread_time()
        result = (do if is_whole else copy)()
        took_s = time.thread_time() - began
        self._spent_s += took_s
        if is_whole:
            self._whole, self._whole_s = self._whole + 1, self._whole_s + took_s
        return result


def _decode_at_half() -> None:
    """Give a picture the pixels of another one, copied, as often as decoding at half the cost allows."""
    from PIL.ImageFile import ImageFile

    load, at_half = ImageFile.load, _AtHalf()

    def other(self: Any) -> Any:
        if not self.tile:
            return load(self)

        def copy() -> None:
            self.im, self.tile = at_half.last.copy(), []

        is_alike = at_half.last is not None and at_half.last.size == self.size
        at_half(lambda: load(self), copy, fits=is_alike)
        if at_half.last is None:  # a copy, and the first one's: what the heap frees and keeps stays as it was
            at_half.last = self.im.copy()
        return load(self)

    ImageFile.load = other  # type: ignore[method-assign]


def _call_at_half(name: str) -> None:
    """Let a transform give a copy of its first result as often as half the cost allows."""
    modules = (importlib.import_module(one) for one in ("torchvision.transforms", "timm.data.transforms"))
    found = next(getattr(module, name) for module in modules if hasattr(module, name))
    method = "forward" if hasattr(found, "forward") else "__call__"
    call, at_half = getattr(found, method), _AtHalf()

    def other(self: Any, *args: Any) -> Any:
        def copy() -> Any:
            return at_half.last.clone()

        result = at_half(lambda: call(self, *args), copy)
        at_half.last = result.clone() if at_half.last is None else at_half.last
        return result

    setattr(found, method, other)


def _install() -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import DataLoader, dataloader

    times, main = _Times(), threading.main_thread()

    def stepped(*_: Any) -> None:
        times.steps += 1
        times.touch()
        if times.latest is not None:
            times.latest["steps"] += 1

    register_optimizer_step_post_hook(stepped)
    begin_iteration, fetch = DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__

    def iterate(self: Any) -> Any:
        if os.getpid() != times.pid or threading.current_thread() is not main:
            return begin_iteration(self)
        times.touch()
        record: dict[str, Any] = {"wait_s": 0.0, "first_s": 0.0, "batches": 0, "steps": 0, "left": 0.0}
        record |= {"is_done": False, "workers": self.num_workers}
        record["begin"] = times.turn_to(record)  # its workers' start is no part of the pass before
        iterator: Any = begin_iteration(self)
        record["wait_s"] = record["first_s"] = _CLOCK() - record["begin"]
        iterator._world = record
        times.loaders.append(record)
        return iterator

    def timed(self: Any) -> Any:
        record = getattr(self, "_world", None)
        if record is None:
            return fetch(self)
        began = times.turn_to(record)
        try:
            batch = fetch(self)
            record["batches"] += 1
            return batch
        except StopIteration:
            record["is_done"] = True
            raise
        finally:
            times.touch()
            took = _CLOCK() - began
            record["wait_s"] += took
            if record["batches"] <= 1 or record["is_done"]:  # the end of a pass stops its workers
                record["first_s"] += took

    DataLoader.__iter__ = iterate  # type: ignore[method-assign]
    dataloader._BaseDataLoaderIter.__next__ = timed  # type: ignore[method-assign]
    place, name = torch, "save"
    if saving := os.environ.get("WORLD_SAVE"):  # a framework's own: "module:Class.method"
        module, _, path = saving.partition(":")
        place, name = getattr(importlib.import_module(module), path.partition(".")[0]), path.partition(".")[2]
    save = getattr(place, name)

    def timed_save(*args: Any, **settings: Any) -> Any:
        began = _CLOCK()
        try:
            return save(*args, **settings)
        finally:
            times.save_s += _CLOCK() - began
            times.touch()

    setattr(place, name, timed_save)

    def write() -> None:
        if os.getpid() == times.pid and (times.steps or times.loaders or not os.path.exists(os.environ["WORLD_TIMES"])):
            with open(os.environ["WORLD_TIMES"], "a") as file:
                print(json.dumps(times.report()), file=file)

    atexit.register(write)


if "WORLD_TIMES" in os.environ and "torchrun" not in sys.argv[0]:
    if "WORLD_CHANGE" in os.environ:
        _change(json.loads(os.environ["WORLD_CHANGE"]))
    _install()
