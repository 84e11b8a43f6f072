"""Whether bytes lie in the page cache already."""

from __future__ import annotations

import os
from collections.abc import Iterable

from .extents import Extent


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
