"""Where a process writes its events: a lane of its own, which a fork exchanges for a new one."""

import os
import struct
import threading
import time
import weakref
from itertools import count, islice
from threading import get_ident

from headrace.model import EventKind, recording_place

from .area import LANE_HEAD_BYTES, MOST_LAPS, RECORD, RECORD_BYTES, THREAD_AT, Area, LaneMemory, Word

_MOST_U64 = (1 << 64) - 1
_MOST_I64 = (1 << 63) - 1
_MOST_U32 = (1 << 32) - 1
_MOST_U16 = (1 << 16) - 1
_pack_into = RECORD.pack_into
_SHIFT = RECORD_BYTES.bit_length() - 1
# to look up a member of an enumeration takes Python 3.11 a call of Python
_CURSOR, _TASK_SINCE_NS = int(Word.CURSOR), int(Word.TASK_SINCE_NS)
_LONGEST_NAME_BYTES = 1000
_MOST_NAMED_THREADS = 64
_SHORT_NS = 20_000_000  # what takes longer is written at once: 5 us are nothing to it, and it may be the last of a run
_KEPT_FOR_NS = 100_000_000
_MOST = 64  # a ring's reader allows for 128 that are under way
_FIELDS = 7
_UNFIT = (struct.error, TypeError, ValueError, OverflowError)  # and nothing that a signal handler raises
_BLOCK = struct.Struct("<" + RECORD.format.removeprefix("<") * _MOST)

_own: "Lane | None" = None
_opening = threading.Lock()
_alive: "weakref.WeakSet[Lane]" = weakref.WeakSet()


def open_lane(role: str = "") -> "Lane | None":
    """Return this process's lane; None where nothing records, so that a caller may skip all of its own work.

    A process has one lane: whoever asks again gets the same. `role` says what the process is ("trainer", "worker",
    "reader"); whoever says it first decides. After a fork the same `Lane` writes into a lane of the child's own, and
    the child has no role until it says one.
    """
    global _own
    with _opening:
        if _own is None:
            area = Area.find(recording_place() or "")
            lane = Lane(area) if area is not None else None
            if lane is None or not lane.is_recording:
                return None
            _own = lane
    if role:
        _own.set_role(role)
    return _own


def close_lane() -> None:
    """Stop recording in this process. Lanes that others hold go on to accept events, which go nowhere."""
    global _own
    with _opening:
        lane, _own = _own, None
    if lane is not None:
        lane.close()


