"""What a probe of storage found, as values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headrace.model import Text

from .kinds import StorageKind
from .knee import Knee


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
class Reading:
    """One way of reading, measured: so many readers at a time, reads of one size."""

    depth: int
    read_bytes: int | None  # size of a read; None: whole files
    rates: tuple[float, ...]  # bytes a second, one a round
    reads_per_s: float
    num_reads: int
    num_bytes: int
    seconds: float
    latency: Latency | None  # None: no read ended
    coldness: Coldness
    coldness_reason: Text
    is_direct: bool
    processors: float  # how many were busy with it, by the processor time of this process
    fetched_share: float | None = None  # what came from block devices, of what was read; None: not counted

    @property
    def bytes_per_s(self) -> float:
        """Median of the rounds."""
        ordered = sorted(self.rates)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


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
    passed_over: tuple[tuple[str, int], ...] = ()  # why, and how many: "sparse", "unreadable", "empty"
    is_temporary: bool = False  # a file of our own, removed again


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
    in_order: tuple[Reading, ...]  # one reader, then several, each through its own part
    random: tuple[Reading, ...]  # the ladder of depths
    small_random: Reading | None
    warm: Reading | None
    whole_files: tuple[Reading, ...]  # small files, opened and read whole: one reader, then several
    knee: Knee
    suggestion: Suggestion
    unknown: tuple[Text, ...]  # what could not be learnt, and why
    seconds: float
    num_bytes: int
    num_processors: int

    def __repr__(self) -> str:
        best = max((reading.bytes_per_s for reading in self.random), default=0.0)
        return f"ProbeResult({self.kind.name!r}, knee={self.knee.depth}, best={best / 1e6:.0f} MB/s)"
