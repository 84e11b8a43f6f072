"""The heap of this process, whose freed pages stay or go back; what a fork copies of it; its page faults, its threads.

A page that the kernel hands out anew costs about a microsecond (2.6 µs in shared memory); a decoder that
allocates and frees a few megabytes per sample pays it thousands of times a sample.
"""

import ctypes
import gc
import os
import resource
import sys
import weakref
from collections.abc import Mapping
from itertools import islice
from types import ModuleType, NoneType
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_PR_SET_NAME = 15
_PAGE = 4096
_LOOKED_INTO, _FEWEST = 1000, 64  # parts of one container that stand for all; of each inside of a long one, fewer
_DEEPEST = 6
# or not the value's own: what a proxy stands for
_NOT_COPIED: tuple[Any, ...] = (type, ModuleType, NoneType, bool, *weakref.ProxyTypes)
# read by libraries that a worker loads later; those that came along the fork are told by their own functions
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


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


def set_worker_gains(*, keeps_heap: bool, threads: int) -> None:
    """Set what a worker of torch's loader often gains from: a heap that keeps its pages, `threads` in each library.

    0 threads: as many as the libraries like.
    """
    if keeps_heap:
        keep_heap_pages(threads=1, most_bytes=1 << 30)
    if not threads:
        return
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    sys.modules["torch"].set_num_threads(threads)
    if (cv2 := sys.modules.get("cv2")) is not None:
        cv2.setNumThreads(threads)
    try:
        import threadpoolctl
    except ImportError:  # NumPy's BLAS keeps what it was loaded with
        return
    threadpoolctl.threadpool_limits(threads)


def name_thread(name: str) -> None:
    """Name the calling thread for `top` and stack dumps (the kernel keeps 15 characters)."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def minor_faults() -> int:
    """Page faults of this thread that needed no disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def sizes_of_references(
    value: Any, seen: set[int] | None = None, depth: int = 0, most: int = _LOOKED_INTO
) -> tuple[int, int]:
    """Return the bytes that a forked worker copies of a value by looking at all of it; those that a collection copies.

    Looking at an object writes the count of its references, and with it copies its page; the buffer of a large list or
    array is not written. Long containers are judged by some of their parts: by what the second half of these adds to
    the first, so that what all of them share counts once.

    >>> names = [f"image_{number:09}.jpg" for number in range(100_000)]
    >>> 6.5e6 < sizes_of_references(names)[0] < 8e6, sizes_of_references(bytes(10**7))
    (True, (4096, 0))
    """
    seen = set() if seen is None else seen  # by its callers, and what they hold
    kind = type(value)  # `isinstance` would ask a proxy for what it stands for
    if id(value) in seen or issubclass(kind, _NOT_COPIED) or callable(value):
        return 0, 0
    seen.add(id(value))
    size = min(sys.getsizeof(value, 64), _PAGE)
    all_bytes, tracked = size, size if gc.is_tracked(value) else 0
    if issubclass(kind, Mapping):
        parts, count = [part for pair in islice(value.items(), most) for part in pair], 2 * len(value)
    elif issubclass(kind, (list, tuple, set, frozenset)):
        step = max(1, len(value) // most)
        parts, count = list(islice(value, 0, None, step)), len(value)
    else:
        inner = getattr(value, "__dict__", None)
        parts = list(inner.values()) if isinstance(inner, dict) else gc.get_referents(value)
        count = len(parts)
    if not parts or depth >= _DEEPEST:
        return all_bytes, tracked
    most = max(_FEWEST, most // 8) if len(parts) > _FEWEST else most
    sums = [sizes_of_references(part, seen, depth + 1, most) for part in parts]
    sums = sums[len(sums) // 2 :] if len(parts) < count else sums
    scale = count / len(sums)
    return all_bytes + int(scale * sum(one[0] for one in sums)), tracked + int(scale * sum(one[1] for one in sums))
