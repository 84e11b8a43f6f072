"""Where the bytes are, and how to get them.

- `advice`: which depth to read with, from what was measured.
- `block_devices`: the disks beneath a block device.
- `block_source`: a worker's side of the reader.
- `block_table`: the memory that reader and workers share.
- `cold`: bringing a file's pages out of the page cache, and knowing whether they are.
- `coldness`: whether what was read came from the storage.
- `damage`: what is wrong with a shard, where, and what is still readable.
- `extents`: a stretch of bytes in a file.
- `file_plan`: which loose files come next.
- `file_systems`: what a file system's type and options tell.
- `futex`: sleeping at a word of shared memory.
- `grouping`: members grouped into samples by their keys.
- `indexing`: indexes made, found and refreshed.
- `kinds`: what is under a path.
- `knee`: the depth after which more readers bring no more bytes.
- `media`: the kinds of storage, and a depth to begin with for each.
- `mounts`: which mount a path lies on.
- `open_files`: files that stay open between reads.
- `page_cache`: whether bytes lie in the page cache already.
- `pairing`: from a member's name to the key of its sample and its field.
- `probe_files`: which files a probe reads.
- `probe_order`: which parts of them, in which order.
- `probe_phases`: the parts of a probe, within one budget.
- `probe_reads`: readers that keep a number of reads in flight, each timed.
- `probe_result`: what a probe found, as values.
- `probing`: a probe, from a path to its result.
- `read_ahead`: reading ahead inside a worker, for iterable data sets.
- `read_depth`: how many reads to keep in flight.
- `read_plan`: from the order of samples to reads of large blocks.
- `reader`, `reader_main`: the reader, as the training process sees it, and its process (which does not come by here).
- `remembered`: the depth that a probe found, kept for later loaders.
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
- `written_file`: a file to test with, written and removed.

Names are loaded when they are first used: a probe needs no NumPy, a data set no probe.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .block_source import BlockSource
    from .damage import Damage, DamageKind
    from .extents import Extent
    from .kinds import StorageKind, kind_of
    from .knee import DepthRate, Knee, KneeState, find_knee
    from .media import Medium
    from .page_cache import cached_share
    from .probe_result import Coldness, FilesUsed, Latency, ProbeResult, Reading, Suggestion
    from .probing import probe
    from .read_ahead import read_ahead
    from .reader import BlockAccess, BlockReader
    from .reader_main import ReaderSettings
    from .remembered import RememberedDepth, recall, remember
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
    "Coldness",
    "Damage",
    "DamageKind",
    "DepthRate",
    "Extent",
    "FilesUsed",
    "Knee",
    "KneeState",
    "Latency",
    "Medium",
    "ProbeResult",
    "ReaderSettings",
    "Reading",
    "RememberedDepth",
    "SamplePlace",
    "ShardFacts",
    "ShardWriter",
    "Shards",
    "StorageKind",
    "Suggestion",
    "UnpairedMember",
    "cached_share",
    "close_files",
    "expand_urls",
    "find_knee",
    "install_source",
    "kind_of",
    "list_samples",
    "probe",
    "read_ahead",
    "read_extent",
    "recall",
    "remember",
    "source_installed",
    "starting_depth",
    "survey_shards",
]

_HOME_OF = {
    "BlockAccess": ".reader",
    "BlockReader": ".reader",
    "BlockSource": ".block_source",
    "Coldness": ".probe_result",
    "Damage": ".damage",
    "DamageKind": ".damage",
    "DepthRate": ".knee",
    "Extent": ".extents",
    "FilesUsed": ".probe_result",
    "Knee": ".knee",
    "KneeState": ".knee",
    "Latency": ".probe_result",
    "Medium": ".media",
    "ProbeResult": ".probe_result",
    "ReaderSettings": ".reader_main",
    "Reading": ".probe_result",
    "RememberedDepth": ".remembered",
    "SamplePlace": ".shards",
    "ShardFacts": ".survey",
    "ShardWriter": ".shard_writer",
    "Shards": ".shards",
    "StorageKind": ".kinds",
    "Suggestion": ".probe_result",
    "UnpairedMember": ".unpaired",
    "cached_share": ".page_cache",
    "close_files": ".sources",
    "expand_urls": ".urls",
    "find_knee": ".knee",
    "install_source": ".sources",
    "kind_of": ".kinds",
    "list_samples": ".survey",
    "probe": ".probing",
    "read_ahead": ".read_ahead",
    "read_extent": ".sources",
    "recall": ".remembered",
    "remember": ".remembered",
    "source_installed": ".sources",
    "starting_depth": ".starting_depth",
    "survey_shards": ".survey",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value  # the next access does not come here again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