class Lane:
    """A process's own ring of events in shared memory.

    Writing is a store: no system call, no lock, and nobody to wait for. Several threads may write at once; each
    takes the next number (`itertools.count` is one step of the interpreter) and fills the record of that number.
    """

    def __init__(self, area: Area) -> None:
        self._area: Area | None = area
        self._naming = threading.RLock()  # of a kind that a garbage collection in the middle may take again
        self._names: dict[str, int] = {}
        self._name_list = bytearray()
        self._claim_now()
        _alive.add(self)

    def __repr__(self) -> str:
        if not self.is_recording:
            return "Lane(not recording)"
        return f"Lane({self._memory.number}, records={self._words[Word.CURSOR]}, names={len(self._names)})"

    @property
    def is_recording(self) -> bool:
        """Whether what is written goes anywhere: the area may have had no free lane for this process."""
        return self._is_recording or self._is_unclaimed

    def write(self, kind: int, start_ns: int, duration_ns: int, value: int = 0, arg: int = 0) -> None:
        """Record an event. Never raises or waits: numbers that do not fit are clamped, what is no number becomes 0."""
        thread = self._threads.get(get_ident())
        if thread is None:
            thread = self.thread_number()
        number = self._next()
        place, lap = (number & self._mask) << _SHIFT, (number >> self._ring_bits) % MOST_LAPS + 1
        try:
            _pack_into(self._ring, place, start_ns, duration_ns, value, arg, thread, kind, lap)
        except _UNFIT:
            start_ns, duration_ns = _clamp(start_ns, 0, _MOST_U64), _clamp(duration_ns, 0, _MOST_U64)
            value, arg, kind = _clamp(value, -_MOST_I64, _MOST_I64), _clamp(arg, 0, _MOST_U32), _clamp(kind, 0, 255)
            _pack_into(self._ring, place, start_ns, duration_ns, value, arg, thread, kind, lap)
        self._words[_CURSOR] = number + 1

    def mark_task(self, since_ns: int) -> None:
        """Say when the task was taken that is in hand; 0: none is. One store, seen at once whatever is kept back."""
        self._words[_TASK_SINCE_NS] = since_ns

    def write_block(self, block: bytearray, num_records: int, thread: int) -> None:
        """Record events of one thread that are packed already (`RECORD`), with 0 for thread and lap."""
        numbers = list(islice(self._counter, num_records))  # one step of the interpreter: no gaps
        size = self._mask + 1
        if thread:
            for at, byte in enumerate(thread.to_bytes(2, "little"), THREAD_AT):
                block[at : num_records << _SHIFT : RECORD_BYTES] = bytes((byte,)) * num_records
        done = 0
        while done < num_records:  # once, or twice where the ring ends in between
            number = numbers[done]
            start = number & self._mask
            count = min(num_records - done, size - start)
            place = self._ring[start << _SHIFT : (start + count) << _SHIFT]
            place[:] = block[done << _SHIFT : (done + count) << _SHIFT]  # lap 0: not whole yet
            place[RECORD_BYTES - 1 :: RECORD_BYTES] = bytes(((number >> self._ring_bits) % MOST_LAPS + 1,)) * count
            done += count
        self._words[_CURSOR] = numbers[-1] + 1

    def name(self, text: str) -> int:
        """The number of a name in this lane, for `arg`. Written once; 0 where there is no room for more names."""
        number = self._names.get(text)
        if number is None:
            with self._naming:
                number = self._names.get(text)
                if number is None:
                    number = self._names[text] = self._add_name(text)
        return number

    def set_role(self, role: str) -> None:
        """Say what this process is, unless that was said before."""
        with self._naming:
            if self._is_unclaimed:
                self._claim_now()
        if not self._words[Word.ROLE]:
            number = self.name(role)
            self._words[Word.ROLE] = number
            self.write(EventKind.PROCESS, time.monotonic_ns(), 0, self._words[Word.PID], number)

    def populate(self) -> None:
        """Have the ring's pages now: one by one, a writer of many events would wait 30 us for every 128 of them."""
        if self._area is not None and self._is_recording:
            self._area.populate(self._memory)

    def close(self) -> None:
        """Write no more; what was written stays for the recorder. Safe to call twice."""
        _alive.discard(self)
        self._is_unclaimed = False
        self._use(None)
        area, self._area = self._area, None
        if area is not None:
            area.close()

    def _claim_now(self) -> None:
        self._is_unclaimed = False
        self._use(self._area.claim() if self._area is not None else None)
        self._threads = {threading.main_thread().ident: 0}

    def _use(self, claimed: LaneMemory | None) -> None:
        """Write there; None: events fall into one private record, for writers do not ask whether anything records."""
        memory = claimed or LaneMemory(memoryview(bytearray(LANE_HEAD_BYTES + RECORD_BYTES)), -1, 1)
        self._memory, self._ring, self._words = memory, memory.ring, memory.words
        self._mask, self._ring_bits = memory.num_records - 1, memory.num_records.bit_length() - 1
        self._counter = count(self._words[Word.CURSOR])
        self._next = self._counter.__next__
        self._is_recording = claimed is not None
        # numbers of names that were asked for before the fork hold in the child too
        memory.names[: len(self._name_list)] = self._name_list
        self._words[Word.NAME_BYTES] = len(self._name_list)

    def _after_fork(self) -> None:
        """In a child: take a lane of its own, but not before there is something to write."""
        self._naming = threading.RLock()
        self._use(None)
        self._threads = {}  # so that the first event goes the careful way, and claims there
        self._is_unclaimed = True

    def thread_number(self) -> int:
        """Return the number of the calling thread in this lane."""
        with self._naming:
            if self._is_unclaimed:
                self._claim_now()
            ident = get_ident()
            number = self._threads.get(ident)
            if number is not None:
                return number
            number = self._threads[ident] = min(len(self._threads), _MOST_U16)
        # a program may start a thread for every sample: their names would fill the lane
        named = self.name(threading.current_thread().name) if number < _MOST_NAMED_THREADS else 0
        self.write(EventKind.THREAD, time.monotonic_ns(), 0, threading.get_native_id(), named)
        return number

    def _add_name(self, text: str) -> int:
        """Append a name to the lane's list: a length in two bytes, then UTF-8."""
        data = text.encode("utf-8", "replace")[:_LONGEST_NAME_BYTES]
        start = len(self._name_list)
        if start + 2 + len(data) > len(self._memory.names):
            self._words[Word.NAMES_REFUSED] += 1
            return 0
        self._name_list += len(data).to_bytes(2, "little") + data
        self._memory.names[start : len(self._name_list)] = self._name_list[start:]
        self._words[Word.NAME_BYTES] = len(self._name_list)  # last: a reader sees whole names only
        return 1 + max(self._names.values(), default=0)


