"""Logs as text: from bytes to records of steps.

- `lines`: a log as clean lines, from a file, a compressed file or standard input.
- `fields`: what one line of any logger tells: time, step, durations, settings, slow batches.
- `bars`: progress bars, and the time of each redraw.
- `markers`: lines that say what the loop does besides training.
- `reader`: lines in, records, markers and settings out.
- `series`: steps in their order, with wall time and wait.
- `merging`: several logs of one run as one.
"""

from .fields import Recent
from .lines import LineCutter, read_chunks
from .markers import Doing, Marker
from .merging import FILE_STRIDE, LogStreams, join_logs
from .reader import LogContent, LogReader
from .series import Series, StepStore

__all__ = [
    "FILE_STRIDE",
    "Doing",
    "LineCutter",
    "LogContent",
    "LogReader",
    "LogStreams",
    "Marker",
    "Recent",
    "Series",
    "StepStore",
    "join_logs",
    "read_chunks",
]
