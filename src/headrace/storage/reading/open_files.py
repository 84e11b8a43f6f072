"""Files that stay open between reads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager


class OpenFiles:
    """Keeps files open, the least recently used closed first; none while it is being read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._files: OrderedDict[str, int] = OrderedDict()
        self._users: dict[int, int] = {}
        self._to_close: set[int] = set()

    @contextmanager
    def use(self, path: str) -> Iterator[int]:
        with self._lock:
            fd = self._files.get(path, -1)
            if fd >= 0:
                self._files.move_to_end(path)
                self._users[fd] += 1
        if fd < 0:
            fd = self._add(path)
        try:
            yield fd
        finally:
            with self._lock:
                self._users[fd] -= 1
                self._close_if_idle(fd)

    def _add(self, path: str) -> int:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with self._lock:
            self._users[fd] = 1
            if path in self._files:  # another thread was quicker
                self._to_close.add(fd)
                return fd
            self._files[path] = fd
            if len(self._files) > self._most:
                self._retire(self._files.popitem(last=False)[1])
        return fd

    def _retire(self, fd: int) -> None:
        self._to_close.add(fd)
        self._close_if_idle(fd)

    def _close_if_idle(self, fd: int) -> None:
        if fd in self._to_close and not self._users[fd]:
            self._to_close.remove(fd)
            del self._users[fd]
            os.close(fd)

    def close(self) -> None:
        with self._lock:
            for fd in self._files.values():
                self._retire(fd)
            self._files.clear()

    def after_fork(self) -> None:
        """In a child: no thread of the parent holds the lock here, nor reads. pread shares no position."""
        self._lock = threading.Lock()
        for fd in self._users:
            self._users[fd] = 0
