"""The words that several rooms share: plain values, no I/O, no torch.

- `environment`: the environment variables that are read.
- `findings`: what a diagnosis says: verdict, findings, causes.
- `numbers`: numbers as people read them: three digits and a unit.
- `sizes`: byte counts as people write them ("8GiB").
- `stats`: what a loader says of itself at one moment.
- `text`: a sentence in every language that we speak.
"""

from .environment import keeps_statistics, language, num_local_ranks
from .findings import (
    SCHEMA,
    Bottleneck,
    Cause,
    Confidence,
    Finding,
    Findings,
    Severity,
    Verdict,
    gain_of,
)
from .numbers import format_seconds, format_share, three_digits
from .sizes import format_bytes, parse_bytes
from .stats import LoaderStats, SampleTimes, SlotStats, WaitStats, WorkerStats
from .text import LANGUAGES, Text

__all__ = [
    "LANGUAGES",
    "SCHEMA",
    "Bottleneck",
    "Cause",
    "Confidence",
    "Finding",
    "Findings",
    "LoaderStats",
    "SampleTimes",
    "Severity",
    "SlotStats",
    "Text",
    "Verdict",
    "WaitStats",
    "WorkerStats",
    "format_bytes",
    "format_seconds",
    "format_share",
    "gain_of",
    "keeps_statistics",
    "language",
    "num_local_ranks",
    "parse_bytes",
    "three_digits",
]
