"""The file of events: a header, then frames, each with its length and its checksum, so that a torn tail is recognised.

The header is 32 bytes: `HRACEVT1`, the version (u32), the size of a record (u32), zeros. A frame has a head of 24:

| bytes | field | |
| --- | --- | --- |
| 0-3 | `HRfr` | |
| 4-5 | type u16 | 1 records, 2 note, 3 totals |
| 6-7 | lane u16 | |
| 8-11 | process u32 | counts from 1 in each file; a note says which pid it is |
| 12-15 | count u32 | of records or totals; 1 for a note |
| 16-19 | length u32 | bytes that follow the head |
| 20-23 | checksum u32 | CRC-32 of bytes 0 to 19 and of what follows |
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from .records import RECORD_BYTES

if TYPE_CHECKING:
    import numpy as np

VERSION = 1
FILE_HEAD = struct.Struct("<8sII16x")
_FILE_MAGIC = b"HRACEVT1"
_MAGIC = b"HRfr"
_HEAD = struct.Struct("<4sHHIII")
_CHECKSUM = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECKSUM.size


class FrameType(IntEnum):
    RECORDS = 1
    NOTE = 2
    TOTALS = 3


@dataclass(frozen=True)
class Frame:
    """One frame of a file: what follows its head is still bytes."""

    type: int
    lane: int
    process: int
    count: int
    body: memoryview

    def note(self) -> dict[str, Any]:
        """What a note says."""
        document = json.loads(bytes(self.body))
        return document if isinstance(document, dict) else {}


@dataclass(frozen=True)
class Torn:
    """Bytes that are no whole frame: where, and how many."""

    at: int
    size: int
    is_at_end: bool


@cache
def totals_dtype() -> np.dtype[np.void]:
    """Exact sums of the events of one kind and process that began within a span of time."""
    import numpy as np

    return np.dtype(
        [
            ("start_ns", "<u8"),
            ("span_ns", "<u8"),
            ("duration_ns", "<u8"),
            ("longest_ns", "<u8"),
            ("value", "<i8"),
            ("count", "<u4"),
            ("kind", "<u4"),
        ]
    )


def file_head() -> bytes:
    return FILE_HEAD.pack(_FILE_MAGIC, VERSION, RECORD_BYTES)


def read_file_head(data: bytes | memoryview) -> int | None:
    """The version of a file of events; None where it is none."""
    if len(data) < FILE_HEAD.size:
        return None
    magic, version, size = FILE_HEAD.unpack_from(data)
    return version if magic == _FILE_MAGIC and size == RECORD_BYTES else None


def frame(kind: FrameType, lane: int, process: int, count: int, body: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, lane, process, count, len(body))
    return b"".join((head, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body))


def dump_json(document: object) -> bytes:
    """JSON that people can read too; what is no Unicode (a file name may be so) is escaped."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def note(lane: int, process: int, facts: Mapping[str, Any]) -> bytes:
    return frame(FrameType.NOTE, lane, process, 1, dump_json(facts))


def read_frames(data: memoryview) -> Iterator[Frame | Torn]:
    """Yield the frames that follow the header, and what lies between them that is none."""
    at, size = FILE_HEAD.size, len(data)
    while at < size:
        found = _frame_at(data, at)
        if found is not None:
            yield found
            at += HEAD_BYTES + len(found.body)
            continue
        after = _next_frame(data, at + 1)
        yield Torn(at, after - at, is_at_end=after == size)
        at = after


def _frame_at(data: memoryview, at: int) -> Frame | None:
    start = at + HEAD_BYTES
    if start > len(data):
        return None
    head = data[at : at + _HEAD.size]
    magic, kind, lane, process, count, length = _HEAD.unpack(head)
    if magic != _MAGIC or start + length > len(data):
        return None
    body = data[start : start + length]
    (checksum,) = _CHECKSUM.unpack_from(data, at + _HEAD.size)
    return Frame(kind, lane, process, count, body) if zlib.crc32(body, zlib.crc32(head)) == checksum else None


def _next_frame(data: memoryview, at: int) -> int:
    """Where the next whole frame begins; the end where there is none. Looks at a megabyte at a time."""
    while at < len(data):
        piece = bytes(data[at : at + (1 << 20)])
        found = piece.find(_MAGIC)
        if found < 0:
            at += max(1, len(piece) - len(_MAGIC) + 1)
        elif _frame_at(data, at + found) is not None:
            return at + found
        else:
            at += found + 1
    return len(data)
