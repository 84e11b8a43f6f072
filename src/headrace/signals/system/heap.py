"""The heap of this process, whose freed pages stay or go back to the kernel; its page faults, its threads.

A page that the kernel hands out anew costs about a microsecond (2.6 µs in shared memory); a decoder that
allocates and frees a few megabytes per sample pays it thousands of times a sample.
"""

import ctypes
import os
import resource
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_PR_SET_NAME = 15
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
