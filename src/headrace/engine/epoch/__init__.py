"""One epoch after another: which samples each batch holds, which rows it waits for, and what the loop gets.

- `plan`: which samples each batch is to hold, and how far the epoch has come.
- `scheduler`: which batch waits for which rows, and which comes out next. Pure: no processes, pipes or clocks.
- `issuing`: a batch goes out to the workers.
- `delivery`: a settled batch becomes what the training loop gets.
- `depth`: how many batches ahead, and how many samples a chunk: pure functions of what was measured.
- `pacing`: the same, taken anew while it runs, by how long the loop waited and what the workers measured.
- `figures`: what the workers' records on the board say.
"""

from .delivery import Delivery
from .depth import Pace, batches_ahead
from .figures import Figures
from .issuing import Issuing
from .pacing import Pacing, WaitLog
from .plan import EpochPlan, FeedSettings, with_rows
from .scheduler import Batch, Scheduler

__all__ = [
    "Batch",
    "Delivery",
    "EpochPlan",
    "FeedSettings",
    "Figures",
    "Issuing",
    "Pace",
    "Pacing",
    "Scheduler",
    "WaitLog",
    "batches_ahead",
    "with_rows",
]
