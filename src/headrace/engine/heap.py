"""Keep a worker's heap: freed pages stay with the process instead of going back to the kernel.

A page that the kernel hands out anew costs about a microsecond (2.6 µs in shared memory); a decoder that
allocates and frees a few megabytes per sample pays it thousands of times a sample.
"""

from __future__ import annotations

import ctypes
import resource

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_PR_SET_NAME = 15


def keep_heap_pages(*, threads: int = 1) -> bool:
    """Tell malloc to serve large blocks from the heap and never to trim it; False where malloc is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # older glibc refuses a threshold above 32 MiB, newer ones take any
    kept = mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    kept = mallopt(_M_TRIM_THRESHOLD, 2**31 - 1) and kept
    # the heap grows in steps of this, so that the first samples do not call brk for each block
    mallopt(_M_TOP_PAD, 16 << 20)
    if threads > 1:
        # the arenas of further threads cannot hold a block above 64 MiB and fall back to mmap for it
        mallopt(_M_ARENA_MAX, 1)
    return bool(kept)


def name_thread(name: str) -> None:
    """Name the calling thread for `top` and stack dumps (the kernel keeps 15 characters)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def minor_faults() -> int:
    """Page faults of this thread that needed no disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
