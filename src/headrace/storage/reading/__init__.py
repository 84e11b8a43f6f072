"""Reading ahead: from the order of samples to large reads in flight.

- `block_source`: a worker's side of the reader: finds an extent in a block, takes it without a copy, or says that …
- `block_table`: the memory that a reader and the workers share: which bytes of which file lie where, and who refer…
- `extents`: `Extent`: where the bytes of a field of a sample lie.
- `file_plan`: which loose files to bring into the page cache next. Pure: no files, threads or clocks.
- `futex`: sleep until another process changes a word of shared memory, or wake those who do.
- `open_files`: files that stay open between reads.
- `page_cache`: whether bytes lie in the page cache already.
- `read_ahead`: extents read ahead by threads of this process, for data sets that draw their order as they go.
- `read_depth`: how many reads to keep in flight, from what is measured. Pure: no clocks, no threads.
- `read_plan`: from the order in which samples will be needed to reads of large blocks. Pure: no files, memory, thr…
- `reader`: the training process's side of the reader: starts it, tells it what comes, and ends it.
- `reader_process`: the reader process: I/O threads that bring blocks in the planned order, and the loop that tells…
- `sources`: how a data set gets the bytes of an extent: from whoever read ahead, else from the file.
- `space`: which bytes of a fixed range are free: first fit, in whole pages. Pure.
"""

from .block_source import BlockSource
from .extents import Extent
from .page_cache import cached_share
from .read_ahead import read_ahead
from .reader import BlockAccess, BlockReader
from .reader_process import ReaderSettings
from .sources import close_files, has_source, install_source, read_extent, read_file, source_installed

__all__ = [
    "BlockAccess",
    "BlockReader",
    "BlockSource",
    "Extent",
    "ReaderSettings",
    "cached_share",
    "close_files",
    "has_source",
    "install_source",
    "read_ahead",
    "read_extent",
    "read_file",
    "source_installed",
]
