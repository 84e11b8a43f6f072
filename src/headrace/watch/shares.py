"""Shares of time from samples that follow each other, with an interval that allows for their likeness. Pure."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_Z = 1.96  # 95 %


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of time and its 95 % interval, 0 to 1."""

    value: float
    low: float
    high: float
    num_samples: int

    def as_json(self) -> dict[str, float | int]:
        share, low, high = (round(one, 4) for one in (self.value, self.low, self.high))
        return {"share": share, "low": low, "high": high, "samples": self.num_samples}


NOTHING_SEEN = Share(value=0.0, low=0.0, high=1.0, num_samples=0)


def share_of(hits: Sequence[bool]) -> Share:
    """Estimate the share of time from looks at even distances.

    Two looks 50 ms apart mostly see the same wait, so n looks count as fewer independent ones: n / tau, where tau is
    the autocorrelation time of the looks themselves. The interval is Wilson's with that count.

    >>> share_of([True, False] * 50).value
    0.5
    >>> share_of([]).high
    1.0
    """
    n = len(hits)
    if n == 0:
        return NOTHING_SEEN
    p = sum(hits) / n
    effective = max(1.0, n / _correlation_time(hits, p))
    centre = (p + _Z**2 / (2 * effective)) / (1 + _Z**2 / effective)
    half = _Z / (1 + _Z**2 / effective) * math.sqrt(p * (1 - p) / effective + _Z**2 / (4 * effective**2))
    return Share(value=p, low=max(0.0, min(p, centre - half)), high=min(1.0, max(p, centre + half)), num_samples=n)


class Track:
    """What one thing did at even distances of time, as many looks as are worth keeping.

    When there are too many, every second one goes, then and from then on: the shares stay those of the whole time.
    """

    def __init__(self, most: int = 2048) -> None:
        self._most, self._stride, self._skip = most, 1, 0
        self.looks: list[Hashable] = []

    def add(self, what: Hashable) -> None:
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._stride - 1
        self.looks.append(what)
        if len(self.looks) >= self._most:
            self.looks = self.looks[::2]
            self._stride *= 2

    def share(self, what: Hashable) -> Share:
        return share_of([look == what for look in self.looks])


def _correlation_time(hits: Sequence[bool], p: float) -> float:
    """How many looks are worth one: (1 + r) / (1 - r), where r is how alike neighbours are."""
    chance = 2 * p * (1 - p) * (len(hits) - 1)  # changes from one look to the next, if each were by itself
    changes = sum(a != b for a, b in pairwise(hits))
    if not changes or len(hits) < 8:
        # all looks alike: how long a state lasts was not seen; one change may be as rare as the whole window is long
        return max(1.0, len(hits) / 20)
    return max(1.0, (2 * chance - changes) / changes)
