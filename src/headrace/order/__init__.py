"""Which sample comes next.

- `epoch`: the samples of an epoch, batch by batch, without those that are left out.
"""

from .epoch import EpochOrder, PlannedBatch

__all__ = ["EpochOrder", "PlannedBatch"]
