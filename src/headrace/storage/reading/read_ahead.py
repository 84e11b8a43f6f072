"""Extents read ahead by threads of this process, for data sets that draw their order as they go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from .extents import Extent, read_file

_BLOCK_BYTES = 1 << 20
# what is read along between two extents: at 100 MB/s it takes less time than the way to a new place
_GAP_BYTES = 64 << 10
_FIRST_BYTES = 128 << 10


def read_ahead(
    extents: Iterable[Extent], depth: int = 8, block_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[Extent, memoryview]]:
    """Each extent with its bytes, in the order given, while `depth` reads are in flight for those that follow.

    Neighbours that follow one another in a file become one read of up to `block_bytes`; a larger extent is one read.
    The first read is short, so the first extent comes after one read. At most `depth` blocks wait at any time, besides
    those whose views are held. What a read raises comes where its first extent would have come. Use it in the
    `__iter__` of an iterable data set; nothing stays behind when the iterator is closed or dropped.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile() as file:
    ...     _ = file.write(b"one two"), file.flush()
    ...     [bytes(view) for _, view in read_ahead([Extent(file.name, 4, 3), Extent(file.name, 0, 3)])]
    [b'two', b'one']
    """
    if depth < 1 or block_bytes < 1:
        raise ValueError(f"depth and block_bytes must be above 0, got {depth} and {block_bytes}")
    return _read_ahead(iter(extents), depth, block_bytes)


def _read_ahead(extents: Iterator[Extent], depth: int, block_bytes: int) -> Iterator[tuple[Extent, memoryview]]:
    waiting: deque[tuple[list[Extent], int, Future[memoryview]]] = deque()
    runs = _joined(extents, block_bytes)
    pool = ThreadPoolExecutor(depth, thread_name_prefix="headrace-io")
    try:
        while True:
            while len(waiting) < depth and (run := next(runs, None)) is not None:
                start, end = run[0].offset, run[-1].offset + run[-1].size
                waiting.append((run, start, pool.submit(read_file, Extent(run[0].path, start, end - start))))
            if not waiting:
                return
            members, start, reading = waiting.popleft()
            try:
                block = reading.result()
            except OSError:
                # the run may be at fault, not all that is in it: each for itself, and the true error for the one
                for extent in members:
                    yield extent, read_file(extent)
                continue
            for extent in members:
                yield extent, block[extent.offset - start : extent.offset - start + extent.size]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _joined(extents: Iterator[Extent], block_bytes: int) -> Iterator[list[Extent]]:
    """Runs of extents that one read brings: in one file, in its order, near each other."""
    most = min(_FIRST_BYTES, block_bytes)
    run: list[Extent] = []
    for extent in extents:
        if run:
            end = run[-1].offset + run[-1].size
            fits = extent.offset + extent.size - run[0].offset <= most
            if extent.path == run[0].path and 0 <= extent.offset - end <= _GAP_BYTES and fits:
                run.append(extent)
                continue
            yield run
            most = min(block_bytes, 2 * most)
        run = [extent]
    if run:
        yield run
