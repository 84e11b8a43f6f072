"""What writing logs takes: handlers of `logging` by their class, loguru, TensorBoard, wandb, tqdm."""

import logging
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import tape
from .wrapping import Inside, outermost, replace

_KIND = int(EventKind.LOGGING)
_WORTH_NS = 20_000  # a short line: many of them become one event
_TOGETHER_NS = 1_000_000
_OFTEN = {"loguru._handler": ("Handler", "emit", "loguru"), "tqdm.std": ("tqdm", "display", "tqdm")}
in_logging: Inside = set()


def _timed_often(function: Any, what: str) -> Any:
    """Time a method that is called for every line, microseconds summed up; an empty `what` is the object's class."""
    small: dict[str, int] = {}  # many short writes, told of as one event when they have become worth it

    def tell(start: int, duration: int, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        name = what or f"{type(args[0]).__module__}.{type(args[0]).__qualname__}"
        if duration >= _WORTH_NS:
            tape.write(_KIND, start, duration, 1, tape.name(name))
        elif (total_ns := small.pop(name, 0) + duration) >= _TOGETHER_NS:
            tape.write(_KIND, start + duration - total_ns, total_ns, 0, tape.name(name))
        else:
            small[name] = total_ns

    return outermost(function, in_logging, tell)


def time_logging(_torch: ModuleType) -> None:
    logging.Handler.handle = _timed_often(logging.Handler.handle, "")  # type: ignore[method-assign]


def time_lines(module: ModuleType) -> None:
    """Time what loguru's sinks take, and what it takes tqdm to draw its bar."""
    cls, method, what = _OFTEN[module.__name__]
    setattr(getattr(module, cls), method, _timed_often(getattr(getattr(module, cls), method), what))


def time_summary_writer(writer: ModuleType) -> None:
    cls = writer.SummaryWriter
    for name in dir(cls):
        if name.startswith("add_") or name in {"flush", "close"}:
            replace(cls, name, _KIND, "tensorboard", in_logging)
