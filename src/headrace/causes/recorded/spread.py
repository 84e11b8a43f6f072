"""Means with their error, of times that come in rounds. Pure.

Steps are not independent: workers in lock-step make one long wait in every round. So the spread is taken between means
of blocks that hold whole rounds, and the error is the half-width of the interval that holds the mean in 95 % of cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FEWEST_BLOCKS = 4
_MOST_BLOCKS = 30


@dataclass(frozen=True)
class Mean:
    """A mean and its error, half of the 95 % interval; infinite where there are too few values to tell."""

    value: float
    error: float
    count: int


def mean_of(values: NDArray[np.float64], *, round_length: int = 1) -> Mean:
    """Return the mean of a sequence and its error; a round is so many values long.

    >>> mean_of(np.tile([0.0, 0.0, 3.0], 20), round_length=3)
    Mean(value=1.0, error=0.0, count=60)
    """
    count = len(values)
    if not count:
        return Mean(0.0, math.inf, 0)
    value = float(np.mean(values))
    rounds = count // max(1, round_length)
    if rounds < _FEWEST_BLOCKS:
        round_length, rounds = 1, count  # too short for rounds: the values themselves are all there is
    if rounds < _FEWEST_BLOCKS:
        return Mean(value, math.inf, count)
    per_block = max(1, rounds // _MOST_BLOCKS) * max(1, round_length)
    blocks = count // per_block
    means = values[: blocks * per_block].reshape(blocks, per_block).mean(axis=1)
    error = student(blocks - 1) * float(np.std(means, ddof=1)) / math.sqrt(blocks)
    return Mean(value, error, count)


def student(freedom: int) -> float:
    """Return how many standard errors hold 95 %, to 4 % from 3 degrees of freedom on.

    >>> round(student(3), 1), round(student(10), 2), round(student(1000), 2)
    (3.1, 2.23, 1.96)
    """
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2
