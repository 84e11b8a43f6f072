"""Whether a batch holds the samples that it is to be delivered with."""

from __future__ import annotations

from enum import Enum


class Homecoming(Enum):
    """What came of moving samples to the batches that are to be delivered with them."""

    DONE = 1
    NOT_YET = 2  # a sample that the batch waits for is not there
    CANNOT = 3  # plan the batch anew, and all after it
