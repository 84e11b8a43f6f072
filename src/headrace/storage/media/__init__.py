"""What is under a path, and how fast it reads.

- `kinds`: what is under a path: its mount, the layers beneath it, and how many reads at a time to begin with.
- `page_cache`: a file's pages in the page cache: dropping them, reading past them, and knowing whether they are there.
- `probe`: measures how fast it can be read: in order, at random, cold and warm, and up to which depth.
- `probe_reads`: readers that keep a number of reads in flight for a while, each timed.
- `probe_result`: what a probe found, and what follows: whether reads were cold, the knee, a depth. Pure.
- `remembered`: the depth that a probe found, kept for later loaders of this machine.
"""

from .kinds import Medium, StorageKind, kind_of, starting_depth
from .probe import probe
from .probe_result import Coldness, Knee, KneeState, MeasuredReading, ProbeResult, Suggestion, find_knee
from .remembered import RememberedDepth, recall, remember

__all__ = [
    "Coldness",
    "Knee",
    "KneeState",
    "MeasuredReading",
    "Medium",
    "ProbeResult",
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
