"""The words that several rooms share: plain values, no I/O, no torch.

- `copy_times`: what an event of a copy to the device tells.
- `environment`: the environment variables that are read.
- `error_policy`: what to do about a sample that failed, and how many are too many.
- `error_text`: what an exception of foreign code says of itself, whatever its methods do.
- `events`: what can happen in a training, as numbers that a ring can hold.
- `failures`: a sample that failed, as a value, and what may be decided about it.
- `findings`: what a diagnosis says: verdict, findings, causes.
- `frames`: what our own functions mean in a stack that is read from outside.
- `loader_settings`: what a loader was asked for, as a recording keeps it.
- `numbers`: numbers as people read them: three digits and a unit.
- `part_table`: where the time of workers went.
- `sample_keys`: what names a sample.
- `sizes`: byte counts as people write them ("8GiB").
- `stage_report`: what stages took, as figures and as a table to read.
- `stage_table`: stage times in plain words, so that processes can share them.
- `stages`: the clock that a data set carries: `stage("volume process")`.
- `stats`: what a loader says of itself at one moment.
- `time_table`: where the time of a process went.
- `text`: a sentence in every language that we speak.
- `transient`: errors that may pass by themselves, and how long to wait.
"""

from .copy_times import LAUNCH_NS, copied_ns, copy_arg, is_copy_timed
from .environment import (
    cache_folder,
    find_rank,
    keeps_statistics,
    language,
    num_local_ranks,
    prints_timing,
    recording_place,
    replay_steps,
)
from .error_policy import BadTally, ErrorPolicy, OnError, Replacement, is_too_many
from .error_text import ErrorText, describe_error, error_name, shorten, traceback_of, type_name
from .events import EventKind
from .failures import RAISE, RETRY, SKIP, Decision, FailureKind, SampleFailure, first_line, utc_now
from .findings import SCHEMA, Bottleneck, Cause, Confidence, Finding, Findings, Severity, Verdict, gain_of
from .frames import OWN_FRAMES, WORKER_THREAD, OwnStep, lies_in_room, step_of, worker_number
from .loader_settings import LoaderSettings
from .numbers import format_seconds, format_share, three_digits
from .part_table import PartKind, PartRow
from .sample_keys import OpaqueKey, SampleKeys, is_json_key, key_text, plain_key
from .sizes import format_bytes, parse_bytes
from .stage_report import Stages, StageStats, stages_of
from .stage_table import STAGE_TABLE_WORDS, StageRow, StageTable, merge_stages, read_stages
from .stages import (
    Sample,
    Stage,
    StageWatcher,
    print_timing,
    record_stages,
    sample,
    stage,
    watch_stages,
    watches_samples,
)
from .stats import EpochAccount, LoaderStats, ReaderStats, SampleTimes, SlotStats, WaitStats, WorkerStats
from .text import LANGUAGES, Text
from .time_table import Activity, TimeRow
from .transient import backoff_s, is_transient

__all__ = [
    "LANGUAGES",
    "LAUNCH_NS",
    "OWN_FRAMES",
    "RAISE",
    "RETRY",
    "SCHEMA",
    "SKIP",
    "STAGE_TABLE_WORDS",
    "WORKER_THREAD",
    "Activity",
    "BadTally",
    "Bottleneck",
    "Cause",
    "Confidence",
    "Decision",
    "EpochAccount",
    "ErrorPolicy",
    "ErrorText",
    "EventKind",
    "FailureKind",
    "Finding",
    "Findings",
    "LoaderSettings",
    "LoaderStats",
    "OnError",
    "OpaqueKey",
    "OwnStep",
    "PartKind",
    "PartRow",
    "ReaderStats",
    "Replacement",
    "Sample",
    "SampleFailure",
    "SampleKeys",
    "SampleTimes",
    "Severity",
    "SlotStats",
    "Stage",
    "StageRow",
    "StageStats",
    "StageTable",
    "StageWatcher",
    "Stages",
    "Text",
    "TimeRow",
    "Verdict",
    "WaitStats",
    "WorkerStats",
    "backoff_s",
    "cache_folder",
    "copied_ns",
    "copy_arg",
    "describe_error",
    "error_name",
    "find_rank",
    "first_line",
    "format_bytes",
    "format_seconds",
    "format_share",
    "gain_of",
    "is_copy_timed",
    "is_json_key",
    "is_too_many",
    "is_transient",
    "keeps_statistics",
    "key_text",
    "language",
    "lies_in_room",
    "merge_stages",
    "num_local_ranks",
    "parse_bytes",
    "plain_key",
    "print_timing",
    "prints_timing",
    "read_stages",
    "record_stages",
    "recording_place",
    "replay_steps",
    "sample",
    "shorten",
    "stage",
    "stages_of",
    "step_of",
    "three_digits",
    "traceback_of",
    "type_name",
    "utc_now",
    "watch_stages",
    "watches_samples",
    "worker_number",
]
