"""What an epoch needs beside its workers: which batch waits for which rows, and what the loop gets.

- `delivery`: a settled batch becomes what the training loop gets.
- `depth`: how many batches ahead, and how many samples a chunk: pure functions of what was measured.
- `figures`: what the workers' records on the board say, as figures.
- `known_layouts`: the layouts that samples were seen to have, and slots for batches of them.
- `scheduler`: which batch waits for which rows, and which comes out next. Pure: no processes, pipes or clocks.
- `settings`: how a feed runs its epochs.
- `thread_trial`: finds out, once, what a second thread in a worker would bring.
- `turns`: whose turn it is among the workers of an iterable data set: each fills batches of its own.
- `waits`: how long the training loop waited for its batches.
"""

from .delivery import Delivery
from .depth import Pace, batches_ahead, chunk_samples
from .figures import Figures
from .known_layouts import KnownLayouts
from .scheduler import Batch, Scheduler
from .settings import FeedSettings
from .thread_trial import ThreadTrial
from .turns import Turns
from .waits import WaitLog

__all__ = [
    "Batch",
    "Delivery",
    "FeedSettings",
    "Figures",
    "KnownLayouts",
    "Pace",
    "Scheduler",
    "ThreadTrial",
    "Turns",
    "WaitLog",
    "batches_ahead",
    "chunk_samples",
]
