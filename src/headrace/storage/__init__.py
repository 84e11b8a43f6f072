"""Where the bytes of samples are, and how to get them.

- `block_source`: a worker's side of the reader.
- `block_table`: the memory that reader and workers share.
- `extents`: where the bytes of a field lie.
- `file_plan`: which loose files come next.
- `futex`: sleeping at a word of shared memory.
- `open_files`: files that stay open between reads.
- `page_cache`: whether bytes lie in the page cache already.
- `read_ahead`: the same inside a worker, for iterable data sets.
- `read_depth`: how many reads to keep in flight.
- `read_plan`: from the order of samples to reads of large blocks.
- `reader`, `reader_main`: the reader, as the training process sees it, and its process.
- `sources`: who is asked for the bytes of an extent.
- `space`: which bytes of a range are free.
- `starting_depth`: how many reads to begin with.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .block_source import BlockSource
    from .extents import Extent
    from .page_cache import cached_share
    from .read_ahead import read_ahead
    from .reader import BlockAccess, BlockReader
    from .reader_main import ReaderSettings
    from .sources import close_files, install_source, read_extent, source_installed
    from .starting_depth import starting_depth

__all__ = [
    "BlockAccess",
    "BlockReader",
    "BlockSource",
    "Extent",
    "ReaderSettings",
    "cached_share",
    "close_files",
    "install_source",
    "read_ahead",
    "read_extent",
    "source_installed",
    "starting_depth",
]

_HOME_OF = {
    "BlockAccess": ".reader",
    "BlockReader": ".reader",
    "BlockSource": ".block_source",
    "Extent": ".extents",
    "ReaderSettings": ".reader_main",
    "cached_share": ".page_cache",
    "close_files": ".sources",
    "install_source": ".sources",
    "read_ahead": ".read_ahead",
    "read_extent": ".sources",
    "source_installed": ".sources",
    "starting_depth": ".starting_depth",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value
