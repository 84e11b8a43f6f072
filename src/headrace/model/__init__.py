"""The words that several rooms share: plain values, no I/O, no torch.

- `environment`: the environment variables that are read.
- `error_policy`: what to do about a sample that failed, and how many are too many.
- `failures`: a sample that failed, as a value, and what may be decided about it.
- `sample_keys`: what names a sample.
- `sizes`: byte counts as people write them ("8GiB").
- `stats`: what a loader says of itself at one moment.
- `transient`: errors that may pass by themselves, and how long to wait.
"""

from .environment import find_rank, keeps_statistics, language, num_local_ranks
from .error_policy import BadTally, ErrorPolicy, OnError, Replacement, is_too_many
from .failures import RAISE, RETRY, SKIP, Decision, FailureKind, SampleFailure, first_line, type_name, utc_now
from .sample_keys import OpaqueKey, SampleKeys, is_json_key, key_text, plain_key
from .sizes import format_bytes, parse_bytes
from .stats import EpochAccount, LoaderStats, SampleTimes, SlotStats, WaitStats, WorkerStats
from .transient import backoff_s, is_transient

__all__ = [
    "RAISE",
    "RETRY",
    "SKIP",
    "BadTally",
    "Decision",
    "EpochAccount",
    "ErrorPolicy",
    "FailureKind",
    "LoaderStats",
    "OnError",
    "OpaqueKey",
    "Replacement",
    "SampleFailure",
    "SampleKeys",
    "SampleTimes",
    "SlotStats",
    "WaitStats",
    "WorkerStats",
    "backoff_s",
    "find_rank",
    "first_line",
    "format_bytes",
    "is_json_key",
    "is_too_many",
    "is_transient",
    "keeps_statistics",
    "key_text",
    "language",
    "num_local_ranks",
    "parse_bytes",
    "plain_key",
    "type_name",
    "utc_now",
]
