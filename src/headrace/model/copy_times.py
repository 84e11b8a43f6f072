"""What an H2D event tells: how much of the host's time in a copy was the copy, and how much was waiting before it.

A copy that blocks waits for all that the device has yet to do, and copies then. The host's clock sees one call.
"""

from __future__ import annotations

# A call this short waited for nothing worth the name: it is what starting a copy costs the host.
LAUNCH_NS = 50_000
_MOST_US = (1 << 32) - 2


def copy_arg(device_ns: int) -> int:
    """Return the `arg` of an H2D event whose copy took the device so long: microseconds and one, for 0 is not known."""
    return 1 + min(max(0, device_ns) // 1000, _MOST_US)


def is_copy_timed(duration_ns: int, arg: int) -> bool:
    """Whether it is known how much of a copy's time on the host was the copy."""
    return arg > 0 or duration_ns < LAUNCH_NS


def copied_ns(duration_ns: int, arg: int) -> int:
    """Return how much of the host's time in a copy was the copy itself: all of it where nothing else is known.

    >>> copied_ns(17_000_000, copy_arg(4_000_000)), copied_ns(17_000_000, 0)
    (4000000, 17000000)
    >>> copied_ns(60_000, copy_arg(900_000)), copied_ns(60_000, copy_arg(30_000))  # not blocking; a launch
    (60000, 60000)
    """
    device_ns = 1000 * (arg - 1)
    return device_ns if arg and duration_ns - device_ns >= LAUNCH_NS else duration_ns
