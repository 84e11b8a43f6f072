"""Tar shards: their headers, index, damage, the data set over them, the writer.

- `damage`: what is wrong with a shard: where, what was lost, and what is still readable.
- `dataset`: `Shards`: a data set over tar shards, by index or as a stream.
- `grouping`: members grouped into samples by their keys, whatever their order in the shard.
- `index_file`: the index of a shard as a file: fixed-width records, mapped into memory, read where they are touched.
- `indexing`: indexes made, found and refreshed: where they lie, and whether they still belong to their shard.
- `pairing`: which members make a sample: from a member's name to the key of its sample and its field there.
- `sample_reading`: from the records of a sample to its fields: which bytes to read, and what they become.
- `stream`: a shard read from its begin to its end without an index: headers are walked through as the data comes.
- `survey`: what is in shards, and what is wrong with them, shard by shard.
- `tar_headers`: what a tar header block says: one block in plain Python, or all blocks of a window at once.
- `tar_walk`: the way from header to header through a tar file, over damage too, without its data.
- `texts`: short texts that lie in one long one, told apart all at once.
- `unpaired`: the members of a shard that are in no sample that is delivered, and why.
- `urls`: shards as people name them: braces, globs, lists, folders.
- `writer`: samples written into tar shards: plain tar, the same bytes for the same samples.
"""

from .damage import Damage, DamageKind
from .dataset import SamplePlace, Shards
from .survey import ShardFacts, list_samples, survey_shards
from .unpaired import UnpairedMember
from .urls import expand_urls
from .writer import ShardWriter

__all__ = [
    "Damage",
    "DamageKind",
    "SamplePlace",
    "ShardFacts",
    "ShardWriter",
    "Shards",
    "UnpairedMember",
    "expand_urls",
    "list_samples",
    "survey_shards",
]
