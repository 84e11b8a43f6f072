"""Which fault struck when, written by whoever it strikes before it strikes: what a dying worker says survives it."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass

_RECORD = struct.Struct("<qqq")


@dataclass(frozen=True)
class Strike:
    """A fault that struck: which, when (on the clock that all processes share), in which process."""

    fault: int
    at_s: float
    pid: int


class FaultLog:
    """A file that several processes append to. It travels to workers by its path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._pid = -1

    def open(self) -> None:
        """Open it now: later there may be no descriptor left to do so."""
        if self._pid != os.getpid():
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._pid = os.getpid()

    def close(self) -> None:
        if self._pid == os.getpid():
            os.close(self._fd)
        self._fd = self._pid = -1

    def add(self, fault: int) -> None:
        """Note that a fault strikes now. A record is a single append, so it is there whole or not at all."""
        self.open()
        os.write(self._fd, _RECORD.pack(fault, time.monotonic_ns(), os.getpid()))

    def strikes(self) -> list[Strike]:
        """Return all of them, oldest first."""
        self.open()
        data, offset = b"", 0
        while part := os.pread(self._fd, 1 << 16, offset):
            data, offset = data + part, offset + len(part)
        whole = len(data) - len(data) % _RECORD.size
        return [Strike(fault, ns / 1e9, pid) for fault, ns, pid in _RECORD.iter_unpack(data[:whole])]

    def count(self, fault: int) -> int:
        return sum(strike.fault == fault for strike in self.strikes())

    def __getstate__(self) -> str:
        return self.path

    def __setstate__(self, path: str) -> None:
        self.__init__(path)  # type: ignore[misc]  # a fresh one, which opens the file in its own process

    def __repr__(self) -> str:
        return f"FaultLog({self.path!r}, strikes={len(self.strikes())})"
