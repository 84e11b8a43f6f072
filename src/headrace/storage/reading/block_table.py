"""The memory that a reader and the workers share: which bytes of which file lie where, and who refers to them.

One anonymous memory file, mapped by every process that takes part:

    head │ columns of the table of blocks │ rows, one a process that reads │ marks │ blocks

Nobody holds a lock that another waits for. The reader alone writes the table. A worker that takes a block writes its
number into a lease word of its own row and looks again whether the block's generation is still the same; the reader
changes the generation first, lets a moment pass, and only then looks for leases. A row belongs to the process that
holds a record lock on its number: the kernel releases it with the process, however that ends, and its leases count no
more.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Self

from .read_plan import GRANULE, MAX_BLOCKS, page_up

MAX_ROWS = 1024
LEASES = 256  # a row; a process that holds more views than this gets copies
ASIDE = 128  # extents that a process read by itself, kept for the reader to hear of

_READER_LOCK = 1 << 40  # offsets of record locks, far from any byte that exists
_CLAIM_LOCK = _READER_LOCK + 1
_ROW_LOCKS = _READER_LOCK + 8


class HeadWord(IntEnum):
    """Words at the start of the file."""

    STATE = 0
    PASSED = 1  # the last batch that is over, by the training process
    ROWS = 2  # rows ever used
    DEPTH = 3
    BYTES_READ = 4
    READS = 5
    FAILED_READS = 6
    VAIN_BYTES = 7
    CLAIMED_BYTES = 8
    FILES = 9
    FILE_BYTES = 10
    NUM = 64


class State(IntEnum):
    """Of the reader, as workers see it."""

    STARTING = 0
    ON = 1
    GONE = 3


class Column(IntEnum):
    """Of the table of blocks, `MAX_BLOCKS` words each."""

    KEY_LOW = 0
    KEY_HIGH = 1
    START = 2
    END = 3  # 0: no block; so no extent lies in it
    STATE = 4
    PLACE = 5
    GENERATION = 6
    NUM = 7


class InTable(IntEnum):
    """Of a block, as workers see it."""

    NONE = 0
    IN_FLIGHT = 1
    READY = 2
    FAILED = 3


class Row(IntEnum):
    """Words of a row, which one process writes."""

    HITS = 0
    HIT_BYTES = 1
    WAITS = 2
    WAIT_NS = 3
    SELF_READS = 4
    NUM_ASIDE = 5
    ASIDE_AT = 8  # then (key, offset), the newest `ASIDE` of them
    LEASES_AT = 8 + 2 * ASIDE  # then numbers of blocks + 1
    NUM = LEASES_AT + LEASES


_COLUMNS_AT = HeadWord.NUM
_ROWS_AT = _COLUMNS_AT + Column.NUM * MAX_BLOCKS
_MARKS_AT = 8 * (_ROWS_AT + Row.NUM * MAX_ROWS)


def row_at(row: int) -> int:
    return _ROWS_AT + row * Row.NUM


@lru_cache(4096)
def path_key(path: str) -> tuple[int, int]:
    """128 bits that stand for a path in every process."""
    low, high = struct.unpack("qq", blake2b(os.fsencode(path), digest_size=16).digest())
    return low, high


class BlockTable:
    """A mapping of the shared file, in any of the processes."""

    def __init__(self, fd: int, space_bytes: int) -> None:
        self.fd, self.space_bytes = fd, space_bytes
        self.blocks_at = page_up(_MARKS_AT + space_bytes // GRANULE)
        size = self.blocks_at + space_bytes
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self.map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED)
        with contextlib.suppress(OSError, AttributeError):
            self.map.madvise(mmap.MADV_DONTDUMP)
        self.bytes = memoryview(self.map)
        self.words = self.bytes[:_MARKS_AT].cast("q")
        self.columns = [self.words[at : at + MAX_BLOCKS] for at in range(_COLUMNS_AT, _ROWS_AT, MAX_BLOCKS)]
        self.marks = self.bytes[_MARKS_AT : _MARKS_AT + space_bytes // GRANULE]

    @classmethod
    def create(cls, space_bytes: int) -> Self:
        fd = os.memfd_create("headrace-reader", os.MFD_CLOEXEC)
        try:
            return cls(fd, space_bytes)
        except BaseException:
            os.close(fd)
            raise

    def publish(self, number: int, path: str, start: int, end: int, place: int) -> None:
        """A block is on its way."""
        columns, size = self.columns, (end - start) // GRANULE
        first = place // GRANULE
        self.marks[first : first + size] = bytes(size)
        columns[Column.STATE][number] = InTable.IN_FLIGHT
        columns[Column.KEY_LOW][number], columns[Column.KEY_HIGH][number] = path_key(path)
        columns[Column.START][number], columns[Column.PLACE][number] = start, place
        columns[Column.GENERATION][number] += 1
        columns[Column.END][number] = end

    def settle(self, number: int, end: int | None) -> None:
        """A block's bytes are there, up to `end` of the file; None: they could not be read."""
        if end is not None:
            self.columns[Column.END][number] = end
        self.columns[Column.STATE][number] = InTable.FAILED if end is None else InTable.READY

    def withdraw(self, number: int) -> None:
        """From now on nobody may begin to use a block; who does already is among `leased`, a moment later."""
        self.columns[Column.GENERATION][number] += 1
        self.columns[Column.END][number] = 0
        self.columns[Column.STATE][number] = InTable.NONE

    def leased(self) -> set[int]:
        """The blocks that a living process refers to."""
        found: set[int] = set()
        for row in range(self.words[HeadWord.ROWS]):
            at = row_at(row) + Row.LEASES_AT
            held = set(self.words[at : at + LEASES].tolist()) - {0}
            if held and _is_locked(self.fd, _ROW_LOCKS + row):
                found |= {number - 1 for number in held}
        return found

    def totals(self, *fields: Row) -> list[int]:
        words = self.words
        rows = range(words[HeadWord.ROWS])
        return [sum(words[row_at(row) + field] for row in rows) for field in fields]

    def hold_reader_lock(self) -> None:
        """Be the reader, until this process ends."""
        _try_lock(self.fd, _READER_LOCK)

    def is_reader_alive(self) -> bool:
        """Whether a process is the reader (not to be asked in the reader itself)."""
        return _is_locked(self.fd, _READER_LOCK)

    def take_row(self) -> int | None:
        """Hold a row that no living process holds; to be asked once in a process, to which its own locks look free."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX, 1, _CLAIM_LOCK)  # held for microseconds, and released with its process
        try:
            for row in range(MAX_ROWS):
                if _try_lock(self.fd, _ROW_LOCKS + row):
                    at = row_at(row) + Row.LEASES_AT
                    self.words[at : at + LEASES] = memoryview(bytes(8 * LEASES)).cast("q")
                    self.words[HeadWord.ROWS] = max(self.words[HeadWord.ROWS], row + 1)
                    return row
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, _CLAIM_LOCK)
        return None

    def close(self) -> None:
        """Close the descriptor; the mapping ends with the last view of it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


# struct flock: type, whence, start, length, pid; every field at its natural place, as in the kernel's headers
_FLOCK = "hhqqi4x"


def _try_lock(fd: int, at: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except OSError:
        return False
    return True


def _is_locked(fd: int, at: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK
