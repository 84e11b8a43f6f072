"""Where bytes of a sample lie in a file, and how a data set gets them: from whoever read ahead, else from the file."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_MOST_OPEN = 64  # files that stay open: opening one anew costs a round trip on a network file system


class Extent(NamedTuple):
    """A run of bytes in a file."""

    path: str
    offset: int
    size: int


Source = Callable[[Extent], memoryview | None]

_source: Source | None = None


def read_extent(extent: Extent) -> memoryview:
    """The bytes of an extent, read-only. They stay valid as long as the view, or a slice of it, is held.

    An installed source is asked first; where it has nothing, the file is read here. So errors are always those of the
    file itself: what is raised is what reading it raised, with its name.
    """
    if _source is not None:
        view = _source(extent)
        if view is not None:
            return view
    return read_file(extent)


def has_source() -> bool:
    """Whether somebody reads ahead for this process."""
    return _source is not None


def install_source(source: Source | None) -> Source | None:
    """Let `read_extent` of this process ask a source first; None asks nobody. Returns the one before."""
    global _source
    before, _source = _source, source
    return before


@contextmanager
def source_installed(source: Source | None) -> Iterator[None]:
    """Ask a source for as long as this lasts."""
    before = install_source(source)
    try:
        yield
    finally:
        install_source(before)


def read_file(extent: Extent) -> memoryview:
    """The bytes of an extent from its file."""
    path, offset, size = extent
    with _open.use(path) as fd:
        data = os.pread(fd, size, offset)
        if len(data) < size:
            data = _read_on(fd, extent, data)
    return memoryview(data)


def _read_on(fd: int, extent: Extent, data: bytes) -> bytes:
    """The rest of a read that came back short: a signal, a limit of 2 GiB a call, or the end of the file."""
    parts, got = [data], len(data)
    while got < extent.size:
        more = os.pread(fd, extent.size - got, extent.offset + got)
        if not more:
            raise OSError(
                errno.EIO,
                f"the file ends {extent.size - got} bytes before the end of a sample at offset {extent.offset} "
                f"({extent.size} bytes)",
                extent.path,
            )
        parts.append(more)
        got += len(more)
    return b"".join(parts)


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


_open = OpenFiles(_MOST_OPEN)


def close_files() -> None:
    """Close the files that were kept open; a later read opens its file again."""
    _open.close()


def _after_fork() -> None:
    """A child asks nobody: what was installed belongs to its parent."""
    global _source
    _source = None
    _open.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def cached_share(extents: Iterable[Extent]) -> float:
    """The share of extents whose first and last byte could be read without the disk; 0 where that cannot be asked.

    Nothing is brought into the cache by asking.
    """
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None:
        return 0.0
    asked = cached = 0
    for path, offset, size in extents:
        asked += 1
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            at_ends = [os.preadv(fd, [bytearray(1)], at, flag) for at in {offset, offset + max(1, size) - 1}]
            cached += all(at_ends)
        except OSError:  # EAGAIN: not there; EOPNOTSUPP: this file system cannot say
            continue
        finally:
            os.close(fd)
    return cached / asked if asked else 0.0
