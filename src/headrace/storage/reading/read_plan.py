"""What the reader reads next, and how much at a time. Pure: no files, memory, threads or clocks.

Extents come in the order in which they will be needed. The most urgent one that is nowhere yet starts a block, and what
lies beside it in the file and is needed soon joins it. A block holds its bytes until everything that was planned in
it was used, or will not be used any more. Blocks that are in flight or wait for their use take `depth` times
`block_bytes` at most; those that were used and are still referred to come on top, and are the driver's to tell.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

PAGE = 4096
# what was used is marked by the granule in which it begins; members of a tar begin at multiples of this
GRANULE = 512
MAX_BLOCKS = 1024
# the first block holds little more than the first sample, so that it is there soon; each further one twice as much
_FIRST_JOIN_BYTES = 128 << 10
# what is read along between two extents: at 100 MB/s it takes less time than the way to a new place
_GAP_BYTES = 64 << 10
# a rate must be this much higher: less is noise between two periods
_BETTER = 1.05
# workers that spend less of their time waiting for bytes would not be quicker with more
_WAITING_SHARE = 0.02
# periods after which a depth that brought nothing is tried again: storage that is shared changes
_TRY_AGAIN_PERIODS = 60
_OTHER = 1.5  # a rate that is so many times what it was, or less of it, is of storage that has changed
_QUIET_PERIODS = 20


def page_down(size: int) -> int:
    return size // PAGE * PAGE


def page_up(size: int) -> int:
    return -(-size // PAGE) * PAGE


class Space:
    """Takes and gives back runs of pages; neighbours that are free are one run again."""

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, page_down(size))]

    def take(self, size: int) -> int | None:
        """The start of a run of at least `size` bytes; None where no run is that long."""
        size = page_up(size)
        for at, (start, room) in enumerate(self._free):
            if room >= size:
                self._free[at : at + 1] = [(start + size, room - size)] if room > size else []
                return start
        return None

    def give_back(self, start: int, size: int) -> None:
        size = page_up(size)
        at = bisect_left(self._free, (start, 0))
        if at < len(self._free) and self._free[at][0] == start + size:
            size += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == start:
            at -= 1
            before, room = self._free.pop(at)
            start, size = before, room + size
        self._free.insert(at, (start, size))


class BlockState(Enum):
    IN_FLIGHT = "in flight"
    READY = "ready"
    RETIRING = "retiring"  # nothing is planned in it any more; its memory may still be referred to


class Read(NamedTuple):
    """One read to do now: `size` bytes of a file at `offset`, to `place` in the blocks' memory."""

    block: int
    path: str
    offset: int
    size: int
    place: int


@dataclass(slots=True)
class Block:
    """A run of bytes of a file, and its place in memory."""

    number: int
    path: str
    start: int
    end: int
    place: int
    state: BlockState = BlockState.IN_FLIGHT
    # by granule: how often bytes that begin in it are planned, and in which batch for the last time
    needs: dict[int, tuple[int, int]] = field(default_factory=dict)
    last_byte: int = 0  # up to here it is needed; what follows only fills the page
    valid_end: int = 0  # up to here the file has bytes
    reads_left: int = 1
    is_failed: bool = False
    was_used: bool = False
    marks: bytes = b""  # what workers had marked when it was looked at last

    @property
    def size(self) -> int:
        return self.end - self.start

    def claim(self, offset: int, size: int, seq: int) -> None:
        granule = (offset - self.start) // GRANULE
        count, last_seq = self.needs.get(granule, (0, seq))
        self.needs[granule] = count + 1, max(last_seq, seq)
        self.last_byte = max(self.last_byte, offset + size)


class _Wanted(NamedTuple):
    path: str
    offset: int
    size: int
    seq: int
    at: int  # bytes that were planned before it