class KeptEvents:
    """Keeps the short events of the thread that makes it, and passes on all others at once, and the `first` ones.

    After a kernel that went through megabytes, whatever Python touches has to come back from memory: to write an event
    costs 5 us there, and some tenths of a microsecond right after another one. So a loop's events go to a list, and
    from there to the lane together: when it is full, with an event that is not short, a tenth of a second after the
    oldest, and at the end. Of a process that is killed these are missing (`Lane.mark_task` tells of its task all the
    same); of one that dies soon, the first ones are there. (To pack each at once costs 2 us more after a kernel.)
    """

    def __init__(self, lane: Lane, *, first: int = 0, populates: bool = True) -> None:
        self._lane, self._thread, self._thread_number = lane, get_ident(), lane.thread_number()
        if populates:
            lane.populate()
        self._values: list[int] = []
        self._first = first
        self._until_ns = 0  # events that begin later are not kept with these
        self._block = bytearray(_BLOCK.size)

    def __repr__(self) -> str:
        return f"KeptEvents({len(self._values) // _FIELDS} of {_MOST})"

    def keep(self, kind: int, start_ns: int, duration_ns: int, value: int = 0, arg: int = 0) -> None:
        """Record an event, as `Lane.write` does, now or somewhat later."""
        values = self._values
        if (
            duration_ns < _SHORT_NS
            and start_ns <= self._until_ns
            and len(values) < _FIELDS * _MOST
            and get_ident() == self._thread
        ):
            values += (start_ns, duration_ns, value, arg, 0, kind, 0)
        elif get_ident() != self._thread:
            self._lane.write(kind, start_ns, duration_ns, value, arg)
        else:
            self.write()
            self._first -= 1
            if duration_ns < _SHORT_NS and self._first < 0:
                self._until_ns = start_ns + _KEPT_FOR_NS
                self._values += (start_ns, duration_ns, value, arg, 0, kind, 0)
            else:
                self._lane.write(kind, start_ns, duration_ns, value, arg)

    def write(self) -> None:
        """Write what was kept: in the thread that keeps, or when it does no more."""
        values, self._values = self._values, []  # first: a ^C in the middle must not have them written twice
        self._until_ns = 0
        count = len(values) // _FIELDS
        if not count:
            return
        try:
            _BLOCK.pack_into(self._block, 0, *values, *(0,) * (_FIELDS * (_MOST - count)))
        except _UNFIT:  # the lane knows what to do
            for at in range(0, len(values), _FIELDS):
                start_ns, duration_ns, value, arg, _, kind, _ = values[at : at + _FIELDS]
                self._lane.write(kind, start_ns, duration_ns, value, arg)
            return
        self._lane.write_block(self._block, count, self._thread_number)


def _renew_lanes() -> None:
    global _opening
    _opening = threading.Lock()  # another thread of the parent may have held it
    for lane in list(_alive):
        lane._after_fork()


os.register_at_fork(after_in_child=_renew_lanes)


def _clamp(number: object, least: int, most: int) -> int:
    """Whatever was given, as a whole number that fits; 0 for what is no number."""
    try:
        return max(least, min(most, int(number)))  # type: ignore[call-overload,no-any-return]  # that is what is tried
    except (TypeError, ValueError, OverflowError):
        return 0
