"""The heap of this process, whose freed pages stay or go back to the kernel; its page faults, its threads' names.

A page that the kernel hands out anew costs about a microsecond (2.6 µs in shared memory); a decoder that
allocates and frees a few megabytes per sample pays it thousands of times a sample.
"""

import ctypes
import resource

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_PR_SET_NAME = 15


def keep_heap_pages(*, threads: int, most_bytes: int) -> None:
    """Tell malloc to serve blocks of up to `most_bytes` from the heap and never to trim it, where it is glibc's.

    What a worker keeps is memory that nobody else has: where the budget is small, large blocks go back to the kernel.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    # older glibc refuses a threshold above 32 MiB, newer ones take any
    most_bytes = min(most_bytes, 1 << 30)
    if not mallopt(_M_MMAP_THRESHOLD, most_bytes):
        mallopt(_M_MMAP_THRESHOLD, min(most_bytes, 32 << 20))
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    # the heap grows in steps of this, so that the first samples do not call brk for each block
    mallopt(_M_TOP_PAD, 16 << 20)
    if threads > 1:
        # the arenas of further threads cannot hold a block above 64 MiB and fall back to mmap for it
        mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return what is free of the heap to the kernel, wherever in it that lies."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def name_thread(name: str) -> None:
    """Name the calling thread for `top` and stack dumps (the kernel keeps 15 characters)."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def minor_faults() -> int:
    """Page faults of this thread that needed no disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
