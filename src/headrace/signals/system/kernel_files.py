"""Reading the small files of /proc and /sys: many of them, several times a second, and any may be gone."""

from __future__ import annotations

import os
from pathlib import Path


def read_start(path: Path | str, size: int) -> bytes:
    """The first bytes of a file; empty where it cannot be read.

    Without the layers of `open()`, which cost more than the kernel's part.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size)
    except OSError:  # its process ended meanwhile
        return b""
    finally:
        os.close(fd)


def read_text(path: Path | str) -> str:
    """A whole file's text; empty where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def read_int(path: Path | str) -> int | None:
    """A file of one whole number; None for "max" and the like."""
    text = read_text(path).strip()
    return int(text) if text.isdigit() else None


def read_table(path: Path | str) -> dict[str, int]:
    """Lines of "name value"; what is no whole number is left out."""
    table = {}
    for line in read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            table[name] = int(value)
    return table
