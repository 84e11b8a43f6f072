"""Patches the standard library as gevent's `monkey.patch_all` does: threads take turns, and only where one waits.

Reads and writes of `os` are not patched there either: they keep the turn.
"""

from __future__ import annotations

import _thread
import os
import select
import selectors
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

_start, _allocate, _sleep, _select = _thread.start_new_thread, _thread.allocate_lock, time.sleep, select.select
_poll, _fork, _waitpid = select.poll, os.fork, os.waitpid
_turn = _allocate()


def _switch(seconds: float = 0.0) -> None:
    _turn.release()
    _sleep(seconds)
    _turn.acquire()


def _until(look: Callable[[], Any], timeout_s: float | None) -> Any:
    """What a look brings, once it brings something or the time is over; others have their turn meanwhile."""
    end = None if timeout_s is None or timeout_s < 0 else time.monotonic() + timeout_s
    while not (found := look()) and (end is None or time.monotonic() < end):
        _switch(0.0005)
    return found


def _start_in_turn(function: Callable[..., Any], args: tuple[Any, ...], options: Any = None) -> int:
    def run() -> None:
        with _turn:
            function(*args, **(options or {}))

    return _start(run, ())


class _Lock:
    def __init__(self) -> None:
        self._lock = _allocate()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return bool(_until(lambda: self._lock.acquire(blocking=False), timeout if blocking else 0))

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._lock = _allocate()


class _Poll:
    def __init__(self) -> None:
        self._poll = _poll()
        self.register, self.modify, self.unregister = self._poll.register, self._poll.modify, self._poll.unregister

    def poll(self, timeout: float | None = None) -> Any:
        return _until(lambda: self._poll.poll(0), None if timeout is None else timeout / 1000)


def _select_in_turn(reads: Any, writes: Any, others: Any, timeout: float | None = None) -> Any:
    def look() -> Any:
        found = _select(reads, writes, others, 0)
        return found if any(found) else ()

    return _until(look, timeout) or ([], [], [])


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    _until(lambda: not self.is_alive(), timeout)


def patch_all() -> None:
    """As `gevent.monkey.patch_all`."""
    _turn.acquire()
    patched: Any = threading
    time.sleep = _switch
    _thread.start_new_thread = patched._start_new_thread = _start_in_turn  # type: ignore[assignment]
    _thread.allocate_lock = patched.Lock = patched._allocate_lock = _Lock  # type: ignore[assignment]
    patched.RLock, patched._CRLock, patched.Thread.join = patched._PyRLock, None, _join
    module: Any = select
    module.select, module.poll = _select_in_turn, _Poll
    del module.epoll, selectors.EpollSelector
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
    os.fork = lambda: _fork()
    os.waitpid = lambda pid, options: (
        _until(
            lambda: found if (found := _waitpid(pid, options | os.WNOHANG))[0] else (),
            0 if options & os.WNOHANG else None,
        )
        or (0, 0)
    )
    signal.signal(signal.SIGCHLD, lambda *_: None)
