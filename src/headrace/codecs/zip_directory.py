"""The directory of a zip archive, as Python's zipfile reads it: which members there are and where their bytes lie."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import IO, cast

from .source import Source

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
ZSTD = 93

_LOCAL = struct.Struct("<4s5H3L2H")
_ENCRYPTED = 0x1


class _File:
    """A source as zipfile reads it. Never more is read than it asks for, of what is there."""

    mode = "rb"

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset if whence == io.SEEK_SET else self._source.size + offset
        if at < 0:
            raise OSError("an offset before the beginning")  # as a file says it
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._source.size - self._at)
        data = bytes(self._source.read(self._at, left if size < 0 else min(size, left))) if left else b""
        self._at += len(data)
        return data


def read_directory(source: Source) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; of two with one name the later counts."""
    try:
        archive = zipfile.ZipFile(cast("IO[bytes]", _File(source)))
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error, OverflowError) as error:
        raise source.damaged(f"not a zip archive, or cut short: {error}", size=f"{source.size} bytes") from None
    return archive.NameToInfo


def packed_bytes(source: Source, member: zipfile.ZipInfo) -> tuple[int, memoryview]:
    """Return a member's packed bytes and where they begin, after a look at its local header."""
    if member.flag_bits & _ENCRYPTED:
        raise source.damaged(f"member {member.filename!r} is encrypted")
    at = member.header_offset
    header = _LOCAL.unpack(source.read(at, _LOCAL.size))
    if header[0] != b"PK\x03\x04":
        raise source.damaged(f"member {member.filename!r} does not begin with a zip header", offset=at)
    if header[3] != member.compress_type:
        raise source.damaged(
            f"member {member.filename!r}: its header and the directory disagree", offset=at, method=header[3]
        )
    start = at + _LOCAL.size + header[9] + header[10]
    # stored members are handed out as views, packed ones are only unpacked
    read = source.read if member.compress_type == STORED else source.borrow
    return start, read(start, member.compress_size)
