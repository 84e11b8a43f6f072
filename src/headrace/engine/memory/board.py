"""The control words that all processes of one loader share, and who may write which.

Everything is a 64-bit word, written by one side at a time, so no word is ever half-seen. Each is written in one folder,
as the table of owners in ARCHITECTURE.md says. A worker binds a free slot under the lock; the training process frees it
with one store, without the lock.

The lock is a record lock of the kernel: it goes when its holder dies, and the training process never waits for it
without a limit. Each batch has a word a row, which says whether the row is done: whatever a dead worker left half
counted is counted anew from those (`recovery`).
"""

import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator

from headrace.model import STAGE_TABLE_WORDS

MAX_WORKERS = 256
MAX_SLOTS = 512
MAX_ENTRIES = 1024
MAX_LAYOUTS = 64
HISTOGRAM_BUCKETS = 160


# Plain classes of plain integers: a member of an IntEnum costs ten times as much, and workers look at dozens a sample.
class Head:
    """Words of the board's first line."""

    RUN = 0  # the current epoch's number; chunks of another run are dropped
    STOP = 1  # 1: every worker ends before its next sample
    NUM_LAYOUTS = 2  # how many layouts are published
    NUM_SLOTS = 3  # how many slots exist
    DRAWS = 4  # 1: the data set draws from a global random generator
    RECORD = 5  # 1: workers keep times and histograms
    URGENT = 6  # 1: look into the urgent pipe before the other
    HOLD = 8  # 1: serve only what comes through the urgent pipe
    LOSSES = 7  # workers lost so far; above 0, a chunk may be in somebody's hands twice
    TRIM = 9  # raised by one: every worker returns the memory of blocks that nobody uses
    NEXT = 10  # the batch that the loop asks for, or asked for last
    BATCH_BYTES = 11  # the largest batch on the general path that there may be, by what was seen of batches and samples
    OPEN = 12  # 1: nobody waits for room in the budget, whatever is in it
    NUM_RECORDS = 13  # workers' records that were ever in use
    PLENTY = 14  # 1: there is a slot for each batch in flight
    REISSUED = 15  # 1: something was given out again, behind what workers may have in hand already
    WORDS = 16


class Entry:
    """Words of a batch in flight."""

    SEQ = 0
    RUN = 1
    NUM_ROWS = 2
    FIRST_POSITION = 3
    BASE_SEED = 4
    PAYLOAD = 5  # offset of the block with the indices
    PLACE = 6  # UNBOUND, GENERAL, or layout and slot in one word, so that they are seen together
    QUIET_ROWS = 7  # rows that are in the slot and not told of yet
    ROWS_DONE = 8  # rows that are accounted for, in whatever way
    FAILED = 9  # 1: a sample of it raised
    LAST = 10  # worker + 1 of the one that finished the last row: it collates, or tells of the quiet rows
    ROW_WORDS = 11  # where the words of its rows begin, counted in words from the start of the arena
    CLOSED = 12  # 1: it is collated, and takes no more room
    WORDS = 16


# The word of a row. 0 or below: not done, and minus the number of its chunk's earlier tries. Above `TOLD`: on the
# general path, the block of a chunk that begins with this row.
QUIET, TOLD = 1, 2  # done, in the slot: with nothing to say of it; with an answer of its own


class Slot:
    """Words of a slot."""

    OFFSET = 0
    SIZE = 1
    STATE = 2
    WORDS = 4


class Record:
    """Words of a worker's own record."""

    PID = 0
    STATE = 1
    SEQ = 2
    ROW = 3
    ROWS = 4
    POSITION = 5  # the sample in hand; NO_SAMPLE, or COLLATING a batch
    SAMPLE_START_NS = 6
    SAMPLES_DONE = 7
    CHUNKS_DONE = 8
    BUSY_NS = 9
    BYTES = 10
    FAULTS = 11
    START_NS = 12
    COST_NS = 13  # running mean of a sample's service time
    CPU_NS = 14  # processor time of the first chunks
    CPU_OF_NS = 18  # the time of those chunks
    LEAST_FETCH_NS = 19  # what a sample takes to fetch at best, without placing it
    SPAN = 20  # how many samples are in hand at once, from POSITION on
    THREAD = 22  # the kernel's number of its thread
    GO = 21  # 1: end before the next chunk; written by the training process
    WEIGH = 23  # 1: look what memory you hold after this chunk; written by the training process
    HOLDINGS = 24  # three words: when it looked (0: not yet), and what it held, of its heap and shared
    PROMISED = 30  # bytes of a block that it is writing: they are no pages of the arena yet
    WAITS = 31  # 1: it has something for a block, and waits for room in the budget
    WORDS = 32


NO_SAMPLE, COLLATING = -1, -2
UNBOUND, GENERAL = -1, -2
FREE, BOUND, LEASED, RETIRED = 0, 1, 2, 3
STARTING, IDLE, BUSY, ENDED = 0, 1, 2, 3
WORKER_STATES = ("starting", "idle", "busy", "ended")


def join_place(layout: int, slot: int) -> int:
    return layout * MAX_SLOTS + slot


