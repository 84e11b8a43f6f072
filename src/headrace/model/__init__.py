"""The words that several rooms share: plain values, no I/O, no torch.

- `environment`: the environment variables that are read.
- `sizes`: byte counts as people write them ("8GiB").
- `stage_report`: what stages took, as figures and as a table to read.
- `stage_table`: stage times in plain words, so that processes can share them.
- `stages`: the clock that a data set carries: `stage("volume process")`.
- `stats`: what a loader says of itself at one moment.
"""

from .environment import keeps_statistics, language, num_local_ranks, prints_timing
from .sizes import format_bytes, parse_bytes
from .stage_report import Stages, StageStats, stages_of
from .stage_table import STAGE_TABLE_WORDS, StageRow, StageTable, merge_stages, read_stages
from .stages import Sample, Stage, print_timing, record_stages, sample, stage, watches_samples
from .stats import LoaderStats, SampleTimes, SlotStats, WaitStats, WorkerStats

__all__ = [
    "STAGE_TABLE_WORDS",
    "LoaderStats",
    "Sample",
    "SampleTimes",
    "SlotStats",
    "Stage",
    "StageRow",
    "StageStats",
    "StageTable",
    "Stages",
    "WaitStats",
    "WorkerStats",
    "format_bytes",
    "keeps_statistics",
    "language",
    "merge_stages",
    "num_local_ranks",
    "parse_bytes",
    "print_timing",
    "prints_timing",
    "read_stages",
    "record_stages",
    "sample",
    "stage",
    "stages_of",
    "watches_samples",
]
