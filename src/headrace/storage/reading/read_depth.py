"""How many reads to keep in flight, from what is measured. Pure: no clocks, no threads."""

from __future__ import annotations

from dataclasses import dataclass

# less than this is noise between two periods
_BETTER = 1.05
# workers that spend less of their time waiting for bytes would not be quicker with more
_WAITING_SHARE = 0.02
# periods after which a depth that brought nothing is tried again: storage that is shared changes
_TRY_AGAIN_PERIODS = 60


@dataclass(frozen=True, kw_only=True)
class Period:
    """What happened in a stretch of time at one depth."""

    bytes_per_s: float
    waiting_share: float  # of the workers' time that they waited for bytes
    full_share: float  # of the moments looked at, those at which all reads that may be in flight were


class ReadDepth:
    """Grows the depth while more of it brings more bytes and workers wait for them.

    >>> depth = ReadDepth(2, most=64)
    >>> busy = dict(waiting_share=0.5, full_share=1.0)
    >>> [depth.next(Period(bytes_per_s=rate, **busy)) for rate in (100e6, 150e6, 151e6, 150e6)]
    [4, 8, 4, 4]
    """

    def __init__(self, depth: int, *, most: int) -> None:
        self.depth, self._most = depth, most
        self._before: tuple[int, float] | None = None  # the depth below this one on trial, and its rate
        self._rest = 0  # periods to stay as it is

    def next(self, period: Period) -> int:
        """The depth for the next period."""
        if self._before is not None:
            below, rate = self._before
            self._before = None
            if period.bytes_per_s < rate * _BETTER:
                self.depth, self._rest = below, _TRY_AGAIN_PERIODS
                return self.depth
        if self._rest:
            self._rest -= 1
        elif period.waiting_share >= _WAITING_SHARE and period.full_share >= 0.5 and self.depth < self._most:
            self._before = self.depth, period.bytes_per_s
            self.depth = min(self._most, 2 * self.depth)
        return self.depth
