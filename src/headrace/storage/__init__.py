"""Where the bytes are, and how to get them.

- `media`: what is under a path, and how fast it reads.
- `reading`: reading ahead, from the order of samples to large reads in flight.
- `shards`: tar shards, the data set over them, their index and their damage.

Names are loaded when they are first used: a probe needs no NumPy, a data set no probe.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .media import Medium, ProbeResult, StorageKind, kind_of, probe
    from .reading import Extent, read_extent
    from .shards import SamplePlace, Shards, ShardWriter

__all__ = [
    "Extent",
    "Medium",
    "ProbeResult",
    "SamplePlace",
    "ShardWriter",
    "Shards",
    "StorageKind",
    "kind_of",
    "probe",
    "read_extent",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    media="Medium ProbeResult StorageKind kind_of probe",
    reading="Extent read_extent",
    shards="SamplePlace ShardWriter Shards",
)
