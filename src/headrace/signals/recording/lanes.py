"""Where a process writes its events: a lane of its own, which a fork exchanges for a new one."""

from __future__ import annotations

import os
import threading
import time
import weakref
from itertools import count, islice
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace.model import EventKind

from .area import LANE_HEAD_BYTES, Area, LaneMemory, Word, attach_from_environment
from .records import (
    MOST_I64,
    MOST_LAPS,
    MOST_U16,
    MOST_U32,
    MOST_U64,
    RECORD,
    RECORD_BYTES,
    THREAD_AT,
    clamp,
    record_dtype,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_pack_into = RECORD.pack_into
_SHIFT = RECORD_BYTES.bit_length() - 1
# to look up a member of an enumeration takes Python 3.11 a call of Python
_CURSOR, _TASK_SINCE_NS = int(Word.CURSOR), int(Word.TASK_SINCE_NS)
_LONGEST_NAME_BYTES = 1000
_MOST_NAMED_THREADS = 64

_own: Lane | None = None
_opening = threading.Lock()
_alive: weakref.WeakSet[Lane] = weakref.WeakSet()


def open_lane(role: str = "") -> Lane | None:
    """Return this process's lane; None where nothing records, so that a caller may skip all of its own work.

    A process has one lane: whoever asks again gets the same. `role` says what the process is ("trainer", "worker",
    "reader"); whoever says it first decides. After a fork the same `Lane` writes into a lane of the child's own, and
    the child has no role until it says one.
    """
    global _own
    with _opening:
        if _own is None:
            area = attach_from_environment()
            if area is None:
                return None
            lane = Lane(area)
            if not lane.is_recording:
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

    # ------------------------------------------------------------------------------------------- events

    def write(self, kind: int, start_ns: int, duration_ns: int, value: int = 0, arg: int = 0) -> None:
        """Record an event: `kind` is an `EventKind`, times are those of `time.perf_counter_ns()`.

        Never raises and never waits. A number that does not fit is clamped; what is no number becomes 0.
        """
        thread = self._threads.get(get_ident())
        if thread is None:
            thread = self.thread_number()
        number = self._next()
        try:
            _pack_into(
                self._ring,
                (number & self._mask) << _SHIFT,
                start_ns,
                duration_ns,
                value,
                arg,
                thread,
                kind,
                (number >> self._ring_bits) % MOST_LAPS + 1,
            )
            self._words[_CURSOR] = number + 1
        except Exception:
            self._fill_carefully(number, thread, kind, start_ns, duration_ns, value, arg)

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

    def write_many(self, events: npt.NDArray[np.void]) -> None:
        """Record many events at once, from an array with fields as `record_dtype()` names them; missing ones are 0.

        The thread is the caller's where the array does not say. Of more events than the ring holds, the last are kept.
        """
        import numpy as np

        total = len(events)
        if not total:
            return
        thread = self.thread_number()
        numbers = np.fromiter(islice(self._counter, total), np.int64, total)  # one step of the interpreter: no gaps
        if not self._is_recording:
            return
        size = self._mask + 1
        events, numbers = events[-size:], numbers[-size:]
        given = events.dtype.names or ()
        block = np.zeros(len(events), record_dtype())
        for name in ("start_ns", "duration_ns", "value", "arg", "thread", "kind"):
            if name in given:
                block[name] = events[name]
        if "thread" not in given:
            block["thread"] = thread
        ring = np.frombuffer(self._ring, record_dtype())
        at = numbers & self._mask
        ring[at] = block  # lap 0: not whole yet
        ring["lap"][at] = (numbers >> self._ring_bits) % MOST_LAPS + 1
        self._words[Word.CURSOR] = int(numbers[-1]) + 1

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
        self._go_nowhere()
        area, self._area = self._area, None
        if area is not None:
            area.close()

    # ------------------------------------------------------------------------------------------- inside

    def _claim_now(self) -> None:
        self._is_unclaimed = False
        memory = self._area.claim() if self._area is not None else None
        if memory is None:
            self._go_nowhere()
        else:
            self._use(memory, is_recording=True)
        self._threads = {threading.main_thread().ident: 0}

    def _go_nowhere(self) -> None:
        """Let events fall into one private record: writers need not ask whether anything records."""
        self._use(_nowhere(), is_recording=False)

    def _use(self, memory: LaneMemory, *, is_recording: bool) -> None:
        self._memory, self._ring, self._words = memory, memory.ring, memory.words
        self._mask, self._ring_bits = memory.num_records - 1, memory.num_records.bit_length() - 1
        self._counter = count(self._words[Word.CURSOR])
        self._next = self._counter.__next__
        self._is_recording = is_recording
        # numbers of names that were asked for before the fork hold in the child too
        memory.names[: len(self._name_list)] = self._name_list
        self._words[Word.NAME_BYTES] = len(self._name_list)

    def _after_fork(self) -> None:
        """In a child: take a lane of its own, but not before there is something to write."""
        self._naming = threading.RLock()
        self._go_nowhere()
        self._threads = {}  # so that the first event goes the careful way, and claims there
        self._is_unclaimed = True

    def _fill_carefully(
        self, number: int, thread: int, kind: Any, start_ns: Any, duration_ns: Any, value: Any, arg: Any
    ) -> None:
        """Fill the record of a number with what does fit."""
        _pack_into(
            self._ring,
            (number & self._mask) << _SHIFT,
            clamp(start_ns, 0, MOST_U64),
            clamp(duration_ns, 0, MOST_U64),
            clamp(value, -MOST_I64, MOST_I64),
            clamp(arg, 0, MOST_U32),
            thread,
            clamp(kind, 0, 255),
            (number >> self._ring_bits) % MOST_LAPS + 1,
        )
        self._words[Word.CURSOR] = number + 1

    def thread_number(self) -> int:
        """Return the number of the calling thread in this lane."""
        with self._naming:
            if self._is_unclaimed:
                self._claim_now()
            ident = get_ident()
            number = self._threads.get(ident)
            if number is not None:
                return number
            number = self._threads[ident] = min(len(self._threads), MOST_U16)
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


def _nowhere() -> LaneMemory:
    return LaneMemory(memoryview(bytearray(LANE_HEAD_BYTES + RECORD_BYTES)), -1, 1)


def _renew_lanes() -> None:
    global _opening
    _opening = threading.Lock()  # another thread of the parent may have held it
    for lane in list(_alive):
        lane._after_fork()


os.register_at_fork(after_in_child=_renew_lanes)
