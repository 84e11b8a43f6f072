"""Short events of one thread, written together.

After a kernel that went through megabytes, whatever Python touches has to come back from memory: to write an event
costs 5 us there, and some tenths of a microsecond right after another one. So the numbers of a training loop's events
go to the end of a list, and from there to the lane together: when it is full, with an event that is not short, with the
first one that begins a tenth of a second after the oldest, and at the end. Of a process that is killed, these last ones
are missing; that a worker has a task in hand, its lane says all the same (`Lane.mark_task`). The first few hundred are
written at once: of a training that dies soon there is little else to tell. (To pack each at once was tried: it touches
more code, and costs 2 us more after a kernel.)
"""

from __future__ import annotations

import struct
from threading import get_ident

from .lanes import Lane
from .records import RECORD

_SHORT_NS = 20_000_000  # what takes longer is written at once: 5 us are nothing to it, and it may be the last of a run
_KEPT_FOR_NS = 100_000_000
_MOST = 64  # a ring's reader allows for 128 that are under way
_FIELDS = 7
_BLOCK = struct.Struct("<" + RECORD.format.removeprefix("<") * _MOST)


class KeptEvents:
    """Keeps the short events of the thread that makes it, and passes on all others at once, and the `first` ones."""

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
        except Exception:  # a number that does not fit: the lane knows what to do
            for at in range(0, len(values), _FIELDS):
                start_ns, duration_ns, value, arg, _, kind, _ = values[at : at + _FIELDS]
                self._lane.write(kind, start_ns, duration_ns, value, arg)
            return
        self._lane.write_block(self._block, count, self._thread_number)
