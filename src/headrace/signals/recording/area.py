"""The shared memory of a recording: one anonymous file that holds a lane of records for each process that takes part.

The recorder creates it; other processes open it through `/proc/<recorder>/fd/<n>`, as the environment variable
`HEADRACE_RECORDING` tells them. Nothing named is left behind, and the size of /dev/shm does not matter.

An event is a record of 32 bytes, here as on disk (`docs/reference/run-directory.md`). Here its last byte is the lap:
which round of the ring wrote it, 1 to 255; 0: being written. `struct` clears a record before it fills it: whoever reads
a record with the lap that it expects has all of it.
"""

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Self

from headrace.errors import NotSupported

from ..system import Fd, anonymous_file, lock_file, read_stat

RECORD = struct.Struct("<QQqIHBB")
RECORD_BYTES = RECORD.size
THREAD_AT = 28
MOST_LAPS = 255

# One record in 15 µs for half a second. 1 MiB a process, of which only pages that were written exist.
LANE_RECORDS = 1 << 15
# A node has up to 200 processors and as many workers; a lane nobody uses costs address space only.
NUM_LANES = 512
LANE_HEAD_BYTES = 32 << 10  # words, then names

_FREE, _CLAIMED = 0, 1  # states of a lane
_MAGIC = b"HRLANES2"
_HEAD = struct.Struct("<8sIIIQ")  # magic, lanes, records and bytes of each, token
_REFUSED_AT = 64  # in the head: processes that found no free lane
_STATES_AT = 128  # then a byte for each lane: whoever looks for lanes in use touches none of the others
_LANE_WORDS_BYTES = 128
_LONGEST_LOCK_WAIT_S = 2.0  # a claim takes 0.1 ms; a process that was stopped in one must not hold up a training
_MADV_POPULATE_WRITE = 23


class Word(IntEnum):
    """The words at the head of a lane, 8 bytes each."""

    PID = 0
    PARENT = 1
    BORN = 2  # the process's start in clock ticks since boot: a pid alone may come back
    CLAIMED_NS = 3
    CURSOR = 4  # records begun so far; only grows
    NAME_BYTES = 5
    NAMES_REFUSED = 6
    ROLE = 7  # the number of a name
    TASK_SINCE_NS = 8  # when a worker took the task that it has in hand; 0: none


class LaneMemory:
    """One lane of an area: its words, its names and its ring. Just memory; `Lane` writes, `RingReader` reads."""

    def __init__(self, memory: memoryview, number: int, num_records: int) -> None:
        self.number, self.num_records = number, num_records
        self.words = memory[:_LANE_WORDS_BYTES].cast("Q")
        self.names = memory[_LANE_WORDS_BYTES:LANE_HEAD_BYTES]
        self.ring = memory[LANE_HEAD_BYTES : LANE_HEAD_BYTES + num_records * RECORD_BYTES]


