"""What `headrace run` sets in torch's workers where it was asked to: a heap that keeps its pages, fewer threads."""

import os
import sys
from collections.abc import Callable
from typing import Any

from headrace.model import keeps_worker_heap, worker_threads
from headrace.signals.system import keep_heap_pages

# read by libraries that a worker loads later; those that came along the fork are told by their own functions
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
_MOST_KEPT_BYTES = 1 << 30


def with_gains(get: Callable[..., Any]) -> Callable[..., Any]:
    """Return a worker's way to its work that sets them the first time: behind torch's own settings and `init_fn`."""
    threads, keeps_heap = worker_threads(), keeps_worker_heap()
    if not threads and not keeps_heap:
        return get
    is_first = True

    def first_set(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            if keeps_heap:
                keep_heap_pages(threads=1, most_bytes=_MOST_KEPT_BYTES)
            if threads:
                _bound_threads(threads)
        return get(*args, **kwargs)

    return first_set


def _bound_threads(number: int) -> None:
    os.environ.update(dict.fromkeys(_VARIABLES, str(number)))
    sys.modules["torch"].set_num_threads(number)
    if (cv2 := sys.modules.get("cv2")) is not None:
        cv2.setNumThreads(number)
    try:
        import threadpoolctl
    except ImportError:  # NumPy's BLAS keeps what it was loaded with
        return
    threadpoolctl.threadpool_limits(number)
