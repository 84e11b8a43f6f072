"""How a data set gets the bytes of an extent: from whoever read ahead, else from the file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .extents import Extent
from .open_files import OpenFiles

Source = Callable[[Extent], memoryview | None]

_MOST_OPEN = 64  # files that stay open: opening one anew costs a round trip on a network file system

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
