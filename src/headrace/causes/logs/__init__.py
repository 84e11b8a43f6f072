"""Logs as text: from bytes to records of steps.

- `lines`: a log as clean lines, from a file, a compressed file or standard input.
- `fields`: what one line of any logger tells: time, step, durations, settings, slow batches.
- `bars`: progress bars, and the time of each redraw.
- `endings`: how a log ends: exceptions that nobody caught, signals, the words of a normal end.
- `markers`: lines that say what the loop does besides training.
- `reader`: lines in, records, markers and settings out.
- `evidence`: what a log's own figures stand for: steps, means, windows, a sample.
- `series`: steps in their order, with wall time and wait.
- `merging`: several logs of one run as one.
"""

from .endings import LogEnd, Raised, read_end
from .evidence import Known
from .fields import Recent, split_numbers
from .lines import LineCutter, read_chunks
from .markers import Doing, Marker
from .merging import FILE_STRIDE, LogStreams, join_logs
from .reader import LogContent, LogReader
from .series import FEWEST, Series

__all__ = [
    "FEWEST",
    "FILE_STRIDE",
    "Doing",
    "Known",
    "LineCutter",
    "LogContent",
    "LogEnd",
    "LogReader",
    "LogStreams",
    "Marker",
    "Raised",
    "Recent",
    "Series",
    "join_logs",
    "read_chunks",
    "read_end",
    "split_numbers",
]
