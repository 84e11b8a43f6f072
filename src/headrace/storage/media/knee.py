"""The knee: the depth after which more readers bring no more bytes. Pure: rates in, a judgement out.

A depth is the knee if no deeper one was faster by more than chance would make it. Chance is measured: each depth was
run in several rounds, and the spread of their rates says how far a median may be off. Where the spread is larger than
what is to be told apart, there is no knee to be had, and we say so instead of naming the depth that was lucky.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_WORTH_IT = 0.10  # a gain below this is not worth twice the readers, however surely it is there
_CERTAIN = 2.0  # standard errors
_TOO_NOISY = 0.5  # a median that may be off by half says nothing
_FALLS = 0.15


class KneeState(enum.StrEnum):
    """What can be said of the knee."""

    FOUND = "found"
    NOT_REACHED = "not_reached"  # the deepest one tried was still faster than the one before
    TOO_NOISY = "too_noisy"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, kw_only=True)
class DepthRate:
    """The rates of one depth, one a round."""

    depth: int
    rates: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rates)

    @property
    def error(self) -> float:
        """How far the median may be off, as a share of it: one standard error, from the rounds."""
        if len(self.rates) < 2 or self.median <= 0:
            return math.inf
        # from the whole spread, which few rounds give best (the mean range of n normal values, in deviations)
        deviations = {2: 1.13, 3: 1.69, 4: 2.06, 5: 2.33}.get(len(self.rates), 2.5)
        deviation = (max(self.rates) - min(self.rates)) / deviations
        return 1.25 * deviation / math.sqrt(len(self.rates)) / self.median


@dataclass(frozen=True, kw_only=True)
class Knee:
    """A judgement on a ladder of depths."""

    state: KneeState
    depth: int | None = None
    rate: float | None = None  # bytes a second at the knee
    gain: float | None = None  # against one reader
    falls_beyond: int | None = None  # from this depth on, more readers bring fewer bytes
    noise: float | None = None  # two standard errors of a rate, as a share: what cannot be told apart


def find_knee(ladder: Sequence[DepthRate]) -> Knee:
    """Return the smallest depth that no deeper one beats, or why there is none.

    >>> rates = {1: (100, 101, 99), 2: (200, 198, 202), 4: (240, 241, 238), 8: (242, 240, 239)}
    >>> find_knee([DepthRate(depth=depth, rates=each) for depth, each in rates.items()]).depth
    4
    """
    ladder = sorted((rung for rung in ladder if rung.rates and rung.median > 0), key=lambda rung: rung.depth)
    if len(ladder) < 2 or any(len(rung.rates) < 2 for rung in ladder):
        return Knee(state=KneeState.NOT_MEASURED)
    noise = _CERTAIN * statistics.median(rung.error for rung in ladder)
    knee = next(rung for rung in ladder if not any(_beats(deeper, rung) for deeper in _deeper(ladder, rung)))
    best = max(rung.median for rung in ladder)
    # A difference that is there in the medians, and worth it, but that chance could have made, is no ground to stop.
    in_doubt = best > (1 + 2 * _WORTH_IT) * knee.median
    if noise > _TOO_NOISY or in_doubt:
        return Knee(state=KneeState.TOO_NOISY, noise=noise)
    is_last = knee is ladder[-1]
    return Knee(
        state=KneeState.NOT_REACHED if is_last else KneeState.FOUND,
        depth=knee.depth,
        rate=knee.median,
        gain=knee.median / ladder[0].median if ladder[0].depth == 1 else None,
        falls_beyond=_falls_beyond(ladder, knee),
        noise=noise,
    )


def _deeper(ladder: Sequence[DepthRate], rung: DepthRate) -> list[DepthRate]:
    return [other for other in ladder if other.depth > rung.depth]


def _beats(deeper: DepthRate, rung: DepthRate) -> bool:
    """Whether it is faster by what is worth having, and not by chance."""
    gain = deeper.median / rung.median - 1
    return gain > max(_WORTH_IT, _CERTAIN * math.hypot(deeper.error, rung.error))


def _falls_beyond(ladder: Sequence[DepthRate], knee: DepthRate) -> int | None:
    """The first depth from which all are slower than the knee, surely and by a good share."""
    falling = None
    for rung in reversed(_deeper(ladder, knee)):
        loss = 1 - rung.median / knee.median
        if loss < max(_FALLS, _CERTAIN * math.hypot(rung.error, knee.error)):
            break
        falling = rung.depth
    return falling
