"""The words that several rooms share: plain values, no I/O, no torch.

- `environment`: the environment variables that are read.
- `sizes`: byte counts as people write them ("8GiB").
- `stats`: what a loader says of itself at one moment.
"""

from .environment import keeps_statistics, language, num_local_ranks
from .sizes import format_bytes, parse_bytes
from .stats import LoaderStats, SampleTimes, SlotStats, WaitStats, WorkerStats

__all__ = [
    "LoaderStats",
    "SampleTimes",
    "SlotStats",
    "WaitStats",
    "WorkerStats",
    "format_bytes",
    "keeps_statistics",
    "language",
    "num_local_ranks",
    "parse_bytes",
]
