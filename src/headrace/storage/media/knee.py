"""What a probe of storage found, and what follows from it: the knee, and a depth to read with. Pure."""

import enum
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model import Text

from .kinds import Medium, StorageKind


class Coldness(enum.StrEnum):
    """Whether the bytes came from the storage or from this machine's page cache."""

    COLD = "cold"  # shown: a look found nothing of it in the cache
    WARM = "warm"
    PARTLY = "partly"  # some of it was in the cache
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class MeasuredReading:
    """One way of reading, measured: so many reads at a time, each of one size."""

    depth: int
    read_bytes: int
    rates: tuple[float, ...]  # bytes a second, one a round
    median_s: float  # how long single reads took
    worst_s: float
    coldness: Coldness
    coldness_reason: Text

    @property
    def bytes_per_s(self) -> float:
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """How far the rounds lie from their median, as a share of it."""
        return spread_of(self.rates)


class KneeState(enum.StrEnum):
    FOUND = "found"
    NOT_REACHED = "not_reached"  # the deepest one tried was still faster than the one before
    TOO_NOISY = "too_noisy"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The smallest depth that no deeper one beats."""

    state: KneeState
    depth: int | None = None
    bytes_per_s: float | None = None
    gain: float = 1.0  # against one reader
    noise: float | None = None  # the spread of a usual depth


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """The depth to read with, and what it rests on."""

    io_depth: int
    is_measured: bool
    reason: Text


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What is under a path, and how fast it can be read. Every figure was measured in this run."""

    path: str
    kind: StorageKind
    num_files: int
    file_bytes: int
    examples: tuple[str, ...]
    num_passed_over: int  # files and folders that may not be read, are empty, or have holes
    in_order: MeasuredReading
    warm: MeasuredReading  # the same a second time
    random: tuple[MeasuredReading, ...]  # the ladder of depths
    knee: Knee
    suggestion: Suggestion
    seconds: float


_WORTH_IT = 0.10  # a gain below this is not worth twice the readers
_TOO_NOISY = 0.5  # a rate that may be off by half says nothing

_KNEE = Text("the knee: no deeper one was faster by 10 % and the noise", "拐点：再增加深度，提升不超过 10% 与噪声")
_LAST = Text(
    "the deepest one tried: --depth-max {more} would tell more", "测过的最大深度；可用 --depth-max {more} 继续测"
)


def spread_of(rates: Sequence[float]) -> float:
    """Half the distance between the slowest and the fastest round, as a share of the median."""
    return (max(rates) - min(rates)) / 2 / statistics.median(rates)


def find_knee(rates: Mapping[int, Sequence[float]]) -> Knee:
    """Return the smallest depth that no deeper one beats, or why there is none; `rates` are by depth, one a round.

    A deeper one beats it if it is faster by more than 10 % and by more than the rounds of both differ. Where that
    leaves out a difference that may be there, it is too noisy to name a knee.

    >>> find_knee({1: (100, 101, 99), 2: (200, 198, 202), 4: (240, 241, 238), 8: (242, 240, 239)}).depth
    4
    """
    tried = {depth: each for depth, each in sorted(rates.items()) if each and statistics.median(each) > 0}
    if len(tried) < 2 or any(len(each) < 2 for each in tried.values()):
        return Knee(state=KneeState.NOT_MEASURED)
    medians = {depth: statistics.median(each) for depth, each in tried.items()}
    spreads = {depth: spread_of(each) for depth, each in tried.items()}
    noise, (one, *_, last) = statistics.median(spreads.values()), medians

    def beats(deeper: int, depth: int) -> bool:
        return medians[deeper] / medians[depth] - 1 > max(_WORTH_IT, spreads[deeper] + spreads[depth])

    knee = next(depth for depth in medians if not any(beats(each, depth) for each in medians if each > depth))
    rate = medians[knee]
    if noise > _TOO_NOISY or max(medians.values()) > (1 + 2 * _WORTH_IT) * rate:
        return Knee(state=KneeState.TOO_NOISY, noise=noise)
    return Knee(
        state=KneeState.NOT_REACHED if knee == last else KneeState.FOUND,
        depth=knee,
        bytes_per_s=rate,
        gain=rate / medians[one],
        noise=noise,
    )


def suggest_depth(kind: StorageKind, knee: Knee, ladder: Sequence[MeasuredReading]) -> Suggestion:
    """Return the depth that the measurement speaks for; where it does not, the kind's own, and say so."""
    from_cache = any(reading.coldness in (Coldness.WARM, Coldness.PARTLY) for reading in ladder)
    if knee.depth is None or (from_cache and kind.medium is not Medium.MEMORY):
        return Suggestion(io_depth=kind.starting_depth, is_measured=False, reason=kind.depth_reason)
    reason = _LAST.filled(more=2 * knee.depth) if knee.state is KneeState.NOT_REACHED else _KNEE
    return Suggestion(io_depth=knee.depth, is_measured=True, reason=reason)
