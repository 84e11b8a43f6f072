"""Where the bytes are, and how to get them.

- `mounts`: which mount a path lies on.
- `block_devices`: the disks beneath a block device.
- `file_systems`: what a file system's type and options tell.
- `media`: the kinds of storage, and a depth to begin with for each.
- `kinds`: what is under a path.
- `cold`: bringing a file's pages out of the page cache, and knowing whether they are.
- `coldness`: whether what was read came from the storage.
- `knee`: the depth after which more readers bring no more bytes.
- `advice`: which depth to read with, from what was measured.
- `probe_files`: which files a probe reads.
- `probe_order`: which parts of them, in which order.
- `probe_reads`: readers that keep a number of reads in flight, each timed.
- `probe_phases`: the parts of a probe, within one budget.
- `probe_result`: what a probe found, as values.
- `probing`: a probe, from a path to its result.
- `written_file`: a file to test with, written and removed.
"""

from .cold import cached_share, drop_from_cache, open_direct
from .kinds import StorageKind, kind_of
from .knee import DepthRate, Knee, KneeState, find_knee
from .media import Medium
from .probe_result import Coldness, FilesUsed, Latency, ProbeResult, Reading, Suggestion
from .probing import probe

__all__ = [
    "Coldness",
    "DepthRate",
    "FilesUsed",
    "Knee",
    "KneeState",
    "Latency",
    "Medium",
    "ProbeResult",
    "Reading",
    "StorageKind",
    "Suggestion",
    "cached_share",
    "drop_from_cache",
    "find_knee",
    "kind_of",
    "open_direct",
    "probe",
]
