"""What is under a path, and how fast it reads.

- `advice`: which depth to read with, from what was measured. Pure.
- `cold`: bringing a file's pages out of the page cache, and knowing whether they are.
- `coldness`: whether what was read came from the storage, judged from what was checked. Pure.
- `kinds`: what is under a path: its mount, the layers beneath it, and how many reads at a time to begin with.
- `knee`: the knee: the depth after which more readers bring no more bytes. Pure: rates in, a judgement out.
- `probe_files`: which files under a path a probe reads: existing ones, several, drawn at random, and never written…
- `probe_order`: which parts of files a probe reads, and in which order.
- `probe_phases`: the parts of a probe, one after the other, within one budget of time and bytes.
- `probe_reads`: readers that keep a number of reads in flight for a while, each timed.
- `probe_result`: what a probe of storage found, as values.
- `probing`: measures how fast what is under a path can be read: in order, at random, cold and warm, and up to whic…
- `remembered`: the depth that a probe found, kept for later loaders of this machine: a small file in the user's ca…
- `written_file`: a file to test storage with, written for the test and removed whatever happens.
"""

from .kinds import Medium, StorageKind, kind_of, starting_depth
from .knee import DepthRate, Knee, KneeState, find_knee
from .probe_result import Coldness, FilesUsed, Latency, ProbeResult, Reading, Suggestion
from .probing import probe
from .remembered import RememberedDepth, recall, remember

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
    "RememberedDepth",
    "StorageKind",
    "Suggestion",
    "find_knee",
    "kind_of",
    "probe",
    "recall",
    "remember",
    "starting_depth",
]