class ReadPlan:
    """What to read next, and which blocks may go."""

    def __init__(self, *, depth: int, block_bytes: int, space_bytes: int, gap_bytes: int = _GAP_BYTES) -> None:
        self.depth, self.block_bytes, self._gap_bytes = depth, block_bytes, gap_bytes
        self._space = Space(space_bytes)
        self._numbers = list(reversed(range(MAX_BLOCKS)))
        self.blocks: dict[int, Block] = {}
        self._starts: dict[str, list[tuple[int, int]]] = {}  # path -> (start, number) of blocks that may be used
        self._wanted: dict[int, _Wanted] = {}  # by ticket, in the order of need
        self._by_path: dict[str, list[tuple[int, int]]] = {}  # path -> (offset, ticket) of what is wanted
        self._ticket = self._planned_bytes = 0
        self._join_bytes = min(_FIRST_JOIN_BYTES, block_bytes)
        self._reads: deque[Read] = deque()
        self.in_flight = 0
        self.claimed_bytes = 0  # of blocks in flight, or that wait for their use
        self.vain_bytes = 0  # read, and never used
        self._passed = -1

    @property
    def capacity_bytes(self) -> int:
        return self.depth * self.block_bytes

    @property
    def is_held_up(self) -> bool:
        """Whether something is wanted that could not be begun: there is no room, or the depth is reached."""
        return bool(self._wanted or self._reads)

    def add(self, seq: int, extents: Iterable[tuple[str, int, int]]) -> None:
        """Plan the extents of a batch, in the order of their need. `seq` grows from batch to batch."""
        if seq <= self._passed:
            return
        for path, offset, size in extents:
            if size <= 0 or offset < 0:
                continue
            self._planned_bytes += size
            if self._claim(path, offset, size, seq):
                continue
            self._ticket += 1
            self._wanted[self._ticket] = _Wanted(path, offset, size, seq, self._planned_bytes - size)
            insort(self._by_path.setdefault(path, []), (offset, self._ticket))

    def _claim(self, path: str, offset: int, size: int, seq: int) -> bool:
        """Plan the use of a block that is there or on its way; False where there is none that holds the extent."""
        starts = self._starts.get(path)
        if not starts:
            return False
        right = bisect_right(starts, (offset, 1 << 62))
        for start, number in reversed(starts[max(0, right - 2) : right]):
            block = self.blocks[number]
            if start <= offset and offset + size <= block.valid_end:
                block.claim(offset, size, seq)
                return True
        return False

    def passed(self, seq: int) -> list[Block]:
        """All batches up to this one are over: what was planned for them will not be used. Returns blocks to retire."""
        if seq <= self._passed:
            return []
        self._passed = seq
        over = [ticket for ticket, wanted in self._wanted.items() if wanted.seq <= seq]
        for ticket in over:
            self._drop(ticket)
        gone = []
        for block in list(self.blocks.values()):
            if block.state is BlockState.RETIRING:
                continue
            for granule in [g for g, (_, last_seq) in block.needs.items() if last_seq <= seq]:
                del block.needs[granule]
            if not block.needs and block.state is BlockState.READY:
                gone.append(self._retire(block))
        return gone

    def read_elsewhere(self, path: str, offset: int) -> None:
        """A worker has read an extent itself: it need not be read again, if that has not begun."""
        listed = self._by_path.get(path, [])
        at = bisect_left(listed, (offset, 0))
        if at < len(listed) and listed[at][0] == offset:
            self._drop(listed[at][1])

    def _drop(self, ticket: int) -> _Wanted:
        wanted = self._wanted.pop(ticket)
        listed = self._by_path[wanted.path]
        listed.pop(bisect_left(listed, (wanted.offset, ticket)))
        if not listed:
            del self._by_path[wanted.path]
        return wanted

    def next_reads(self) -> list[Read]:
        """The reads to begin now, most urgent first; `blocks` has their blocks."""
        begun = []
        while self.in_flight < self.depth and (self._reads or self._begin_block()):
            begun.append(self._reads.popleft())
            self.in_flight += 1
        return begun

    def _begin_block(self) -> bool:
        while self._wanted:
            ticket, wanted = next(iter(self._wanted.items()))
            if self._claim(wanted.path, wanted.offset, wanted.size, wanted.seq):
                self._drop(ticket)
            elif page_up(wanted.offset + wanted.size) - page_down(wanted.offset) > self.capacity_bytes:
                self._drop(ticket)  # too large: a worker reads it by itself
            else:
                return self._begin(*self._join(ticket, wanted)) or self._begin(
                    page_down(wanted.offset), page_up(wanted.offset + wanted.size), [ticket]
                )
        return False

    def _join(self, ticket: int, wanted: _Wanted) -> tuple[int, int, list[int]]:
        """The most urgent extent, with what lies beside it and is needed soon."""
        listed = self._by_path[wanted.path]
        at = bisect_left(listed, (wanted.offset, ticket))
        start, end = page_down(wanted.offset), page_up(wanted.offset + wanted.size)
        # what is needed later than half of what fits would keep the memory of what is needed before it
        horizon = wanted.at + max(self.capacity_bytes // 2, self._join_bytes)
        tickets = [ticket]
        for _, other in listed[at + 1 :]:
            next_one = self._wanted[other]
            new_end = max(end, page_up(next_one.offset + next_one.size))
            if next_one.offset > end + self._gap_bytes or new_end - start > self._join_bytes:
                break
            if next_one.at <= horizon:
                end = new_end
                tickets.append(other)
        for _, other in reversed(listed[:at]):
            before = self._wanted[other]
            if (
                before.offset + before.size < start - self._gap_bytes
                or end - page_down(before.offset) > self._join_bytes
            ):
                break
            if before.at <= horizon and before.offset + before.size <= end:
                start = page_down(before.offset)
                tickets.append(other)
        return start, end, tickets

    def _begin(self, start: int, end: int, tickets: list[int]) -> bool:
        size = end - start
        if not self._numbers or (self.claimed_bytes and self.claimed_bytes + size > self.capacity_bytes):
            return False
        place = self._space.take(size)
        if place is None:
            return False
        path = self._wanted[tickets[0]].path
        block = Block(self._numbers.pop(), path, start, end, place, valid_end=end)
        self.blocks[block.number] = block
        insort(self._starts.setdefault(path, []), (start, block.number))
        self.claimed_bytes += size
        for ticket in tickets:
            wanted = self._drop(ticket)
            block.claim(wanted.offset, wanted.size, wanted.seq)
        # an extent larger than a block is read in several pieces at once
        offsets = range(start, end, self.block_bytes)
        block.reads_left = len(offsets)
        for offset in offsets:
            piece = min(self.block_bytes, end - offset)
            self._reads.append(Read(block.number, path, offset, piece, place + offset - start))
        self._join_bytes = min(self.block_bytes, 2 * max(self._join_bytes, size))
        return True

    def done(self, read: Read, got: int | None) -> Block | None:
        """A read has ended and brought `got` bytes, fewer than asked for only where the file ends; None: it failed.

        Returns the block once all its reads have ended: it is ready, or, if it failed or nobody needs it, retiring.
        """
        block = self.blocks[read.block]
        self.in_flight -= 1
        block.reads_left -= 1
        if got is None:
            block.is_failed = True
        elif got < read.size:
            block.valid_end = min(block.valid_end, read.offset + got)
        if block.reads_left:
            return None
        block.is_failed = block.is_failed or block.valid_end < block.last_byte
        block.state = BlockState.READY
        if block.is_failed or not block.needs:
            self._retire(block)
        return block

    def used(self, number: int, marks: bytes) -> bool:
        """What workers have marked in a ready block, a byte for each granule. True: it has become a block to retire."""
        block = self.blocks[number]
        if block.state is not BlockState.READY or marks == block.marks:
            return False
        block.marks = marks
        block.was_used = block.was_used or marks.count(0) < len(marks)
        for granule in [g for g, (count, _) in block.needs.items() if marks[g] >= min(count, 255)]:
            del block.needs[granule]
        if block.needs:
            return False
        self._retire(block)
        return True

    def _retire(self, block: Block) -> Block:
        block.state = BlockState.RETIRING
        block.needs.clear()
        self.claimed_bytes -= block.size
        starts = self._starts[block.path]
        starts.pop(bisect_left(starts, (block.start, block.number)))
        if not starts:
            del self._starts[block.path]
        if not block.was_used and not block.is_failed:
            self.vain_bytes += block.size
        return block

    def gone(self, number: int) -> None:
        """Nothing refers to a retiring block any more: its memory and number are free."""
        block = self.blocks.pop(number)
        assert block.state is BlockState.RETIRING
        self._space.give_back(block.place, block.size)
        self._numbers.append(number)

    @property
    def ready(self) -> list[Block]:
        return [block for block in self.blocks.values() if block.state is BlockState.READY]


class FilePlan:
    """Files in the order of their need, `depth` of them at a time, no more than `ahead_bytes` before their use.

    More than that would push others out of the cache before they are used.
    """

    def __init__(self, *, depth: int, ahead_bytes: int) -> None:
        self.depth, self._ahead_bytes = depth, ahead_bytes
        self._wanted: deque[tuple[int, str]] = deque()
        self._ahead: dict[int, int] = {}  # batch -> bytes that were brought for it
        self._passed = -1
        self.in_flight = 0

    @property
    def is_held_up(self) -> bool:
        return bool(self._wanted)

    def add(self, seq: int, paths: Iterable[str]) -> None:
        """Plan the files of a batch, in the order of their need. `seq` grows from batch to batch."""
        if seq > self._passed:
            self._wanted.extend((seq, path) for path in paths)

    def passed(self, seq: int) -> None:
        """All batches up to this one are over."""
        if seq <= self._passed:
            return
        self._passed = seq
        while self._wanted and self._wanted[0][0] <= seq:
            self._wanted.popleft()
        for over in [s for s in self._ahead if s <= seq]:
            del self._ahead[over]

    def next_files(self) -> list[tuple[int, str]]:
        begun = []
        while self._wanted and self.in_flight < self.depth and sum(self._ahead.values()) < self._ahead_bytes:
            begun.append(self._wanted.popleft())
            self.in_flight += 1
        return begun

    def done(self, seq: int, size: int) -> None:
        self.in_flight -= 1
        if seq > self._passed:
            self._ahead[seq] = self._ahead.get(seq, 0) + size


class ReadDepth:
    """Grows the depth while more of it brings more bytes and workers wait for them; where nobody waits, it falls again.

    >>> depth = ReadDepth(2, most=64)
    >>> busy = dict(waiting_share=0.5, full_share=1.0)
    >>> [depth.next(bytes_per_s=rate, **busy) for rate in (100e6, 150e6, 151e6, 150e6)]
    [4, 8, 4, 4]
    >>> [depth.next(bytes_per_s=rate, **busy) for rate in (300e6, 310e6, 600e6)]  # storage that is shared changes
    [8, 4, 8]
    """

    def __init__(self, depth: int, *, most: int) -> None:
        self.depth, self._least, self._most = depth, depth, most
        self._before: tuple[int, float] | None = None  # the depth below this one on trial, and its rate
        self._rest, self._rest_rate = 0, 0.0  # periods to stay as it is, and the rate for which that holds
        self._quiet = 0  # periods in which nobody waited, and reads did not stand in line

    def next(self, *, bytes_per_s: float, waiting_share: float, full_share: float) -> int:
        """The depth for the next period, after one at this depth.

        `waiting_share` is that of the workers' time that they waited for bytes, `full_share` that of the moments looked
        at in which all reads that may be in flight were.
        """
        if self._before is not None:
            below, rate = self._before
            self._before = None
            if bytes_per_s < rate * _BETTER:
                self.depth, self._rest, self._rest_rate = below, _TRY_AGAIN_PERIODS, rate
                return self.depth
        if not 1 / _OTHER < bytes_per_s / max(1.0, self._rest_rate) < _OTHER:
            self._rest = 0
        self._quiet = self._quiet + 1 if waiting_share < _WAITING_SHARE and full_share < 0.5 else 0
        if self._quiet >= _QUIET_PERIODS:
            self.depth, self._quiet = max(self._least, self.depth // 2), 0
        if self._rest:
            self._rest -= 1
        elif waiting_share >= _WAITING_SHARE and full_share >= 0.5 and self.depth < self._most:
            self._before = self.depth, bytes_per_s
            self.depth = min(self._most, 2 * self.depth)
        return self.depth
