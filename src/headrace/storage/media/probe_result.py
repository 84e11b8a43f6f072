"""What a probe of storage found, and what follows from it: whether reads were cold, the knee, a depth. Pure.

A depth is the knee if no deeper one was faster by more than chance would make it. Chance is measured: each depth was
run in several rounds, and the spread of their rates says how far a median may be off. Where the spread is larger than
what is to be told apart, there is no knee to be had, and we say so instead of naming the depth that was lucky.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model import Text, format_share

from .kinds import Medium, StorageKind


class Coldness(enum.StrEnum):
    """Whether the bytes came from the storage or from this machine's page cache."""

    COLD = "cold"  # shown: past the cache, or checked
    WARM = "warm"
    PARTLY = "partly"  # some of them came from the cache
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Latency:
    """How long single reads took."""

    median_s: float
    p95_s: float
    worst_s: float


@dataclass(frozen=True, kw_only=True)
class MeasuredReading:
    """One way of reading, measured: so many readers at a time, reads of one size."""

    depth: int
    read_bytes: int | None  # size of a read; None: whole files
    rates: tuple[float, ...]  # bytes a second, one a round
    reads_per_s: float
    num_reads: int
    num_bytes: int
    seconds: float
    latency: Latency
    coldness: Coldness
    coldness_reason: Text
    is_direct: bool
    fetched_share: float | None  # what came from block devices, of what was read; None: not counted
    processors: float  # how many were busy with it, by the processor time of this process

    @property
    def bytes_per_s(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rates)


@dataclass(frozen=True, kw_only=True)
class FilesUsed:
    """Which files a probe read."""

    num_large: int
    large_bytes: int
    num_small: int
    small_bytes: int
    examples: tuple[str, ...]
    num_seen: int
    is_all_seen: bool  # False: the folder holds more than was looked at
    passed_over: Mapping[str, int]  # why, and how many: "sparse", "unreadable", "empty"
    is_temporary: bool = False  # a file of our own, removed again


class KneeState(enum.StrEnum):
    """What can be said of the knee."""

    FOUND = "found"
    NOT_REACHED = "not_reached"  # the deepest one tried was still faster than the one before
    TOO_NOISY = "too_noisy"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, kw_only=True)
