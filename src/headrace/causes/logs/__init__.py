"""Logs as text: from bytes to records of steps.

- `source`: where a log comes from, in chunks of plain bytes.
- `lines`: chunks cut into clean lines.
- `times`: time stamps of any logger.
- `fields`: numbers with names and units in a line of any logger.
- `shapes`: lines that differ in their numbers only.
- `bars`: progress bars.
- `clock`: the time of each redraw of a bar.
- `slow_batches`: reports of slow batches alone.
- `markers`: lines that say what the loop does besides training.
- `settings`: settings that a log tells.
- `store`: the records, in memory that does not grow with the log.
- `reader`: lines in, records, markers and settings out.
- `merging`: several logs of one run as one.
- `series`: steps in their order, with wall time and wait.
- `smoothing`: averages over the last steps, taken apart again.
"""

from .lines import LineCutter
from .markers import Doing, Marker
from .merging import FILE_STRIDE, Streams, join_logs
from .reader import LogContent, LogReader
from .series import Series
from .slow_batches import Recent
from .source import read_chunks
from .store import StepStore

__all__ = [
    "FILE_STRIDE",
    "Doing",
    "LineCutter",
    "LogContent",
    "LogReader",
    "Marker",
    "Recent",
    "Series",
    "StepStore",
    "Streams",
    "join_logs",
    "read_chunks",
]
