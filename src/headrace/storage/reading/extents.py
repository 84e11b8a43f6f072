"""`Extent`: where the bytes of a field of a sample lie."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """A run of bytes in a file."""

    path: str
    offset: int
    size: int
