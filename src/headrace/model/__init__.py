"""The words that several rooms share: plain values, no I/O, no torch.

- `adjustments`: what a loader changes of itself while it runs, and why.
- `environment`: the environment variables that are read.
- `error_policy`: what to do about a sample that failed: whether its error may pass, how many are too many.
- `error_text`: what an exception of foreign code says of itself, whatever its methods do; what to do about a file that
  cannot be written.
- `events`: what can happen in a training, as numbers that a ring can hold; what a loader was asked for.
- `failures`: a sample that failed, as a value, and what may be decided about it.
- `findings`: what a diagnosis says: verdict, findings, causes, tables of time.
- `frames`: what our own functions mean in a stack that is read from outside.
- `samples`: what names a sample, and what lies in it.
- `stages`: the clock that a data set carries, `stage("volume process")`, and what stages took, as figures to read.
- `stats`: what a loader says of itself at one moment.
- `words`: sentences in every language that we speak, and figures in them.
"""

from .adjustments import Adjustment, AdjustmentReason, Lever
from .environment import (
    cache_folder,
    config_path,
    feed_mode,
    feeds_random,
    find_rank,
    keeps_stats,
    keeps_worker_heap,
    language,
    num_local_ranks,
    profile_name,
    recording_place,
    replay_steps,
    setting_text,
    worker_threads,
)
from .error_policy import BadTally, ErrorPolicy, Replacement, backoff_s, is_transient
from .error_text import ErrorText, describe_error, error_name, is_from_signal, shorten, traceback_of, write_step
from .events import LAUNCH_NS, EventKind, FeedNote, FeedReason, LoaderSettings, copied_ns, copy_arg, is_copy_timed
from .failures import RAISE, RETRY, SKIP, Decision, FailureKind, SampleFailure, first_line, utc_now
from .findings import (
    Activity,
    Bottleneck,
    Cause,
    Confidence,
    FeedRow,
    Finding,
    Findings,
    LoaderRole,
    LoaderRow,
    PartKind,
    PartRow,
    Severity,
    TimeRow,
    Verdict,
    gain_of,
)
from .frames import WORKER_THREAD, OwnStep, lies_in_room, step_of, worker_number
from .samples import SampleKeys, is_json_key, key_text, leaves_of, nbytes_of, plain_key
from .stages import (
    STAGE_TABLE_WORDS,
    Stages,
    StageTable,
    merge_stages,
    read_stages,
    record_stages,
    sample,
    stage,
    stages_of,
    watch_stages,
    watches_samples,
)
from .stats import EpochAccount, LoaderStats, ReaderStats, SampleTimes, SlotStats, WaitStats, WorkerStats
from .words import (
    LANGUAGES,
    Count,
    Text,
    format_bytes,
    format_seconds,
    format_share,
    parse_bytes,
    three_digits,
    with_error,
)

__all__ = [
    "LANGUAGES",
    "LAUNCH_NS",
    "RAISE",
    "RETRY",
    "SKIP",
    "STAGE_TABLE_WORDS",
    "WORKER_THREAD",
    "Activity",
    "Adjustment",
    "AdjustmentReason",
    "BadTally",
    "Bottleneck",
    "Cause",
    "Confidence",
    "Count",
    "Decision",
    "EpochAccount",
    "ErrorPolicy",
    "ErrorText",
    "EventKind",
    "FailureKind",
    "FeedNote",
    "FeedReason",
    "FeedRow",
    "Finding",
    "Findings",
    "Lever",
    "LoaderRole",
    "LoaderRow",
    "LoaderSettings",
    "LoaderStats",
    "OwnStep",
    "PartKind",
    "PartRow",
    "ReaderStats",
    "Replacement",
    "SampleFailure",
    "SampleKeys",
    "SampleTimes",
    "Severity",
    "SlotStats",
    "StageTable",
    "Stages",
    "Text",
    "TimeRow",
    "Verdict",
    "WaitStats",
    "WorkerStats",
    "backoff_s",
    "cache_folder",
    "config_path",
    "copied_ns",
    "copy_arg",
    "describe_error",
    "error_name",
    "feed_mode",
    "feeds_random",
    "find_rank",
    "first_line",
    "format_bytes",
    "format_seconds",
    "format_share",
    "gain_of",
    "is_copy_timed",
    "is_from_signal",
    "is_json_key",
    "is_transient",
    "keeps_stats",
    "keeps_worker_heap",
    "key_text",
    "language",
    "leaves_of",
    "lies_in_room",
    "merge_stages",
    "nbytes_of",
    "num_local_ranks",
    "parse_bytes",
    "plain_key",
    "profile_name",
    "read_stages",
    "record_stages",
    "recording_place",
    "replay_steps",
    "sample",
    "setting_text",
    "shorten",
    "stage",
    "stages_of",
    "step_of",
    "three_digits",
    "traceback_of",
    "utc_now",
    "watch_stages",
    "watches_samples",
    "with_error",
    "worker_number",
    "worker_threads",
    "write_step",
]
