"""Tar shards: their headers, index, damage, the data set over them, the writer.

- `dataset`: `Shards`: a data set over tar shards, by index or as a stream, named by braces, globs, lists or folders.
- `index_file`: the index of a shard as a file: fixed-width records, mapped into memory, read where they are touched.
- `indexing`: indexes made, found and refreshed: where they lie, and whether they still belong to their shard.
- `pairing`: which members make a sample: rules from names to keys and fields, and members grouped by them.
- `sample_reading`: from the records of a sample to its fields: which bytes to read, and what they become.
- `survey`: what is in shards, and what is wrong with them, shard by shard.
- `tar_walk`: the way through a tar file without its data: from each header to the next, over damage too.
- `writer`: samples written into tar shards: plain tar, the same bytes for the same samples.
"""

from .dataset import SamplePlace, Shards, expand_urls
from .survey import ShardFacts, UnpairedMember, list_samples, survey_shards
from .tar_walk import DamagedPlace, DamageKind
from .writer import ShardWriter

__all__ = [
    "DamageKind",
    "DamagedPlace",
    "SamplePlace",
    "ShardFacts",
    "ShardWriter",
    "Shards",
    "UnpairedMember",
    "expand_urls",
    "list_samples",
    "survey_shards",
]
