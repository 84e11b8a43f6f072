"""What comes to its end whatever signal handlers raise: the start of a process, and the end of what is open."""

import _thread
import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_NUMBERS = sorted(signal.valid_signals())
_handlers: dict[int, Any] = {}  # the user's, by signal, while ours stands in for them
_came: set[Any] = set()  # signals whose handlers are yet to be called
_depth = 0


def _stand_in(number: int, frame: FrameType | None) -> None:
    if _depth:
        _came.add(number)
    else:  # an exception kept us from putting the user's back
        _handlers[number](number, frame)


@contextmanager
def signals_later(*, in_callback: bool = False) -> Iterator[set[Any]]:
    """Let what is inside come to its end. It sees which signals come meanwhile: their handlers are called after it.

    `in_callback`: by a weak reference, where what a handler raises would be lost: they are called a little later.
    """
    global _depth
    if threading.current_thread() is not threading.main_thread():  # no other one calls handlers, or may set them
        yield set()
        return
    _depth += 1
    try:
        for number in _NUMBERS if _depth == 1 else ():
            if callable(handler := signal.getsignal(number)) and handler is not _stand_in:
                _handlers[number] = handler
                signal.signal(number, _stand_in)
        yield _came
    finally:
        first = None
        if _depth == 1 and _came:
            if not in_callback:
                _came.discard(first := min(_came))
            if _came:
                with suppress(RuntimeError):  # there may be no more threads
                    _thread.start_new_thread(_call_others, ())
        _depth -= 1  # no call between this and the look whether any came: none can come in between
        if not _depth:
            try:
                _put_back()
            finally:
                if first is not None and callable(handler := signal.getsignal(first)):
                    handler(first, sys._getframe())  # the wakeup file has been told already


def _put_back() -> None:
    """Let the user's handlers be the handlers again. One that raises keeps others behind ours, which calls them."""
    for number, handler in [*_handlers.items()]:
        if signal.getsignal(number) is _stand_in:
            signal.signal(number, handler)
        _handlers.pop(number, None)


def _call_others() -> None:
    """Let the main thread call handlers, each after a moment: what one raises must not take the place of another's, or
    come while what the callback's owner held is given up, in a callback of multiprocessing, and be lost.
    """
    with suppress(KeyError):
        while True:
            time.sleep(0.02)
            _thread.interrupt_main(_came.pop())


def _after_fork() -> None:
    global _depth
    _depth = 0
    _came.clear()
    _put_back()


os.register_at_fork(after_in_child=_after_fork)


class Ending:
    """Closes something once: when it is called, when the owner is gone, or when the process ends.

    An exception may strike before it has begun and where nobody calls it again: then the next one that is made does.
    """

    def __init__(self, owner: object, close: Callable[[], None]) -> None:
        self._close, self.owner = close, weakref.ref(owner, _close_forsaken)
        _endings[self] = None
        _close_forsaken()  # behind that: a handler called at its end may raise

    def __call__(self) -> None:
        with signals_later():
            if _endings.pop(self, self) is None:
                self._close()


_endings: dict[Ending, None] = {}


def _close_forsaken(gone: object = None, *, at_exit: bool = False) -> None:
    with signals_later(in_callback=gone is not None):
        for ending in [*_endings]:
            if at_exit or ending.owner() is None:
                ending()


atexit.register(_close_forsaken, at_exit=True)  # before multiprocessing, which `pool` has imported, ends its children
