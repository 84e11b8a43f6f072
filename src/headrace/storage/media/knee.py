"""What a probe of storage found, and what follows from it: the knee, and a depth to read with. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model import Said, Text

from .kinds import Medium, StorageKind


class Coldness(Said):
    """Whether the bytes came from the storage or from this machine's page cache."""

    COLD = "cold", Text("storage (cold)", "存储（冷）")  # shown: a look found nothing of it in the cache
    WARM = "warm", Text("memory (warm)", "内存（热）")
    PARTLY = "partly", Text("partly page cache", "部分来自页缓存")
    UNKNOWN = "unknown", Text("unknown", "未知")


@dataclass(frozen=True)
class MeasuredReading:
    """One way of reading, measured: so many reads at a time, each of one size."""

    depth: int
    read_bytes: int
    bytes_per_s: float
    coldness: Coldness
    reason: Text | None = None  # why it is neither cold nor warm, or how far it is cold


_FOUND = Text("Knee at {depth}: more reads at a time bring no more.", "拐点：{depth} 路并发；再多也不会更快。")
_NOT_REACHED = Text(
    "Knee: not reached. --depth-max {more} would tell more.", "拐点：尚未出现，可用 --depth-max {more} 继续测。"
)
_TOO_NOISY = Text(
    "Knee: withheld. Rates differ from round to round by more than what is to be told apart.",
    "拐点：不予给出。各轮速率之差大于需要分辨的差别。",
)


class KneeState(Said):
    FOUND = "found", _FOUND
    NOT_REACHED = "not_reached", _NOT_REACHED  # the deepest one tried was still faster than the one before
    TOO_NOISY = "too_noisy", _TOO_NOISY
    NOT_MEASURED = "not_measured", Text("Knee: not measured.", "拐点：未测定。")


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The smallest depth that no deeper one beats."""

    state: KneeState
    depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What is under a path, and how fast it can be read. Every figure was measured in this run."""

    kind: StorageKind
    num_files: int
    file_bytes: int
    in_order: MeasuredReading
    warm: MeasuredReading  # the same a second time
    random: tuple[MeasuredReading, ...]  # the ladder of depths
    knee: Knee

    @property
    def io_depth(self) -> int | None:
        """The depth to read with: the knee, where it is the storage's and not that of a cache before it."""
        is_cached = any(reading.coldness in (Coldness.WARM, Coldness.PARTLY) for reading in self.random)
        return None if is_cached and self.kind.medium is not Medium.MEMORY else self.knee.depth


_WORTH_IT = 0.10  # a gain below this is not worth twice the readers
_MOST_NOISE = 0.5  # a rate that may be off by half says nothing


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
    # half the distance between the slowest and the fastest round, as a share of the median
    spreads = {depth: (max(each) - min(each)) / 2 / medians[depth] for depth, each in tried.items()}

    def beats(deeper: int, depth: int) -> bool:
        return medians[deeper] / medians[depth] - 1 > max(_WORTH_IT, spreads[deeper] + spreads[depth])

    knee = next(depth for depth in medians if not any(beats(each, depth) for each in medians if each > depth))
    is_faster_elsewhere = max(medians.values()) > (1 + 2 * _WORTH_IT) * medians[knee]
    if is_faster_elsewhere or statistics.median(spreads.values()) > _MOST_NOISE:
        return Knee(state=KneeState.TOO_NOISY)
    return Knee(state=KneeState.NOT_REACHED if knee == max(medians) else KneeState.FOUND, depth=knee)
