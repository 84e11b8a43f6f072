"""Sleep until another process changes a word of shared memory, or wake those who do."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
import time

_CALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1) if sys.byteorder == "little" else -1
_WAIT, _WAKE = 0, 1
_ALL = (1 << 31) - 1
_POLL_S = 0.0005  # where this processor's number for the system call is not known


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class Futex:
    """The low half of a 64-bit word in a shared mapping, as a place to sleep at."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._word = ctypes.c_int32.from_buffer(memory, offset)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._at = ctypes.c_void_p(ctypes.addressof(self._word))

    def value(self) -> int:
        return self._word.value

    def wait(self, value: int, timeout_s: float) -> None:
        """Sleep while the word holds `value`, no longer than the timeout; may wake early."""
        if _CALL < 0:
            time.sleep(min(timeout_s, _POLL_S))
            return
        limit = _Timespec(int(timeout_s), int(timeout_s % 1 * 1e9))
        self._syscall(_CALL, self._at, _WAIT, ctypes.c_int32(value), ctypes.byref(limit), None, 0)

    def wake_all(self) -> None:
        """Change the word, and wake all who sleep at it."""
        self._word.value += 1
        if _CALL >= 0:
            self._syscall(_CALL, self._at, _WAKE, _ALL, None, None, 0)