class Knee:
    """A judgement on a ladder of depths."""

    state: KneeState
    depth: int | None = None
    rate: float | None = None  # bytes a second at the knee
    gain: float | None = None  # against one reader
    falls_beyond: int | None = None  # from this depth on, more readers bring fewer bytes
    noise: float | None = None  # two standard errors of a rate, as a share: what cannot be told apart


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """The depth to read with, and what it rests on."""

    io_depth: int
    is_measured: bool
    reason: Text


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What is under a path, and how fast it can be read. Every figure was measured in this run; None: it was not."""

    path: str
    kind: StorageKind
    files: FilesUsed
    in_order: tuple[MeasuredReading, ...]  # one reader, then several, each through its own part
    random: tuple[MeasuredReading, ...]  # the ladder of depths
    small_random: MeasuredReading | None
    warm: MeasuredReading | None
    whole_files: tuple[MeasuredReading, ...]  # small files, opened and read whole: one reader, then several
    knee: Knee
    suggestion: Suggestion
    unknown: tuple[Text, ...]  # what could not be learnt, and why
    seconds: float
    num_bytes: int
    num_processors: int

    @property
    def ladder(self) -> tuple[MeasuredReading, ...]:
        """The readings that the knee was judged from."""
        return self.random or self.whole_files

    def __repr__(self) -> str:
        best = max((reading.bytes_per_s for reading in self.random), default=0.0)
        return f"ProbeResult({self.kind.name!r}, knee={self.knee.depth}, best={best / 1e6:.0f} MB/s)"


# ------------------------------------------------------------------ cold or warm

_ALL = 0.9  # of the bytes came from the device: readahead and shared blocks make it inexact
_HARDLY_ANY = 0.1
_NEARLY_NONE = 0.02  # of the pages were left in the cache

_IS_MEMORY = Text("it is memory: nothing is ever cold", "本身就是内存，没有“冷”可言")
_PAST = Text("read past the page cache (O_DIRECT)", "绕过页缓存读取（O_DIRECT）")
_BEHIND_FUSE = Text("the program behind FUSE may answer from a cache of its own", "FUSE 背后的程序可能从自己的缓存作答")
_DROPPED = Text(
    "dropped from the page cache, and a look showed that it was gone", "先逐出页缓存，再检查确认已不在缓存中"
)
_COUNTED = Text(
    "{share} of the bytes came from the device, by the kernel's own count",
    "按内核计数，{share} 的字节确实来自设备",
)
_FROM_CACHE = Text(
    "only {share} of the bytes came from the device, by the kernel's own count: the rest was in the page cache",
    "按内核计数，只有 {share} 的字节来自设备，其余来自页缓存",
)
_LEFT = Text(
    "{share} of it stayed in the page cache: mapped, locked or not yet written",
    "{share} 仍留在页缓存中：被映射、被锁定或尚未写回",
)
_NOT_CHECKED = Text(
    "dropping it from the page cache could not be checked: the files are not ours",
    "已请求逐出页缓存，但无法检查：这些文件不属于当前用户",
)
_NOT_KEPT = Text("this file system keeps nothing in the page cache", "该文件系统不把数据留在页缓存中")
_WARM = Text("read a moment before, so it is in the page cache", "刚刚读过，已在页缓存中")

_HOST_CACHES = Text("the host of the virtual disk may cache what was read", "虚拟磁盘的宿主机可能缓存了数据")
_SERVER_CACHES = Text("the server's cache cannot be dropped from here", "服务器端的缓存无法从这里清除")
_FUSE_CACHES = Text("the program behind FUSE may have a cache of its own", "FUSE 背后的程序可能有自己的缓存")
_ZFS_CACHES = Text("ZFS caches in its ARC, which cannot be dropped from here", "ZFS 的 ARC 缓存无法从这里清除")


def judge_coldness(
    kind: StorageKind, *, is_direct: bool, cached_before: float | None, fetched_share: float | None
) -> tuple[Coldness, Text]:
    """Return whether reads were cold, and how that is known.

    `cached_before` is the share that was in the page cache when reading began, `fetched_share` what block devices
    delivered of what was read; each `None` where it is not known. Of this machine's page cache alone: what a server, a
    host or a controller keeps is not to be seen from here.
    """
    if kind.medium is Medium.MEMORY:
        return Coldness.WARM, _IS_MEMORY
    # on a disk that is only guessed, a count of nothing may mean that it is another one
    if fetched_share is not None and kind.disks and (fetched_share >= _ALL or not kind.is_guessed):
        if fetched_share >= _ALL:
            return Coldness.COLD, _PAST if is_direct else _COUNTED.filled(share=_percent(fetched_share))
        state = Coldness.WARM if fetched_share < _HARDLY_ANY else Coldness.PARTLY
        return state, _FROM_CACHE.filled(share=_percent(fetched_share))
    if kind.is_fuse:
        return Coldness.UNKNOWN, _BEHIND_FUSE
    if is_direct and kind.medium is not Medium.ZFS:
        return Coldness.COLD, _PAST
    if cached_before is None:
        return Coldness.UNKNOWN, _NOT_CHECKED
    if cached_before <= _NEARLY_NONE:
        return Coldness.COLD, _DROPPED
    return Coldness.PARTLY, _LEFT.filled(share=_percent(cached_before))


def judge_warmth(fetched_share: float | None, *, cached_now: float | None) -> tuple[Coldness, Text]:
    """Return whether a second reading came from the cache; `cached_now`: the share of it that is there afterwards."""
    if fetched_share is None and cached_now is not None and cached_now < _ALL:
        return Coldness.UNKNOWN, _NOT_KEPT
    if fetched_share is not None and fetched_share > _HARDLY_ANY:
        return Coldness.PARTLY, _COUNTED.filled(share=_percent(fetched_share))
    return Coldness.WARM, _WARM


def caches_beneath(kind: StorageKind) -> tuple[Text, ...]:
    """Caches that cannot be emptied from here, so that even a cold read may not reach a disk."""
    there_is = {
        _HOST_CACHES: kind.medium is Medium.VIRTUAL_DISK,
        _SERVER_CACHES: kind.medium.is_network and not kind.is_fuse,
        _FUSE_CACHES: kind.is_fuse,
        _ZFS_CACHES: kind.medium is Medium.ZFS,
    }
    return tuple(said for said, is_there in there_is.items() if is_there)


def _percent(share: float) -> str:
    return f"{100 * min(1.0, share):.0f} %"


# ------------------------------------------------------------------ the knee

_WORTH_IT = 0.10  # a gain below this is not worth twice the readers, however surely it is there
_CERTAIN = 2.0  # standard errors
_TOO_NOISY = 0.5  # a median that may be off by half says nothing
_FALLS = 0.15


@dataclass(frozen=True)
class _Rung:
    """A depth, the median of its rates, and how far that may be off as a share of it: one standard error."""

    depth: int
    rate: float
    error: float

    @classmethod
    def of(cls, depth: int, rates: Sequence[float]) -> _Rung:
        median = statistics.median(rates)
        # from the whole spread, which few rounds give best (the mean range of n normal values, in deviations)
        deviations = {2: 1.13, 3: 1.69, 4: 2.06, 5: 2.33}.get(len(rates), 2.5)
        deviation = (max(rates) - min(rates)) / deviations
        return cls(depth, median, 1.25 * deviation / math.sqrt(len(rates)) / median)

    def is_beaten_by(self, deeper: _Rung) -> bool:
        """Whether it is faster by what is worth having, and not by chance."""
        gain = deeper.rate / self.rate - 1
        return gain > max(_WORTH_IT, _CERTAIN * math.hypot(deeper.error, self.error))


def find_knee(rates: Mapping[int, Sequence[float]]) -> Knee:
    """Return the smallest depth that no deeper one beats, or why there is none; `rates` are by depth, one a round.

    >>> find_knee({1: (100, 101, 99), 2: (200, 198, 202), 4: (240, 241, 238), 8: (242, 240, 239)}).depth
    4
    """
    tried = {depth: each for depth, each in sorted(rates.items()) if each and statistics.median(each) > 0}
    if len(tried) < 2 or any(len(each) < 2 for each in tried.values()):
        return Knee(state=KneeState.NOT_MEASURED)
    ladder = [_Rung.of(depth, each) for depth, each in tried.items()]
    noise = _CERTAIN * statistics.median(rung.error for rung in ladder)
    place, knee = next(
        (place, rung) for place, rung in enumerate(ladder) if not any(map(rung.is_beaten_by, ladder[place + 1 :]))
    )
    # A difference that is there in the medians, and worth it, but that chance could have made, is no ground to stop.
    in_doubt = max(rung.rate for rung in ladder) > (1 + 2 * _WORTH_IT) * knee.rate
    if noise > _TOO_NOISY or in_doubt:
        return Knee(state=KneeState.TOO_NOISY, noise=noise)
    return Knee(
        state=KneeState.NOT_REACHED if knee is ladder[-1] else KneeState.FOUND,
        depth=knee.depth,
        rate=knee.rate,
        gain=knee.rate / ladder[0].rate if ladder[0].depth == 1 else None,
        falls_beyond=_falls_beyond(knee, ladder[place + 1 :]),
        noise=noise,
    )


def _falls_beyond(knee: _Rung, deeper: Sequence[_Rung]) -> int | None:
    """The first depth from which all are slower than the knee, surely and by a good share."""
    falling = None
    for rung in reversed(deeper):
        if 1 - rung.rate / knee.rate < max(_FALLS, _CERTAIN * math.hypot(rung.error, knee.error)):
            break
        falling = rung.depth
    return falling


# ------------------------------------------------------------------ the depth to read with

_LOSES = 0.85  # several readers in order that bring less than this of what one does get in each other's way

_KNEE = Text(
    "the knee: no deeper depth was faster by more than 10 % and the noise",
    "拐点：再增加深度，提升不超过 10% 与噪声",
)
_LAST = Text(
    "the deepest one tried, and still faster than the one before: --depth-max {more} would tell more",
    "这是测过的最大深度，且仍比前一档快；可用 --depth-max {more} 继续测",
)
_NOISY = Text("rates differed by {noise} from round to round; ", "各轮速率相差 {noise}，无法测定；")
_NOT_COLD = Text("the reads are not known to be cold; ", "无法确认读取是冷的；")
_NOT_MEASURED = Text("", "")
_IN_THE_WAY = Text(
    "several readers in order brought {share} of what one does: they get in each other's way",
    "多个读者顺序读取的总速率只有单个读者的 {share}：它们互相干扰",
)


def suggest_depth(
    kind: StorageKind, knee: Knee, ladder: Sequence[MeasuredReading], in_order: Sequence[MeasuredReading]
) -> Suggestion:
    """Return the depth that the measurement speaks for; where it does not, the kind's own, and say so."""
    why = None
    if any(reading.coldness in (Coldness.WARM, Coldness.PARTLY) for reading in ladder) and kind.disks:
        why = _NOT_COLD
    elif knee.state is KneeState.TOO_NOISY:
        why = _NOISY.filled(noise=format_share(knee.noise or 0.0))
    elif knee.depth is None:
        why = _NOT_MEASURED
    if why is not None or knee.depth is None:
        start, before = kind.depth_reason, why or _NOT_MEASURED
        reason = Text(before.en + start.en, before.zh + start.zh)
        return Suggestion(io_depth=kind.starting_depth, is_measured=False, reason=reason)
    if len(in_order) > 1 and knee.depth > 2:
        share = in_order[1].bytes_per_s / in_order[0].bytes_per_s
        if share < _LOSES:
            # random blocks at a depth may still gain where streams lose; a reader of shards reads in order, mostly
            return Suggestion(io_depth=2, is_measured=True, reason=_IN_THE_WAY.filled(share=format_share(share)))
    reason = _LAST.filled(more=2 * knee.depth) if knee.state is KneeState.NOT_REACHED else _KNEE
    return Suggestion(io_depth=knee.depth, is_measured=True, reason=reason)
