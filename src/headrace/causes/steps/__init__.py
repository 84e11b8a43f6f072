"""A series of steps: which were slow, at which distances, and where the time went.

- `data_waits`: what the waits for data say: a pool that is too slow, workers in lock-step, or single late batches.
- `drift`: whether steps became slower at some point and stayed so.
- `losses`: where the time of a series of steps went: to data, to what the log speaks of, or to nobody knows what. …
- `marks`: which slow steps stand beside a line that says what the loop was doing.
- `periods`: whether slow steps come at equal distances, and at which.
- `stalls`: which steps took much longer than they typically do, and by how much.
- `timeline`: where a thread's time went, from events that lie inside each other: every moment is counted exactly o…
- `unexplained`: what a distance between slow steps may be called when no line and no wait explains them.
"""

from .losses import REPORT_FROM, REPORT_FROM_ELSE, REPORT_ONCE_FROM, Analysis, Loss, analyse
from .periods import Period, find_period, find_rhythm
from .stalls import of_weight
from .timeline import Span, exclusive_times

__all__ = [
    "REPORT_FROM",
    "REPORT_FROM_ELSE",
    "REPORT_ONCE_FROM",
    "Analysis",
    "Loss",
    "Period",
    "Span",
    "analyse",
    "exclusive_times",
    "find_period",
    "find_rhythm",
    "of_weight",
]
