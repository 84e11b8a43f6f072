"""Logs as text: from bytes to records of steps.

- `lines`: a log as clean lines with their time stamps, from a file, a compressed file or standard input.
- `fields`: what one line of any logger tells: step, durations, settings, slow batches, saves and evaluations.
- `endings`: how a log ends: exceptions that nobody caught, signals, the words of a normal end.
- `reader`: lines and the redraws of bars in, records, markers and settings out.
- `evidence`: what a log's own figures stand for: steps, means, windows, a sample.
- `series`: steps in their order, with wall time and wait, of all ranks and logs of a run.
"""

from .endings import LogEnd, Raised, read_end
from .evidence import Known
from .fields import Doing, Marker, split_numbers
from .reader import LogReader, read_log
from .series import FEWEST, FILE_STRIDE, LogStreams, Series, join_logs

__all__ = [
    "FEWEST",
    "FILE_STRIDE",
    "Doing",
    "Known",
    "LogEnd",
    "LogReader",
    "LogStreams",
    "Marker",
    "Raised",
    "Series",
    "join_logs",
    "read_end",
    "read_log",
    "split_numbers",
]
