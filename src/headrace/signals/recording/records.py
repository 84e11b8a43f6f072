"""The record of an event: 32 bytes, the same in shared memory and on disk.

| bytes | field | |
| --- | --- | --- |
| 0-7 | `start_ns` u64 | CLOCK_MONOTONIC, which `time.perf_counter_ns()` and `time.monotonic_ns()` read on Linux |
| 8-15 | `duration_ns` u64 | |
| 16-23 | `value` i64 | what it counts is said per kind (`model.EventKind`) |
| 24-27 | `arg` u32 | the number of a name of the same process, 0 for none |
| 28-29 | `thread` u16 | 0 is the process's main thread, others count from 1 |
| 30 | `kind` u8 | |
| 31 | `lap` u8 | which round of the ring wrote it, 1 to 255; 0: being written; on disk always 0 |

The lap comes last, and `struct` clears a record before it fills it: whoever reads a record with the lap that it
expects has all of it.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

RECORD = struct.Struct("<QQqIHBB")
RECORD_BYTES = RECORD.size
THREAD_AT = 28
MOST_LAPS = 255

MOST_U64 = (1 << 64) - 1
MOST_I64 = (1 << 63) - 1
MOST_U32 = (1 << 32) - 1
MOST_U16 = (1 << 16) - 1


@cache
def record_dtype() -> np.dtype[np.void]:
    """The record as NumPy sees it. A function: writing an event needs no NumPy."""
    import numpy as np

    return np.dtype(
        [
            ("start_ns", "<u8"),
            ("duration_ns", "<u8"),
            ("value", "<i8"),
            ("arg", "<u4"),
            ("thread", "<u2"),
            ("kind", "u1"),
            ("lap", "u1"),
        ]
    )


def clamp(number: object, least: int, most: int) -> int:
    """Whatever was given, as a whole number that fits; 0 for what is no number.

    >>> clamp(7.9, 0, 255), clamp(-1, 0, 255), clamp("seven", 0, 255)
    (7, 0, 0)
    """
    try:
        return max(least, min(most, int(number)))  # type: ignore[call-overload,no-any-return]  # that is what is tried
    except (TypeError, ValueError, OverflowError):
        return 0
