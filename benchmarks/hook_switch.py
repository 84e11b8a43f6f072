"""The hooks of `headrace run`, taken out of a process while it runs and put back: off is the code without them.

What a hook replaced is found from the hook itself (`__wrapped__`, or the name `original` that it closes over), so that
"off" is the very function that torch or Headrace defines, not a hook that does nothing. Our loader writes some events
by itself while it is recorded; off, they go into a function that does nothing. Workers are told by signals.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import MutableMapping
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

_ON, _OFF = signal.SIGUSR1, signal.SIGUSR2

Place = tuple[Any, str, Any, Any]  # owner, name, with the hook, without


class HookSwitch:
    """Switches the hooks of this process, and has its workers switch theirs."""

    def __init__(self, folder: str, *, fetcher: Any = None, tells_workers: bool = True) -> None:
        self._folder, self._tells_workers = Path(folder), tells_workers
        self._places = [*wrapped_places(), *_fetcher_places(fetcher)]
        if not self._places:
            raise RuntimeError("no hooks in this process: it is to run under `headrace run`")
        self._tables: list[tuple[MutableMapping[int, Any], dict[int, Any]]] = []
        from torch.optim import optimizer

        for table in (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks):
            self._tables.append((table, dict(table)))
        self._callbacks = hook_callbacks()

    @property
    def names(self) -> list[str]:
        """What is switched in this process."""
        found = [f"{getattr(owner, '__name__', type(owner).__name__)}.{name}" for owner, name, _, _ in self._places]
        return [
            *found,
            *("optimizer step" for _, known in self._tables[:1] if known),
            *("gc" for _ in self._callbacks),
        ]

    @property
    def worker_pids(self) -> list[int]:
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def __call__(self, is_on: bool) -> None:
        put_places(self._places, is_on=is_on)
        for table, known in self._tables:
            table.clear()
            table.update(known if is_on else {})
        put_callbacks(self._callbacks, is_on=is_on)
        for pid in self.worker_pids if self._tells_workers else ():
            os.kill(pid, _ON if is_on else _OFF)


class ListenInWorker:
    """A `worker_init_fn` that lets a worker be told; for torch's workers and for ours."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, _worker: int) -> None:
        places: list[Place] = []
        callbacks = hook_callbacks()

        def told(number: int, frame: FrameType | None) -> None:
            if not places:
                places.extend(_worker_places(frame))
            put_places(places, is_on=number == _ON)
            put_callbacks(callbacks, is_on=number == _ON)

        signal.signal(_ON, told)
        signal.signal(_OFF, told)
        Path(self._folder, str(os.getpid())).touch()


def put_places(places: list[Place], *, is_on: bool) -> None:
    for owner, name, hooked, original in places:
        setattr(owner, name, hooked if is_on else original)


def hook_callbacks() -> list[Any]:
    """Hooks on garbage collection."""
    return [one for one in gc.callbacks if _is_ours(one)]


def put_callbacks(callbacks: list[Any], *, is_on: bool) -> None:
    gc.callbacks[:] = [one for one in gc.callbacks if one not in callbacks]
    gc.callbacks += callbacks if is_on else []


def wrapped_places() -> list[Place]:
    """Functions of modules and methods of classes that a hook stands in for."""
    found: dict[tuple[int, str], Place] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("headrace.launch"):
            continue
        if not hasattr(module, "__dict__"):
            continue
        owners = [module, *(value for value in list(vars(module).values()) if issubclass(type(value), type))]
        for owner in owners:
            for name, value in list(vars(owner).items()):
                is_static = type(value) is staticmethod  # `isinstance` wakes deprecated objects of torch
                function = value.__func__ if is_static else value
                if type(function) is FunctionType and hasattr(function, "__wrapped__") and _is_ours(function):
                    original: Any = function
                    while _is_ours(original) and hasattr(original, "__wrapped__"):
                        original = original.__wrapped__
                    original = staticmethod(original) if is_static else original
                    found[id(owner), name] = (owner, name, value, original)
    from headrace.signals.recording import Lane

    return [*found.values(), (Lane, "write", Lane.write, _write_nothing), *_own_places()]


def _own_places() -> list[Place]:
    """What our own loader writes while it is recorded, in the training process and in its workers."""
    from headrace.signals import NextWatch

    places: list[Place] = [(NextWatch, "wrap", NextWatch.wrap, None)]
    if (events := sys.modules.get("headrace.engine.worker.events")) is not None:
        methods = [name for name, value in vars(events.WorkerEvents).items() if type(value) is FunctionType]
        own = [name for name in methods if not name.startswith("__")]
        places += [(events.WorkerEvents, name, getattr(events.WorkerEvents, name), _write_nothing) for name in own]
    return places


def _write_nothing(*_: object, **__: object) -> None:
    pass


def _fetcher_places(fetcher: Any) -> list[Place]:
    """What `headrace run` has put into one of torch's fetchers."""
    if fetcher is None:
        return []
    places: list[Place] = [
        (fetcher, name, getattr(fetcher, name), original_of(getattr(fetcher, name))) for name in ("fetch", "collate_fn")
    ]
    for name, inner in (("dataset", "_dataset"), ("dataset_iter", "_iterator")):
        stand_in = getattr(fetcher, name, None)
        if stand_in is not None:  # a hook on `fetch` may exchange it for the data set itself, and back
            is_ours = _is_ours(getattr(type(stand_in), "__init__", None))
            places.append((fetcher, name, stand_in, vars(stand_in)[inner] if is_ours else stand_in))
    return places


def _worker_places(frame: FrameType | None) -> list[Place]:
    """What is hooked in a worker: torch's has it in the variables of its loop, ours in its class."""
    while frame is not None and not (frame.f_code.co_name == "_worker_loop" and "fetcher" in frame.f_locals):
        frame = frame.f_back
    if frame is None:
        return wrapped_places()
    index_queue = frame.f_locals["index_queue"]
    return [*torch_worker_places(frame), (index_queue, "get", index_queue.get, original_of(index_queue.get))]


def torch_worker_places(loop: FrameType) -> list[Place]:
    """What is hooked in a worker of torch, but for how it asks for its next task."""
    from multiprocessing import queues

    pickler = queues._ForkingPickler  # type: ignore[attr-defined]
    places = [*wrapped_places(), *_fetcher_places(loop.f_locals["fetcher"])]
    places.append((queues, "_ForkingPickler", pickler, original_of(pickler.dumps)))
    return places


def _is_ours(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and f"headrace{os.sep}launch{os.sep}" in code.co_filename


def original_of(hook: Any) -> Any:
    """The `original` that a hook closes over."""
    return hook.__closure__[hook.__code__.co_freevars.index("original")].cell_contents
