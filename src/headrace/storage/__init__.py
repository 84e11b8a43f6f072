"""Where the bytes are and how to get them.

- `damage`: what is wrong with a shard, where, and what is still readable.
- `extents`: a stretch of bytes in a file.
- `grouping`: members grouped into samples by their keys.
- `indexing`: indexes made, found and refreshed.
- `pairing`: from a member's name to the key of its sample and its field.
- `sample_reading`: from the records of a sample to its fields.
- `shard_index`: the index of a shard as a file that is mapped.
- `shard_stream`: a shard read from begin to end without an index.
- `shard_writer`: samples written into tar shards.
- `shards`: the data set over tar shards.
- `sources`: how a data set gets the bytes of an extent.
- `survey`: what is in shards, and what is wrong with them.
- `tar_headers`: what tar header blocks say.
- `tar_walk`: the way from header to header, over damage too.
- `texts`: short texts in a long one, told apart all at once.
- `unpaired`: members in no sample, and why.
- `urls`: shards as people name them.
"""

from .damage import Damage, DamageKind
from .extents import Extent
from .shard_writer import ShardWriter
from .shards import SamplePlace, Shards
from .sources import install_source, read_extent
from .survey import ShardFacts, list_samples, survey_shards
from .unpaired import UnpairedMember
from .urls import expand_urls

__all__ = [
    "Damage",
    "DamageKind",
    "Extent",
    "SamplePlace",
    "ShardFacts",
    "ShardWriter",
    "Shards",
    "UnpairedMember",
    "expand_urls",
    "install_source",
    "list_samples",
    "read_extent",
    "survey_shards",
]
