"""Where the bytes of samples are, and how to get them.

- `block_source`: a worker's side of the reader.
- `block_table`: the memory that reader and workers share.
- `extents`: where the bytes of a field lie.
- `file_plan`: which loose files come next.
- `futex`: sleeping at a word of shared memory.
- `open_files`: files that stay open between reads.
- `read_depth`: how many reads to keep in flight.
- `read_plan`: from the order of samples to reads of large blocks.
- `reader`, `reader_main`: the reader, as the training process sees it, and its process.
- `sources`: who is asked for the bytes of an extent.
- `space`: which bytes of a range are free.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .extents import Extent
    from .reader import BlockAccess, BlockReader
    from .reader_main import ReaderSettings
    from .sources import close_files, install_source, read_extent, source_installed

__all__ = [
    "BlockAccess",
    "BlockReader",
    "Extent",
    "ReaderSettings",
    "close_files",
    "install_source",
    "read_extent",
    "source_installed",
]

_HOME_OF = {
    "BlockAccess": ".reader",
    "BlockReader": ".reader",
    "Extent": ".extents",
    "ReaderSettings": ".reader_main",
    "close_files": ".sources",
    "install_source": ".sources",
    "read_extent": ".sources",
    "source_installed": ".sources",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value
