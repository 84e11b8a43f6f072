"""`events.bin`: a header, then frames whose checksums tell a torn tail (`docs/reference/run-directory.md`)."""

import contextlib
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..system import Fd
from .area import RECORD_BYTES
from .thinning import Thinner

_log = logging.getLogger(__name__)

EVENTS_FILE = "events.bin"
VERSION = 1
FILE_HEAD = struct.Struct("<8sII16x")
_FILE_MAGIC = b"HRACEVT1"
_MAGIC = b"HRfr"
_HEAD = struct.Struct("<4sHHIII")
_CHECKSUM = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECKSUM.size
_NAMES = ["start_ns", "duration_ns", "value", "arg", "thread", "kind", "lap"]
RECORD_DTYPE = np.dtype({"names": _NAMES, "formats": ["<u8", "<u8", "<i8", "<u4", "<u2", "u1", "u1"]})


class FrameType(IntEnum):
    RECORDS = 1
    NOTE = 2


@dataclass(frozen=True)
class StoredFrame:
    """One frame of a file: what follows its head is still bytes."""

    type: int
    lane: int
    process: int
    count: int
    body: memoryview


@dataclass(frozen=True)
class Torn:
    """Bytes that are no whole frame: where, and how many."""

    at: int
    size: int
    is_at_end: bool


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


def read_frames(data: memoryview) -> Iterator[StoredFrame | Torn]:
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


def _frame_at(data: memoryview, at: int) -> StoredFrame | None:
    start = at + HEAD_BYTES
    if start > len(data):
        return None
    head = data[at : at + _HEAD.size]
    magic, kind, lane, process, count, length = _HEAD.unpack(head)
    if magic != _MAGIC or start + length > len(data):
        return None
    body = data[start : start + length]
    (checksum,) = _CHECKSUM.unpack_from(data, at + _HEAD.size)
    return StoredFrame(kind, lane, process, count, body) if zlib.crc32(body, zlib.crc32(head)) == checksum else None


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


class AppendedFile(Fd):
    """A file of one writer that grows in whole pieces; if the disk is full it stops growing and says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        self._path = path
        self.num_bytes = 0
        self.num_left_out = 0  # pieces that could not be written
        self._last_error = ""

    def append(self, data: bytes) -> bool:
        """Add a piece, whole or not at all; returns whether it was written."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.num_bytes)
            if not self.num_left_out:
                _log.warning("cannot write %s: %s", self._path, error)
            self.num_left_out += 1
            self._last_error = str(error)
            return False
        self.num_bytes += len(data)
        return True

    @property
    def problems(self) -> list[str]:
        said = f"{self._path.name} could not be written {self.num_left_out} times ({self._last_error})"
        return [said] if self.num_left_out else []


class EventFile(AppendedFile):
    def __init__(self, path: Path, *, limit_bytes: int, start_s: float) -> None:
        super().__init__(path)
        self.append(file_head())
        self._thinner = Thinner(limit_bytes)
        self._start_s = start_s

    def write(
        self,
        blocks: Sequence[tuple[int, int, npt.NDArray[np.void]]],
        notes: Sequence[tuple[int, int, dict[str, Any]]],
        *,
        now_s: float,
    ) -> None:
        """Add what a drain brought, thinned if need be, in one piece."""
        was_whole = not self._thinner.num_left_out
        kept = self._thinner.thin(
            [block for _, _, block in blocks], written_bytes=self.num_bytes, elapsed_s=now_s - self._start_s
        )
        pieces = [note(lane, process, facts) for lane, process, facts in notes]
        for (lane, process, _), block in zip(blocks, kept, strict=True):
            if len(block):
                pieces.append(frame(FrameType.RECORDS, lane, process, len(block), block.tobytes()))
        if was_whole and self._thinner.num_left_out:
            lane, process, _ = blocks[0]
            pieces.append(note(lane, process, {"note": "thinned", "seen_ns": int(now_s * 1e9)}))
        if pieces:
            self.append(b"".join(pieces))
