"""Reading ahead: from the order of samples to large reads in flight.

- `block_source`: a worker's side of the reader: extents out of blocks, without a copy.
- `block_table`: the memory that a reader and the workers share: which bytes lie where, and who refers to them.
- `extents`: where bytes of a sample lie in a file, and how a data set gets them.
- `read_plan`: what the reader reads next, and how much at a time. Pure.
- `reader`: the training process's side of the reader: starts it, tells it what comes, and ends it.
- `reader_process`: the reader itself: I/O threads, and the loop that tells them what to read.
"""

from .extents import Extent, cached_share, close_files, has_source, read_extent, source_installed
from .reader import BlockAccess, BlockReader
from .reader_process import ReaderSettings

__all__ = [
    "BlockAccess",
    "BlockReader",
    "Extent",
    "ReaderSettings",
    "cached_share",
    "close_files",
    "has_source",
    "read_extent",
    "source_installed",
]
