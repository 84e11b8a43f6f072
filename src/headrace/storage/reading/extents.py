"""Where bytes of a sample lie in a file, and how a data set gets them."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
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


@contextlib.contextmanager
def source_installed(source: Source) -> Iterator[None]:
    """Ask a source for as long as this lasts."""
    before = install_source(source)
    try:
        yield
    finally:
        install_source(before)


def read_file(extent: Extent) -> memoryview:
    path, offset, size = extent
    file = _kept_open(path)
    data = os.pread(file.fd, size, offset)
    while len(data) < size:  # a signal, a limit of 2 GiB a call, or the end of the file
        more = os.pread(file.fd, size - len(data), offset + len(data))
        if not more:
            missing = f"the file ends {size - len(data)} bytes before the end of a sample"
            raise OSError(errno.EIO, f"{missing} at offset {offset} ({size} bytes)", path)
        data += more
    return memoryview(data)


class _OpenFile:
    """An open file; it is closed when nobody refers to it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


def open_file(path: str) -> _OpenFile:
    return _OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


_kept_open = lru_cache(_MOST_OPEN)(open_file)  # one that is being read stays open until then


def close_files() -> None:
    """Close the files that were kept open; a later read opens its file again."""
    _kept_open.cache_clear()


def _after_fork() -> None:
    """A child asks nobody, for what was installed belongs to its parent."""
    install_source(None)
    close_files()


os.register_at_fork(after_in_child=_after_fork)


def cached_share(extents: Iterable[Extent]) -> float:
    """The share of extents whose first and last byte are in the page cache, which asking leaves as it is; else 0."""
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None:
        return 0.0
    asked = cached = 0
    for path, offset, size in extents:
        asked += 1
        # EAGAIN: not there; EOPNOTSUPP: this file system cannot say
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            ends = {offset, offset + max(1, size) - 1}
            cached += all(os.preadv(file.fileno(), [bytearray(1)], at, flag) for at in ends)
    return cached / asked if asked else 0.0
