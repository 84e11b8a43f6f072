"""Where the bytes are and how to get them.

- `block_source`: a worker's side of the reader.
- `block_table`: the memory that reader and workers share.
- `damage`: what is wrong with a shard, where, and what is still readable.
- `extents`: a stretch of bytes in a file.
- `file_plan`: which loose files come next.
- `futex`: sleeping at a word of shared memory.
- `grouping`: members grouped into samples by their keys.
- `indexing`: indexes made, found and refreshed.
- `open_files`: files that stay open between reads.
- `page_cache`: whether bytes lie in the page cache already.
- `pairing`: from a member's name to the key of its sample and its field.
- `read_ahead`: reading ahead inside a worker, for iterable data sets.
- `read_depth`: how many reads to keep in flight.
- `read_plan`: from the order of samples to reads of large blocks.
- `reader`, `reader_main`: the reader, as the training process sees it, and its process (which does not come by here).
- `sample_reading`: from the records of a sample to its fields.
- `shard_index`: the index of a shard as a file that is mapped.
- `shard_stream`: a shard read from begin to end without an index.
- `shard_writer`: samples written into tar shards.
- `shards`: the data set over tar shards.
- `sources`: how a data set gets the bytes of an extent.
- `space`: which bytes of a range are free.
- `starting_depth`: how many reads to begin with.
- `survey`: what is in shards, and what is wrong with them.
- `tar_headers`: what tar header blocks say.
- `tar_walk`: the way from header to header, over damage too.
- `texts`: short texts in a long one, told apart all at once.
- `unpaired`: members in no sample, and why.
- `urls`: shards as people name them.
"""

from .block_source import BlockSource
from .damage import Damage, DamageKind
from .extents import Extent
from .page_cache import cached_share
from .read_ahead import read_ahead
from .reader import BlockAccess, BlockReader
from .reader_main import ReaderSettings
from .shard_writer import ShardWriter
from .shards import SamplePlace, Shards
from .sources import close_files, install_source, read_extent, source_installed
from .starting_depth import starting_depth
from .survey import ShardFacts, list_samples, survey_shards
from .unpaired import UnpairedMember
from .urls import expand_urls

__all__ = [
    "BlockAccess",
    "BlockReader",
    "BlockSource",
    "Damage",
    "DamageKind",
    "Extent",
    "ReaderSettings",
    "SamplePlace",
    "ShardFacts",
    "ShardWriter",
    "Shards",
    "UnpairedMember",
    "cached_share",
    "close_files",
    "expand_urls",
    "install_source",
    "list_samples",
    "read_ahead",
    "read_extent",
    "source_installed",
    "starting_depth",
    "survey_shards",
]