class Area:
    """The memory of a recording, in the process that created it or in one that found it."""

    _own = Fd(-1)  # of its creator alone: the area can be found as long as this is open

    def __init__(self, fd: int, place: str) -> None:
        self.place = place  # what `HEADRACE_RECORDING` says: where it is, and how to tell that it is this one
        self._path, _, token = place.rpartition(":")
        head = os.pread(fd, _HEAD.size, 0).ljust(_HEAD.size, b"\0")
        magic, self.num_lanes, self.lane_records, self.lane_bytes, found = _HEAD.unpack(head)
        if (magic, str(found)) != (_MAGIC, token):
            raise ValueError("not this area: the pid belongs to another process by now")
        self._head_bytes = _head_bytes(self.num_lanes)
        self._map = mmap.mmap(fd, self._head_bytes + self.num_lanes * self.lane_bytes, flags=mmap.MAP_SHARED)
        with contextlib.suppress(OSError, AttributeError):
            self._map.madvise(mmap.MADV_DONTDUMP)
        self.memory = memoryview(self._map)
        self._counts = self.memory[_REFUSED_AT : _REFUSED_AT + 8].cast("Q")
        self._states = self.memory[_STATES_AT : _STATES_AT + self.num_lanes]

    def __repr__(self) -> str:
        return f"Area(lanes={self.num_lanes}, records={self.lane_records}, in use={len(self.claimed())})"

    @classmethod
    def create(cls, *, num_lanes: int = NUM_LANES, lane_records: int = LANE_RECORDS) -> Self:
        """Make the memory of a new recording; `lane_records` is a power of two."""
        if not hasattr(os, "memfd_create"):
            raise NotSupported("recording needs Linux: its events lie in an anonymous memory file")
        # whole pages, so that a lane's memory can be given back
        lane_bytes = -(-(LANE_HEAD_BYTES + lane_records * RECORD_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        own = Fd(anonymous_file("headrace-recording"))  # which closes it, whatever comes in between
        os.ftruncate(own.fd, _head_bytes(num_lanes) + num_lanes * lane_bytes)
        token = int.from_bytes(os.urandom(7))
        os.pwrite(own.fd, _HEAD.pack(_MAGIC, num_lanes, lane_records, lane_bytes, token), 0)
        area = cls(own.fd, f"/proc/{own_pid()}/fd/{own.fd}:{token}")
        area._own = own
        return area

    @classmethod
    def find(cls, place: str) -> Self | None:
        """Open the area at a `place`; None: the recorder is gone, or of another PID namespace or user."""
        try:
            fd = os.open(place.rpartition(":")[0], os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return cls(fd, place)
        except (OSError, ValueError):
            return None
        finally:
            os.close(fd)

    def lane(self, number: int) -> LaneMemory:
        start = self._head_bytes + number * self.lane_bytes
        return LaneMemory(self.memory[start : start + self.lane_bytes], number, self.lane_records)

    def claim(self) -> LaneMemory | None:
        """Take a free lane for this process; None, and counted, where there is none."""
        with self._locked() as is_locked:
            if is_locked:
                number = bytes(self._states).find(_FREE)
                if number >= 0:
                    lane, pid = self.lane(number), own_pid()
                    lane.words[Word.PID], lane.words[Word.PARENT] = pid, os.getppid()
                    lane.words[Word.BORN] = read_birth(pid) or 0
                    lane.words[Word.CLAIMED_NS] = time.monotonic_ns()
                    self._states[number] = _CLAIMED  # last: a reader may look at once
                    return lane
            self._counts[0] += 1
        return None

    def free(self, lane: LaneMemory) -> None:
        """Give a lane to whoever comes next; its pages go back to the system and read as zeros."""
        with self._locked():
            start = self._head_bytes + lane.number * self.lane_bytes
            try:
                self._map.madvise(mmap.MADV_REMOVE, start, self.lane_bytes)
            except (OSError, AttributeError):  # a file system without holes
                self.memory[start : start + self.lane_bytes] = bytes(self.lane_bytes)
            self._states[lane.number] = _FREE

    def populate(self, lane: LaneMemory) -> None:
        """Have all pages of a lane at once, where the kernel can (Linux 5.14)."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._map.madvise(_MADV_POPULATE_WRITE, self._head_bytes + lane.number * self.lane_bytes, self.lane_bytes)

    def claimed(self) -> list[int]:
        return [number for number, state in enumerate(bytes(self._states)) if state]

    @property
    def num_refused(self) -> int:
        """How often a process found no free lane."""
        return self._counts[0]

    def close(self) -> None:
        """Close the descriptor. The mapping ends with the last view of it."""
        self._own.close()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the area's lock, through a file opened for it alone: `flock` is shared along a fork."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # the recorder is gone: nobody would read
            yield False
            return
        try:
            yield lock_file(fd, _LONGEST_LOCK_WAIT_S) is None
        finally:
            os.close(fd)


def own_pid() -> int:
    """The number of this process as /proc shows it, which the recorder sees too."""
    try:
        return int(os.readlink("/proc/self"))
    except (OSError, ValueError):
        return os.getpid()


def read_birth(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where it is gone or has ended (a zombie)."""
    stat = read_stat(pid)
    return None if stat is None or stat.has_ended else stat.born_ticks


def _head_bytes(num_lanes: int) -> int:
    return -(-(_STATES_AT + num_lanes) // mmap.PAGESIZE) * mmap.PAGESIZE
