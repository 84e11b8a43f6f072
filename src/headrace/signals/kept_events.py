"""Short events of one thread, written together.

After a kernel that went through megabytes, whatever Python touches has to come back from memory: to write an event
costs 5 us there, and some tenths of a microsecond right after another one. So events of a training loop are packed
into two kilobytes of the process's own, and go to the lane together: when they are full, with an event that is not
short, with the first one that begins a tenth of a second after the oldest, and at the end. Of a process that is killed,
these last ones are missing.
"""

from __future__ import annotations

from threading import get_ident

from .lanes import Lane
from .records import RECORD, RECORD_BYTES

_SHORT_NS = 20_000_000  # what takes longer is written at once: 5 us are nothing to it, and it may be the last of a run
_KEPT_FOR_NS = 100_000_000
_MOST = 64  # a ring's reader allows for 128 that are under way
_SHIFT = RECORD_BYTES.bit_length() - 1
_pack_into = RECORD.pack_into


class KeptEvents:
    """Keeps the short events of the thread that makes it, and passes on all others at once."""

    def __init__(self, lane: Lane) -> None:
        self._lane, self._thread, self._thread_number = lane, get_ident(), lane.thread_number()
        lane.populate()
        self._block = bytearray(_MOST * RECORD_BYTES)
        self._count = self._until_ns = 0

    def __repr__(self) -> str:
        return f"KeptEvents({self._count} of {_MOST})"

    def keep(self, kind: int, start_ns: int, duration_ns: int, value: int = 0, arg: int = 0) -> None:
        """Record an event, as `Lane.write` does, now or somewhat later."""
        if get_ident() == self._thread:
            count = self._count
            if not count:
                self._until_ns = start_ns + _KEPT_FOR_NS
            if duration_ns < _SHORT_NS and count < _MOST and start_ns <= self._until_ns:
                try:
                    _pack_into(self._block, count << _SHIFT, start_ns, duration_ns, value, arg, 0, kind, 0)
                    self._count = count + 1
                    return
                except Exception:  # a number that does not fit: the lane knows what to do
                    pass
            self.write()
        self._lane.write(kind, start_ns, duration_ns, value, arg)

    def write(self) -> None:
        """Write what was kept: in the thread that keeps, or when it does no more."""
        count, self._count = self._count, 0  # first: a ^C in the middle must not have them written twice
        if count:
            self._lane.write_block(self._block, count, self._thread_number)
