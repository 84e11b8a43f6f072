"""Tar shards: their headers, index, damage, the data set over them, the writer.

- `damage`: what is wrong with a shard: where, what was lost, and what is still readable.
- `dataset`: `Shards`: a data set over tar shards, by index or as a stream.
- `index_file`: the index of a shard as a file: fixed-width records, mapped into memory, read where they are touched.
- `indexing`: indexes made, found and refreshed: where they lie, and whether they still belong to their shard.
- `pairing`: which members make a sample: rules from names to keys and fields, and members grouped by them.
- `sample_reading`: from the records of a sample to its fields: which bytes to read, and what they become.
- `survey`: what is in shards, and what is wrong with them, shard by shard.
- `tar_walk`: the way through a tar file without its data: header blocks, and from each to the next, over damage too.
- `urls`: shards as people name them: braces, globs, lists, folders.
- `writer`: samples written into tar shards: plain tar, the same bytes for the same samples.
"""

from .damage import DamagedPlace, DamageKind
from .dataset import SamplePlace, Shards
from .survey import ShardFacts, UnpairedMember, list_samples, survey_shards
from .urls import expand_urls
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
