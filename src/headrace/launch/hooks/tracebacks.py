"""Tracebacks as the script would have them: the frames of our hooks are left out where Python or torch prints one."""

import contextlib
import os
import re
import sys
import threading
from types import ModuleType, TracebackType
from typing import Any

from headrace.model import EventKind, describe_error, traceback_of

from ..tape import now, tape
from .wrapping import LIBRARIES

_EXCEPTION = int(EventKind.EXCEPTION)
_MOST_BYTES = 1000  # of a name
_MOST_SAID = 500  # letters of a message: it begins with what it is about, and the frames before it need room, too
# a frame that called another; not where torch fetches from a worker: a connection that fails there is that worker's end
_PASSED_ON = re.compile(
    r'^ {2}File "((?![^"]*/torch/multiprocessing/)[^"]+)".*\n(?: {4}.*\n)*(?= {2}File )', re.MULTILINE
)
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # a message may be coloured, as those of `torch.load` are
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_recorded: list[BaseException] = []  # the last one: our hook sees it first, and so does the end of the process


def without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this room; its links are changed in place."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    link = trace
    while link is not None and link.tb_next is not None:
        if link.tb_next.tb_frame.f_code.co_filename.startswith(_OURS):
            link.tb_next = link.tb_next.tb_next
        else:
            link = link.tb_next
    return trace


def clean(error: BaseException | None) -> None:
    """Leave our frames out of an exception, and of those that it came from; as far as they let us."""
    seen: set[int] = set()
    to_clean = [error]
    while to_clean:
        link = to_clean.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        with contextlib.suppress(Exception):  # it may be a class of the script's own, with anything in their place
            link.__traceback__ = without_our_frames(link.__traceback__)
            to_clean += [link.__cause__, link.__context__]


def hide_our_frames(_torch: ModuleType) -> None:
    """Clean what an uncaught exception prints, and what torch carries from a worker to the training process."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_cleaned
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _record_thread
    import multiprocessing.queues

    _record_feeder(multiprocessing.queues)
    from torch._utils import ExceptionWrapper

    original: Any = ExceptionWrapper.__init__

    def wrapped(self: Any, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, _ = sys.exc_info() if exc_info is None else exc_info
        clean(error)
        original(self, (kind, error, None if error is None else traceback_of(error)), where)

    ExceptionWrapper.__init__ = wrapped  # type: ignore[method-assign]


def record_exception(error: BaseException) -> None:
    """Write down what nobody caught: its end, where the message stands, and whether it came from a `next`."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)) or any(error is one for one in _recorded):
        return
    _recorded[:] = [error]
    said = describe_error(error)
    text = said.traceback.strip()
    if len(said.message) > _MOST_SAID and "Traceback" not in said.message:  # what a worker raised stands at its end
        text = text.replace(said.message, said.message[:_MOST_SAID])
    # the script's own frames are what is looked for: those of a library only where they raised
    own = _PASSED_ON.sub(lambda frame: "" if any(part in frame[1] for part in LIBRARIES) else frame[0], text)
    end = _ESCAPES.sub("", own).encode("utf-8", "replace")[-_MOST_BYTES:].decode("utf-8", "ignore")
    tape.write(_EXCEPTION, now(), 0, int(", in __next__" in text), tape.name(end))


def _record_thread(args: Any) -> None:
    if args.exc_value is not None:
        record_exception(args.exc_value)
    threading.__excepthook__(args)


def _record_feeder(queue: ModuleType) -> None:
    """A worker's queue sends from a thread of its own, which prints what it meets and goes on."""
    original = queue.Queue._on_queue_feeder_error

    def recorded(error: BaseException, item: Any) -> None:
        record_exception(error)
        original(error, item)

    queue.Queue._on_queue_feeder_error = staticmethod(recorded)


def _print_cleaned(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    clean(error)
    record_exception(error)
    sys.__excepthook__(kind, error, traceback_of(error))