def split_place(place: int) -> tuple[int, int]:
    """Layout and slot of a bound place."""
    return divmod(place, MAX_SLOTS)


_ENTRIES_AT = Head.WORDS
_SLOTS_AT = _ENTRIES_AT + MAX_ENTRIES * Entry.WORDS
_LAYOUTS_AT = _SLOTS_AT + MAX_SLOTS * Slot.WORDS
_RECORDS_AT = _LAYOUTS_AT + MAX_LAYOUTS  # a word each: the block of a published layout
_HISTOGRAMS_AT = _RECORDS_AT + MAX_WORKERS * Record.WORDS
_STAGES_AT = _HISTOGRAMS_AT + MAX_WORKERS * HISTOGRAM_BUCKETS
BOARD_BYTES = (_STAGES_AT + MAX_WORKERS * STAGE_TABLE_WORDS) * 8


class BoardLock:
    """A lock between workers of any process, and between threads of one; a thread may take it twice."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._threads = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._threads.acquire()
        if not self._depth:
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, 0)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, 0)
        self._threads.release()

    @contextlib.contextmanager
    def within(self, timeout_s: float) -> Iterator[bool]:
        """Hold the lock without trusting its holder to let go; False: it could not be had."""
        is_held = self._try_for(timeout_s)
        try:
            yield is_held
        finally:
            if is_held:
                self.__exit__()

    def _try_for(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            if self._threads.acquire(blocking=False):
                try:
                    if not self._depth:
                        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                    self._depth += 1
                    return True
                except OSError:
                    self._threads.release()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0002)


class Board:
    """Reads and writes the control words at the start of the arena."""

    def __init__(self, memory: memoryview) -> None:
        self.words = memory[:BOARD_BYTES].cast("q")

    @staticmethod
    def entry_at(seq: int) -> int:
        return _ENTRIES_AT + (seq % MAX_ENTRIES) * Entry.WORDS

    @staticmethod
    def record_at(worker: int) -> int:
        return _RECORDS_AT + worker * Record.WORDS

    @staticmethod
    def slot_at(slot: int) -> int:
        return _SLOTS_AT + slot * Slot.WORDS

    @staticmethod
    def histogram_at(worker: int) -> int:
        return _HISTOGRAMS_AT + worker * HISTOGRAM_BUCKETS

    @staticmethod
    def stages_at(worker: int) -> int:
        return _STAGES_AT + worker * STAGE_TABLE_WORDS

    def add_slot(self, offset: int, size: int) -> None:
        """Offer one more slot to workers; only the training process calls this."""
        slot = self.words[Head.NUM_SLOTS]
        at = self.slot_at(slot)
        self.words[at + Slot.OFFSET] = offset
        self.words[at + Slot.SIZE] = size
        self.words[at + Slot.STATE] = FREE
        self.words[Head.NUM_SLOTS] = slot + 1

    def bind_slot(self, need: int) -> int:
        """Take the lowest free slot of at least `need` bytes, or GENERAL; call it under the lock.

        The lowest, so that only as many slots are ever touched as were in use at one moment.
        """
        w = self.words
        for slot in range(w[Head.NUM_SLOTS]):
            at = _SLOTS_AT + slot * Slot.WORDS
            if w[at + Slot.STATE] == FREE and w[at + Slot.SIZE] >= need:
                w[at + Slot.STATE] = BOUND
                return slot
        return GENERAL

    def num_free_slots(self, need: int) -> int:
        """Slots of at least `need` bytes that nobody uses."""
        w = self.words
        ats = (_SLOTS_AT + slot * Slot.WORDS for slot in range(w[Head.NUM_SLOTS]))
        return sum(w[at + Slot.STATE] == FREE and w[at + Slot.SIZE] >= need for at in ats)

    def num_unbound_before(self, seq: int) -> int:
        """Batches before this one that have not begun."""
        w = self.words
        earlier = ((number, self.entry_at(number)) for number in range(max(w[Head.NEXT], seq - MAX_ENTRIES), seq))
        return sum(
            w[at + Entry.PLACE] == UNBOUND and w[at + Entry.SEQ] == number and w[at + Entry.RUN] == w[Head.RUN]
            for number, at in earlier
        )

    def free_unreferenced_slots(self, held: set[int]) -> None:
        """Free the slots that a dead worker bound to nothing; call it under the lock. `held`: those of batches."""
        for slot in range(self.words[Head.NUM_SLOTS]):
            at = self.slot_at(slot)
            if self.words[at + Slot.STATE] == BOUND and slot not in held:
                self.words[at + Slot.STATE] = FREE

    def expect_batch(self, size: int) -> None:
        """Batches on the general path may be as large as this."""
        if size > self.words[Head.BATCH_BYTES]:  # noqa: PLR1730  (most often there is nothing to store)
            self.words[Head.BATCH_BYTES] = size

    def publish_layout(self, block: int) -> None:
        number = self.words[Head.NUM_LAYOUTS]
        self.words[_LAYOUTS_AT + number] = block
        self.words[Head.NUM_LAYOUTS] = number + 1

    def layout_block(self, number: int) -> int:
        return self.words[_LAYOUTS_AT + number]
