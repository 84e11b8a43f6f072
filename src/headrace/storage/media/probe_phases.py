"""The parts of a probe, one after the other, within one budget of time and bytes."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.model import Text, format_seconds

from .cold import cached_share, drop_from_cache, fetched_bytes, open_direct
from .coldness import judge_coldness, judge_warmth
from .kinds import Medium, StorageKind
from .probe_files import Found
from .probe_order import OpenedFile, RandomBlocks, in_lanes, in_turn
from .probe_reads import RAMP_S, Job, NextJob, Readers, Window, read_extent, read_whole_file
from .probe_result import Coldness, Latency, Reading

_ROUNDS = 3  # of the ladder: fewer, and there is no telling chance from a difference
_SEVERAL = 4  # readers in order
_SMALL_READ = 4096
_WARM_BYTES = 128 << 20  # what fits into any machine's memory beside the rest
# Shares of what is left of time and bytes when a phase begins.
_IN_ORDER_SHARE = 0.1
_SMALL_SHARE = 0.08
_LADDER_SHARE = 0.85
_FILES_SHARE = 0.8
_LONGEST_WARM_S = 1.0
_SHORTEST_S = 0.05  # of a window
_LONG_ENOUGH_S = 0.2  # for bursts of a tenth of a second; rather two rounds of these than three of shorter ones
_SCOUT_S = 0.15
_SCOUT_SHARE = 0.02
_MOST_FILES = 4096  # of a window: each is opened before, to be dropped from the cache
_FLAT = 1.25  # two doublings that bring less than this are not going anywhere: a scout's rates are rough

_READING = {
    "in_order": Text("reading in order, {depth} at a time", "顺序读取，{depth} 路并发"),
    "small": Text("small reads at random", "随机小块读取"),
    "random": Text("reading at random, {depth} at a time", "随机读取，{depth} 路并发"),
    "files": Text("reading whole small files, {depth} at a time", "整读小文件，{depth} 路并发"),
    "warm": Text("reading what is in the page cache", "读取页缓存中的数据"),
}


@dataclass
class _Tally:
    """What the windows of one reading have brought so far."""

    windows: list[Window]
    asked: int = 0
    fetched: int | None = 0
    cached_before: float | None = 0.0


class Phases:
    """Opens the files that were found, and measures them; each phase takes its share of what is left."""

    def __init__(
        self,
        kind: StorageKind,
        found: Found,
        *,
        seconds: float,
        max_bytes: int,
        seed: int,
        say: Callable[[Text], None] | None = None,
    ) -> None:
        self.num_bytes = 0
        self.notes: list[Text] = []
        self.stopped_at: tuple[int, str] | None = None  # the ladder's last depth, and how long a read took there
        self.has_repeated = False
        self.has_used_all_bytes = False
        self._kind, self._found = kind, found
        self._end = time.monotonic() + seconds
        self._max_bytes = max_bytes
        self._rng = random.Random(seed)
        self._say = say
        self._stack = contextlib.ExitStack()
        self._files: list[OpenedFile] = []
        self._backing: list[int] = []

    def __enter__(self) -> Phases:
        try:
            for file in self._found.large:
                with contextlib.suppress(OSError):  # gone since
                    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
                    self._stack.callback(os.close, fd)
                    direct_fd = None if self._kind.medium is Medium.MEMORY else open_direct(file.path)
                    if direct_fd is not None:
                        self._stack.callback(os.close, direct_fd)
                    self._files.append(OpenedFile(file.path, file.size, fd, direct_fd))
            for path in self._kind.cached_backing_files:
                with contextlib.suppress(OSError):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    self._stack.callback(os.close, fd)
                    self._backing.append(fd)
            if len(self._backing) < len(self._kind.cached_backing_files):
                self.notes.append(_BACKING_CACHED)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def in_order(self, read_bytes: int) -> tuple[Reading, ...]:
        """One reader from the beginning of the data, then several, each through a part of its own."""
        readings = []
        with Readers(read_bytes) as readers:
            for num_readers in (1, _SEVERAL) if self._files else ():
                reading = self._in_order(readers, num_readers, read_bytes)
                if reading is not None:
                    readings.append(reading)
        return tuple(readings)

    def small_random(self) -> Reading | None:
        """Reads of 4 KiB, one at a time: what a single access costs."""
        if not self._files:
            return None
        self._tell("small")
        blocks = RandomBlocks(self._files, _SMALL_READ, self._rng, is_direct=self._is_direct)
        with Readers(_SMALL_READ) as readers:
            tally = _Tally([])
            jobs = blocks.jobs(self._bytes(_SMALL_SHARE) // _SMALL_READ)
            self._measure(readers, jobs, tally, depth=1, seconds=self._time(_SMALL_SHARE))
        return self._reading(tally, depth=1, read_bytes=_SMALL_READ, is_direct=self._is_direct)

    def ladder(self, read_bytes: int, depth_max: int) -> tuple[Reading, ...]:
        """Blocks at random at depth 1, 2, 4, …: in rounds, up and down, so that a drift does not look like a knee."""
        if not self._files:
            return ()
        blocks = RandomBlocks(self._files, read_bytes, self._rng, is_direct=self._is_direct)
        end = time.monotonic() + self._time(_LADDER_SHARE)
        byte_limit = self._bytes(_LADDER_SHARE)
        with Readers(read_bytes) as readers:
            rates = self._scout(readers, blocks, _depths(depth_max), end=end, read_bytes=read_bytes)
            tallies = {depth: _Tally([]) for depth in rates}
            num_blocks = byte_limit // read_bytes // (_ROUNDS * len(tallies))
            for round_number in range(_ROUNDS):
                depths = sorted(tallies, reverse=round_number % 2 == 1)
                for place, depth in enumerate(depths):
                    left = end - time.monotonic()
                    if left <= 0 and round_number > 1:
                        break  # two rounds there must be, or chance is not to be told from a difference
                    windows_left = (_ROUNDS - round_number) * len(depths) - place
                    self._tell("random", depth=depth)
                    jobs = blocks.jobs(max(num_blocks, 4 * depth))
                    # queues fill before the window opens, and are emptied after it has closed
                    around_s = RAMP_S + depth * read_bytes / max(rates[depth], 1.0)
                    seconds = max(min(_LONG_ENOUGH_S, left), left / windows_left - around_s, _SHORTEST_S)
                    self._measure(readers, jobs, tallies[depth], depth=depth, seconds=seconds)
        self.has_repeated = self.has_repeated or blocks.has_repeated
        readings = (
            self._reading(tally, depth=depth, read_bytes=read_bytes, is_direct=self._is_direct)
            for depth, tally in sorted(tallies.items())
        )
        return tuple(reading for reading in readings if reading is not None)

    def _scout(
        self, readers: Readers, blocks: RandomBlocks, depths: list[int], *, end: float, read_bytes: int
    ) -> dict[int, float]:
        """Find the depths worth measuring, with a rough rate of each.

        Where reads take long and more of them bring nothing, the deepest ones are not worth their time.
        """
        rates: dict[int, float] = {}
        for depth in depths:
            left = end - time.monotonic()
            window_s = left / (_ROUNDS * (len(rates) + 1))
            best = max(rates.values(), default=0.0)
            if len(rates) >= 4 and best > 0:
                *earlier, _, _ = rates.values()
                is_flat = best < _FLAT * max(earlier)
                expected_s = depth * read_bytes / best
                if left <= 0 or (is_flat and expected_s > window_s / 2):
                    self.stopped_at = (max(rates), format_seconds(expected_s / 2))
                    break
            self._tell("random", depth=depth)
            tally = _Tally([])
            jobs = blocks.jobs(max(4 * depth, self._bytes(_SCOUT_SHARE) // read_bytes))
            self._measure(readers, jobs, tally, depth=depth, seconds=min(_SCOUT_S, max(_SHORTEST_S, left / 30)))
            rates[depth] = tally.windows[0].bytes_per_s
        return rates

    def whole_files(self, depth_max: int) -> tuple[Reading, ...]:
        """Small files, opened and read whole: the ladder again where there is nothing else, else one and several."""
        files = self._found.small
        if not files:
            return ()
        depths = [depth for depth in ([1, 8] if self._files else _depths(min(depth_max, 32))) if depth <= depth_max]
        rounds = 1 if self._files else _ROUNDS
        begin, allowed = time.monotonic(), self._time(_FILES_SHARE)
        tallies = {depth: _Tally([]) for depth in depths}
        largest = max(file.size for file in files)
        share_of_files = min(len(files), _MOST_FILES)
        taken = 0
        with Readers(max(_SMALL_READ, -(-largest // _SMALL_READ) * _SMALL_READ)) as readers:
            for round_number, depth in itertools.product(range(rounds), depths):
                left = allowed - (time.monotonic() - begin)
                self._tell("files", depth=depth)
                chosen = [files[(taken + step) % len(files)].path for step in range(share_of_files)]
                self.has_repeated = self.has_repeated or taken + share_of_files > len(files)
                taken += share_of_files
                self._drop_paths(chosen)
                jobs = in_turn([read_whole_file(path) for path in chosen])
                windows_left = (rounds - round_number) * len(depths) - depths.index(depth)
                seconds = max(_SHORTEST_S, left / windows_left)
                self._measure(readers, jobs, tallies[depth], depth=depth, seconds=seconds, drops=False)
        readings = (
            self._reading(tally, depth=depth, read_bytes=None, is_direct=False) for depth, tally in tallies.items()
        )
        return tuple(reading for reading in readings if reading is not None)

    def warm(self, read_bytes: int) -> Reading | None:
        """The same bytes twice, the second time measured."""
        jobs: list[Job] = [
            read_extent(file.fd, offset, read_bytes, file.path)
            for file in self._files[:1]
            for offset in range(0, min(file.size, _WARM_BYTES) - read_bytes + 1, read_bytes)
        ]
        is_whole = not jobs
        jobs = jobs or [read_whole_file(file.path) for file in self._found.small]
        size = max((file.size for file in self._found.small), default=0) if is_whole else read_bytes
        if not jobs:
            return None
        self._tell("warm")
        with Readers(-(-size // _SMALL_READ) * _SMALL_READ) as readers:
            filling = readers.run(self._within(in_turn(jobs)), depth=_SEVERAL, seconds=max(0.3, min(2.0, self._left())))
            self.num_bytes += filling.total_bytes
            num_in_cache = len(filling.latencies)
            before = fetched_bytes()
            window = readers.run(self._within(in_turn(jobs[:num_in_cache])), depth=1, seconds=_LONGEST_WARM_S)
            fetched = _difference(before, fetched_bytes())
        self.num_bytes += window.total_bytes
        tally = _Tally([window], asked=window.total_bytes, fetched=fetched)
        is_known = bool(self._kind.disks) and fetched is not None and window.total_bytes > 0
        in_cache = None if is_whole else cached_share(self._files[0].fd, 0, num_in_cache * read_bytes)
        coldness, reason = judge_warmth(
            fetched / window.total_bytes if is_known and fetched is not None else None, cached_now=in_cache
        )
        return self._reading(
            tally, depth=1, read_bytes=None if is_whole else read_bytes, is_direct=False, judged=(coldness, reason)
        )

    def _in_order(self, readers: Readers, num_readers: int, read_bytes: int) -> Reading | None:
        self._tell("in_order", depth=num_readers)
        # through the page cache, as programs read, where it can be shown to be cold; else past it
        can_check = bool(self._kind.disks) or cached_share(self._files[0].fd, 0, read_bytes) is not None
        is_direct = not can_check and self._is_direct
        most = max(1, self._bytes(_IN_ORDER_SHARE) // read_bytes // num_readers)
        jobs = in_lanes(self._files, read_bytes, num_lanes=num_readers, most_each=most, is_direct=is_direct)
        tally = _Tally([])
        self._measure(readers, jobs, tally, depth=num_readers, seconds=self._time(_IN_ORDER_SHARE))
        return self._reading(tally, depth=num_readers, read_bytes=read_bytes, is_direct=is_direct)

    def _measure(
        self, readers: Readers, jobs: NextJob, tally: _Tally, *, depth: int, seconds: float, drops: bool = True
    ) -> None:
        if drops:
            tally.cached_before = _sum_known(tally.cached_before, self._drop())
        before = fetched_bytes()
        window = readers.run(self._within(jobs), depth=depth, seconds=seconds)
        fetched = _difference(before, fetched_bytes())
        tally.windows.append(window)
        tally.asked += window.total_bytes
        tally.fetched = None if tally.fetched is None or fetched is None else tally.fetched + fetched
        self.num_bytes += window.total_bytes

    def _reading(
        self,
        tally: _Tally,
        *,
        depth: int,
        read_bytes: int | None,
        is_direct: bool,
        judged: tuple[Coldness, Text] | None = None,
    ) -> Reading | None:
        windows = [window for window in tally.windows if window.bytes_per_s > 0]
        if not windows:
            return None
        latencies = sorted(latency for window in windows for latency in window.latencies)
        seconds = sum(window.seconds for window in windows)
        fetched_share = None if tally.fetched is None or not tally.asked else tally.fetched / tally.asked
        cached = None if tally.cached_before is None else tally.cached_before / len(tally.windows)
        coldness, reason = judged or judge_coldness(
            self._kind, is_direct=is_direct, cached_before=cached, fetched_share=fetched_share
        )
        mean_bytes = tally.asked / max(1, len(latencies))
        return Reading(
            depth=depth,
            read_bytes=read_bytes,
            rates=tuple(window.bytes_per_s for window in windows),
            reads_per_s=statistics.median(window.bytes_per_s for window in windows) / mean_bytes if mean_bytes else 0.0,
            num_reads=len(latencies),
            num_bytes=tally.asked,
            seconds=seconds,
            latency=_latency(latencies),
            coldness=coldness,
            coldness_reason=reason,
            is_direct=is_direct,
            processors=max(window.processors for window in windows),
            fetched_share=fetched_share if self._kind.disks else None,
        )

    @property
    def _is_direct(self) -> bool:
        return all(file.direct_fd is not None for file in self._files)

    def _drop(self) -> float | None:
        """Drop what is read from the page cache, and look what is left there; None: not to be seen."""
        for fd in self._backing:
            drop_from_cache(fd)
        left: list[float | None] = []
        for file in self._files:
            drop_from_cache(file.fd)
            left.append(cached_share(file.fd, 0, file.size))
        known = [share for share in left if share is not None]
        return None if not known or len(known) < len(left) else max(known)

    def _drop_paths(self, paths: Sequence[str]) -> None:
        for fd in self._backing:
            drop_from_cache(fd)
        for path in paths:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                drop_from_cache(fd)
                os.close(fd)

    def _left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def _time(self, share: float) -> float:
        return max(0.05, share * self._left())

    def _bytes(self, share: float) -> int:
        return max(1 << 20, int(share * (self._max_bytes - self.num_bytes)))

    def _within(self, jobs: NextJob) -> NextJob:
        """Give no more jobs out once the bytes are used up; reads that are under way then still end."""
        spent = [self.num_bytes]

        def take(reader: int) -> Job | None:
            if spent[0] >= self._max_bytes:
                self.has_used_all_bytes = True
                return None
            job = jobs(reader)
            if job is None:
                return None

            def read(buffer: mmap.mmap) -> int:
                size = job(buffer)
                spent[0] += size  # a lost update would only let one more read through
                return size

            return read

        return take

    def _tell(self, phase: str, **facts: object) -> None:
        if self._say is not None:
            self._say(_READING[phase].filled(**facts))


_BACKING_CACHED = Text(
    "the file behind the loop device is read through the page cache, and may not be dropped by us",
    "loop 设备背后的文件经页缓存读取，我们无权将其逐出",
)


def _depths(most: int) -> list[int]:
    """1, 2, 4, … and the last one as it was asked for."""
    depths = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*depths, most]


def _latency(ordered: Sequence[float]) -> Latency | None:
    if not ordered:
        return None
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return Latency(median_s=statistics.median(ordered), p95_s=p95, worst_s=ordered[-1])


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _sum_known(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
