"""Measures how fast what is under a path can be read: in order, at random, cold and warm, and up to which depth."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import stat
import statistics
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.errors import UnusableInput
from headrace.model import Text, format_bytes, format_seconds, parse_bytes

from .kinds import Medium, StorageKind, kind_of
from .page_cache import cached_share, drop_from_cache, fetched_bytes, open_direct
from .probe_reads import RAMP_S, Job, Readers, Window
from .probe_result import (
    FilesUsed,
    Latency,
    MeasuredReading,
    ProbeResult,
    caches_beneath,
    find_knee,
    judge_coldness,
    judge_warmth,
    suggest_depth,
)

_LOOKING_SHARE = 0.1  # of the time, for going through folders
_BUSY = 0.8  # of the processors

_NOT_PAST_DEPTH = Text(
    "deeper than {depth} was not tried: two doublings brought nothing, and each read took {latency} already",
    "没有继续测试大于 {depth} 的深度：连续两次翻倍都没有提升，而单次读取已需 {latency}",
)
_REPEATED = Text(
    "there was less data than was read: some blocks were read more than once, and a cache of the disk may have helped",
    "数据量不足，部分块被重复读取，磁盘自身的缓存可能使结果偏高",
)
_BYTES_USED = Text(
    "the limit of {size} was reached before all was measured: a higher one would tell more",
    "在测完之前就达到了 {size} 的读取上限；提高上限可以得到更多结果",
)
_PROCESSORS_BUSY = Text(
    "the processors were busy with reading alone: the storage may be faster than what was measured",
    "仅读取就占满了处理器：存储的实际速度可能高于测得的数值",
)
_METADATA_WARM = Text(
    "small files were opened with warm names and inodes: the first look at a cold folder costs more",
    "读取小文件时，目录项和 inode 已在缓存中；首次访问冷目录会更慢",
)
_BACKING_CACHED = Text(
    "the file behind the loop device is read through the page cache, and may not be dropped by us",
    "loop 设备背后的文件经页缓存读取，我们无权将其逐出",
)


def probe(
    path: str | os.PathLike[str],
    *,
    seconds: float = 15.0,
    max_bytes: int | str = 16 << 30,
    depth_max: int = 64,
    read_bytes: int | str = 1 << 20,
    write_test_bytes: int | str | None = None,
    seed: int | None = None,
    on_phase: Callable[[Text], None] | None = None,
) -> ProbeResult:
    """Measure what is under a file or folder, reading existing files and writing nothing.

    It ends after about `seconds`, or `max_bytes` read; a single slow read may make it longer by its own time. The
    pages of the files that it reads are dropped from the page cache. With `write_test_bytes` it writes a file of that
    size under the path, reads that one, and removes it in any case. `read_bytes` is the size of a read at random: by
    default what a reader of shards asks for at a time.
    """
    if not 0.5 <= seconds <= 3600:
        raise ValueError(f"seconds must be between 0.5 and 3600, got {seconds}")
    if not 1 <= depth_max <= 1024:
        raise ValueError(f"depth_max must be between 1 and 1024, got {depth_max}")
    byte_limit = parse_bytes(max_bytes, name="max_bytes")
    size = parse_bytes(read_bytes, name="read_bytes")
    if size % 4096 or not 4096 <= size <= 8 << 20:
        raise ValueError(f"read_bytes must be a multiple of 4096 up to 8 MiB, got {size}")
    begin, given = time.monotonic(), os.fspath(path)
    rng = random.Random(seed)
    is_temporary = write_test_bytes is not None
    with contextlib.ExitStack() as stack:
        if write_test_bytes is None:
            target = given
        else:
            num_bytes = parse_bytes(write_test_bytes, name="write_test_bytes")
            target = str(stack.enter_context(written_test_file(Path(given), num_bytes)))
        kind = kind_of(given, use_remembered=False)
        found = find_files(target, seconds=_LOOKING_SHARE * seconds, rng=rng)
        left_s = seconds - (time.monotonic() - begin)
        probing = stack.enter_context(_Probing(kind, found, seconds=left_s, max_bytes=byte_limit, rng=rng))
        probing.on_phase = on_phase or probing.on_phase
        in_order = probing.in_order(size)
        small_random = probing.small_random()
        ladder = probing.ladder(size, depth_max)
        whole_files = probing.whole_files(depth_max)
        warm = probing.warm(size)
    knee = find_knee({reading.depth: reading.rates for reading in ladder or whole_files})
    num_processors = len(os.sched_getaffinity(0))
    busy = max((reading.processors for reading in ladder), default=0.0) > _BUSY * num_processors
    notes = {
        _REPEATED: probing.has_repeated,
        _BYTES_USED.filled(size=format_bytes(byte_limit)): probing.num_bytes >= byte_limit,
        _METADATA_WARM: bool(whole_files),
        _PROCESSORS_BUSY: busy,
    }
    unknown = (*kind.unknown, *caches_beneath(kind), *probing.notes, *(note for note, holds in notes.items() if holds))
    return ProbeResult(
        path=given,
        kind=kind,
        files=found.used(is_temporary=is_temporary),
        in_order=in_order,
        random=ladder,
        small_random=small_random,
        warm=warm,
        whole_files=whole_files,
        knee=knee,
        suggestion=suggest_depth(kind, knee, ladder or whole_files, in_order),
        unknown=tuple(dict.fromkeys(unknown)),
        seconds=time.monotonic() - begin,
        num_bytes=probing.num_bytes,
        num_processors=num_processors,
    )


# ------------------------------------------------------------------ which files

LARGE_BYTES = 8 << 20  # a file of which blocks can be read at random
_MOST_LOOKED_AT = 50_000  # entries of folders: a data set of a hundred million files must not be listed
_MOST_LARGE = 32
_MOST_SMALL = 8192
_FEWEST_SMALL = 32
_LEAST_SMALL_BYTES = 1 << 20
_WRITE_BYTES = 4 << 20
_LEAVE_FREE = 1 << 30  # a full file system would stop whatever else writes there


@dataclass(frozen=True)
class FoundFile:
    """A file to read: its first `size` bytes are data, without holes."""

    path: str
    size: int


@dataclass
class Found:
    """What a look through a folder has brought."""

    large: list[FoundFile] = field(default_factory=list)
    small: list[FoundFile] = field(default_factory=list)
    num_seen: int = 0
    is_all_seen: bool = True
    passed_over: Counter[str] = field(default_factory=Counter)

    def used(self, *, is_temporary: bool) -> FilesUsed:
        examples = [] if is_temporary else (self.large + self.small)[:3]
        return FilesUsed(
            num_large=len(self.large),
            large_bytes=sum(file.size for file in self.large),
            num_small=len(self.small),
            small_bytes=sum(file.size for file in self.small),
            examples=tuple(file.path for file in examples),
            num_seen=self.num_seen,
            is_all_seen=self.is_all_seen,
            passed_over=dict(sorted(self.passed_over.items())),
            is_temporary=is_temporary,
        )


def find_files(path: str, *, seconds: float, rng: random.Random) -> Found:
    """Find files to read at or below a path; raise `UnusableInput` where there are none, with what is there.

    Folders are gone through in random order until the time or the number of entries is used up, so that what is found
    is not always what was written first. Links are not followed.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UnusableInput(f"cannot look at {path}: {error.strerror or error}") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UnusableInput(f"{path} is neither a file nor a folder", next_step="name a folder with data")
    found = Found()
    if stat.S_ISREG(mode):
        _consider(path, found)
    else:
        _look_through(path, found, rng, deadline=time.monotonic() + seconds)
    has_enough = len(found.small) >= _FEWEST_SMALL and sum(file.size for file in found.small) >= _LEAST_SMALL_BYTES
    if not found.large and not has_enough:
        raise _too_little(path, found)
    found.large = rng.sample(found.large, min(_MOST_LARGE, len(found.large)))
    found.small = rng.sample(found.small, min(_MOST_SMALL, len(found.small))) if has_enough else []
    return found


def _look_through(folder: str, found: Found, rng: random.Random, *, deadline: float) -> None:
    def is_enough() -> bool:
        return found.num_seen >= _MOST_LOOKED_AT or time.monotonic() > deadline

    pending = [folder]
    while pending and found.is_all_seen:
        found.is_all_seen = not is_enough()
        try:
            with os.scandir(pending.pop(rng.randrange(len(pending)))) as entries:
                for entry in entries:
                    if is_enough():
                        found.is_all_seen = False
                        break
                    found.num_seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        _consider(entry.path, found)
        except OSError:
            found.passed_over["unreadable folder"] += 1


def _consider(path: str, found: Found) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        found.passed_over["unreadable"] += 1
        return
    try:
        size = data_until = os.fstat(fd).st_size
        if size >= LARGE_BYTES:  # a hole is read as zeros, at no cost: it would look like a fast disk
            with contextlib.suppress(OSError):  # file systems that know of no holes say that there is one at the end
                data_until = os.lseek(fd, 0, os.SEEK_HOLE)
    finally:
        os.close(fd)
    if size == 0:
        found.passed_over["empty"] += 1
    elif size < LARGE_BYTES:
        found.small.append(FoundFile(path, size))
    elif data_until < LARGE_BYTES:
        found.passed_over["sparse"] += 1
    else:
        found.large.append(FoundFile(path, data_until))


def _too_little(path: str, found: Found) -> UnusableInput:
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    return UnusableInput(
        f"there is too little to read under {path}: it takes a file of {format_bytes(LARGE_BYTES)} or more, "
        f"or {_FEWEST_SMALL} smaller ones",
        entries_seen=found.num_seen,
        files=len(found.small),
        largest=format_bytes(max((file.size for file in found.small), default=0)),
        **{name.replace(" ", "_"): count for name, count in found.passed_over.items()},
        next_step=f"a folder with data, or `headrace storage {folder} --write-test 256`: it writes a file of 256 MiB "
        "there, reads it and removes it",
    )


@contextlib.contextmanager
def written_test_file(folder: Path, size: int) -> Iterator[Path]:
    """Write a file of random bytes, which nothing can compress, through to the storage; remove it at the end."""
    if not folder.is_dir():
        raise UnusableInput(
            f"{folder} is not a folder: a file to test with is written into one", next_step="name a folder"
        )
    free = os.statvfs(folder)
    free_bytes = free.f_bavail * free.f_frsize
    if free_bytes < size + _LEAVE_FREE:
        raise UnusableInput(
            f"no test file is written to {folder}: too little is free there",
            asked=format_bytes(size),
            free=format_bytes(free_bytes),
            kept_free=format_bytes(_LEAVE_FREE),
            next_step="a smaller --write-test",
        )
    path: Path | None = None
    try:
        try:
            with tempfile.NamedTemporaryFile(prefix=".headrace-storage-", dir=folder, delete=False) as file:
                path = Path(file.name)
                for start in range(0, size, _WRITE_BYTES):
                    file.write(os.urandom(min(_WRITE_BYTES, size - start)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UnusableInput(f"cannot write the test file to {folder}: {error.strerror or error}") from error
        yield path
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


# ------------------------------------------------------------------ measuring

_ROUNDS = 3  # of the ladder: fewer, and there is no telling chance from a difference
_SEVERAL = 4  # readers in order
_SMALL_READ = 4096
_WARM_BYTES = 128 << 20  # what fits into any machine's memory beside the rest
# Shares of what is left of time and bytes when a phase begins.
_IN_ORDER_SHARE = 0.2
_SMALL_SHARE = 0.08
_LADDER_SHARE = 0.85
_FILES_SHARE = 0.8
_LONGEST_WARM_S = 1.0
_SHORTEST_S = 0.05  # of a window
_LONG_ENOUGH_S = 0.2  # for bursts of a tenth of a second; rather two rounds of these than three of shorter ones
_MOST_PLACES = 1 << 16  # that are drawn: the order of a file of terabytes is not made whole
_MOST_FILES = 4096  # of a window: each is opened before, to be dropped from the cache
_FLAT = 1.25  # two doublings that bring less than this are not going anywhere: rates of one round are rough

_IN_ORDER = Text("reading in order, {depth} at a time", "顺序读取，{depth} 路并发")
_SMALL = Text("small reads at random", "随机小块读取")
_AT_RANDOM = Text("reading at random, {depth} at a time", "随机读取，{depth} 路并发")
_WHOLE_FILES = Text("reading whole small files, {depth} at a time", "整读小文件，{depth} 路并发")
_WARM = Text("reading what is in the page cache", "读取页缓存中的数据")

Lanes = Sequence[Iterator[Job]]  # what each reader of a window reads


@dataclass(frozen=True)
class OpenedFile:
    """A file that is open for reading, through the page cache and, where that works, past it."""

    path: str
    size: int
    fd: int
    direct_fd: int | None = None

    def job(self, offset: int, *, is_direct: bool) -> Job:
        return Job(self.path, self.direct_fd if is_direct else self.fd, offset)


@dataclass
class _Rounds:
    """The windows of one depth, what each brought from block devices, and what was in the page cache before."""

    windows: list[Window] = field(default_factory=list)
    fetched: list[int | None] = field(default_factory=list)  # bytes; None: not counted
    cached: list[float | None] = field(default_factory=list)  # share; None: not to be seen

    def reading(self, kind: StorageKind, depth: int, read_bytes: int | None, *, is_direct: bool) -> MeasuredReading:
        windows = [window for window in self.windows if window.bytes_per_s > 0]
        latencies = sorted(latency for window in windows for latency in window.latencies)
        rates, num_bytes = [window.bytes_per_s for window in windows], sum(window.total_bytes for window in windows)
        fetched = [each for each in self.fetched if each is not None]
        fetched_share = sum(fetched) / num_bytes if len(fetched) == len(self.windows) else None
        cached = [each for each in self.cached if each is not None]
        cached_before = statistics.mean(cached) if len(cached) == len(self.windows) else None
        coldness, reason = judge_coldness(
            kind, is_direct=is_direct, cached_before=cached_before, fetched_share=fetched_share
        )
        return MeasuredReading(
            depth=depth,
            read_bytes=read_bytes,
            rates=tuple(rates),
            reads_per_s=statistics.median(rates) * len(latencies) / num_bytes,
            num_reads=len(latencies),
            num_bytes=num_bytes,
            seconds=sum(window.seconds for window in windows),
            latency=Latency(
                median_s=statistics.median(latencies),
                p95_s=latencies[min(len(latencies) - 1, int(0.95 * len(latencies)))],
                worst_s=latencies[-1],
            ),
            coldness=coldness,
            coldness_reason=reason,
            is_direct=is_direct,
            processors=max(window.processors for window in windows),
            fetched_share=fetched_share if kind.disks else None,
        )


class _Probing:
    """Opens the files that were found, and measures them; each phase takes its share of what is left."""

    def __init__(self, kind: StorageKind, found: Found, *, seconds: float, max_bytes: int, rng: random.Random) -> None:
        self.num_bytes = 0
        self.notes: list[Text] = []
        self.has_repeated = False
        self.on_phase: Callable[[Text], None] = lambda _: None
        self._kind, self._small, self._rng = kind, found.small, rng
        self._end, self._max_bytes = time.monotonic() + seconds, max_bytes
        with contextlib.ExitStack() as stack:
            self._files = [opened for file in found.large if (opened := _open(file, kind, stack)) is not None]
            beneath = [_open_fd(path, stack) for path in kind.cached_backing_files]
            self._beneath = [fd for fd in beneath if fd is not None]
            self._stack = stack.pop_all()
        self._is_direct = all(file.direct_fd is not None for file in self._files)
        if len(self._beneath) < len(beneath):
            self.notes.append(_BACKING_CACHED)

    def __enter__(self) -> _Probing:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ---------------------------------------------------------------- the phases

    def in_order(self, size: int) -> tuple[MeasuredReading, ...]:
        """One reader from the beginning of the data, then several, each through a part of its own."""
        if not self._files:
            return ()
        # through the page cache, as programs read, where it can be shown to be cold; else past it
        can_check = bool(self._kind.disks) or cached_share(self._files[0].fd, 0, size) is not None
        is_direct = not can_check and self._is_direct

        def lanes(depth: int) -> Lanes:
            return in_lanes(self._files, size, num_lanes=depth, is_direct=is_direct)

        return self._climb(_IN_ORDER, [1, _SEVERAL], lanes, size, share=_IN_ORDER_SHARE, is_direct=is_direct)

    def small_random(self) -> MeasuredReading | None:
        """Reads of 4 KiB, one at a time: what a single access costs."""
        if not self._files:
            return None
        lanes = [iter(at_random(self._files, _SMALL_READ, self._rng, is_direct=self._is_direct))]
        read = self._climb(_SMALL, [1], lambda _: lanes, _SMALL_READ, share=_SMALL_SHARE, is_direct=self._is_direct)
        return read[0] if read else None

    def ladder(self, size: int, depth_max: int) -> tuple[MeasuredReading, ...]:
        """Blocks at random at depth 1, 2, 4, …."""
        if not self._files:
            return ()
        places = at_random(self._files, size, self._rng, is_direct=self._is_direct)
        jobs = itertools.cycle(places)  # when all were read, they come again
        readings = self._climb(
            _AT_RANDOM,
            _depths(depth_max),
            lambda depth: [jobs] * depth,
            size,
            share=_LADDER_SHARE,
            num_rounds=_ROUNDS,
            is_direct=self._is_direct,
        )
        self.has_repeated |= sum(reading.num_reads for reading in readings) > len(places)
        return readings

    def whole_files(self, depth_max: int) -> tuple[MeasuredReading, ...]:
        """Small files, opened and read whole: the ladder again where there is nothing else, else one and several."""
        if not self._small:
            return ()
        depths = [depth for depth in ((1, 8) if self._files else _depths(min(depth_max, 32))) if depth <= depth_max]
        num_rounds = 1 if self._files else _ROUNDS
        most = min(len(self._small), _MOST_FILES)
        order = itertools.cycle(Job(file.path) for file in self._small)

        def lanes(depth: int) -> Lanes:
            chosen = list(itertools.islice(order, most))
            self._drop_files(job.path for job in chosen)
            return [iter(chosen)] * depth

        self.has_repeated |= num_rounds * len(depths) * most > len(self._small)
        return self._climb(_WHOLE_FILES, depths, lanes, None, share=_FILES_SHARE, num_rounds=num_rounds, drops=False)

    def warm(self, size: int) -> MeasuredReading | None:
        """The same bytes twice, the second time measured."""
        if not self._files and not self._small:
            return None
        if self._files:
            file = self._files[0]
            offsets = range(0, min(file.size, _WARM_BYTES) - size + 1, size)
            jobs = [file.job(offset, is_direct=False) for offset in offsets]
        else:
            jobs = [Job(each.path) for each in self._small]
        read_bytes = size if self._files else None
        with Readers(self._buffer_bytes(read_bytes)) as readers:
            once = max(0.3, min(2.0, self._left_s()))
            filling = readers.run([iter(jobs)] * _SEVERAL, seconds=once, most_bytes=self._bytes(1.0))
        self.num_bytes += filling.total_bytes
        jobs = jobs[: len(filling.latencies)]
        self._end = time.monotonic() + _LONGEST_WARM_S  # the time is up by now, and memory is quick
        read = self._climb(_WARM, [1], lambda _: [iter(jobs)], read_bytes, share=1.0, drops=False)
        if not read:
            return None
        cached_now = cached_share(self._files[0].fd, 0, len(jobs) * size) if self._files else None
        coldness, reason = judge_warmth(read[0].fetched_share, cached_now=cached_now)
        return replace(read[0], coldness=coldness, coldness_reason=reason)

    # ---------------------------------------------------------------- windows

    def _climb(
        self,
        said: Text,
        depths: list[int],
        lanes_of: Callable[[int], Lanes],
        read_bytes: int | None,
        *,
        share: float,
        num_rounds: int = 1,
        is_direct: bool = False,
        drops: bool = True,
    ) -> tuple[MeasuredReading, ...]:
        """Measure at each of these depths, in rounds: up and down, so that a drift does not look like a knee."""
        end, most_bytes = time.monotonic() + max(_SHORTEST_S, share * self._left_s()), self._bytes(share)
        by_depth: dict[int, _Rounds] = {}
        rates: dict[int, float] = {}  # of each depth's last window
        size = self._buffer_bytes(read_bytes)
        with Readers(size) as readers:
            for number in range(num_rounds):
                for place, depth in enumerate(sorted(depths, reverse=number % 2 == 1)):
                    left = end - time.monotonic()
                    if self.num_bytes >= self._max_bytes or (left <= 0 and number > 1):
                        break  # two rounds there must be, or chance is not to be told from a difference
                    rate = rates.get(depth, max(rates.values(), default=0.0))
                    read_s = depth * size / rate if rate else 0.0  # how long a read takes
                    if number == 0 and _is_in_vain(rates, read_s, left / num_rounds):
                        latency = format_seconds(read_s / 2)
                        self.notes.append(_NOT_PAST_DEPTH.filled(depth=max(rates), latency=latency))
                        break
                    self.on_phase(said.filled(depth=depth))
                    lanes = lanes_of(depth)
                    rounds = by_depth.setdefault(depth, _Rounds())
                    rounds.cached.append(self._drop() if drops else 0.0)
                    before = fetched_bytes()
                    windows_left = (num_rounds - number) * len(depths) - place
                    # queues fill before the window opens, and are emptied after it has closed
                    seconds = left / windows_left - RAMP_S - read_s
                    least = depth * size * (4 if num_rounds > 1 else 1)
                    window = readers.run(
                        lanes,
                        seconds=max(min(_LONG_ENOUGH_S, left), seconds, _SHORTEST_S),
                        most_bytes=min(
                            max(most_bytes // (num_rounds * len(depths)), least), self._max_bytes - self.num_bytes
                        ),
                    )
                    after = fetched_bytes()
                    rounds.windows.append(window)
                    rounds.fetched.append(None if before is None or after is None else after - before)
                    rates[depth] = window.bytes_per_s
                    self.num_bytes += window.total_bytes
                depths = sorted(by_depth)
        return tuple(
            rounds.reading(self._kind, depth, read_bytes, is_direct=is_direct)
            for depth, rounds in sorted(by_depth.items())
            if any(window.bytes_per_s for window in rounds.windows)
        )

    def _drop(self) -> float | None:
        """Drop what is read from the page cache, and look what is left there; None: not to be seen."""
        for fd in (*self._beneath, *(file.fd for file in self._files)):
            drop_from_cache(fd)
        left = [cached_share(file.fd, 0, file.size) for file in self._files]
        known = [share for share in left if share is not None]
        return max(known) if known and len(known) == len(left) else None

    def _drop_files(self, paths: Iterable[str]) -> None:
        for fd in self._beneath:
            drop_from_cache(fd)
        for path in paths:
            with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
                drop_from_cache(file.fileno())

    def _buffer_bytes(self, read_bytes: int | None) -> int:
        """A size that direct reads can have; for whole files, what the largest takes."""
        size = read_bytes or max(file.size for file in self._small)
        return -(-size // _SMALL_READ) * _SMALL_READ

    def _left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def _bytes(self, share: float) -> int:
        return max(1 << 20, int(share * (self._max_bytes - self.num_bytes)))


def _is_in_vain(rates: dict[int, float], read_s: float, round_s: float) -> bool:
    """Whether a deeper one is not worth its time: a read would take long, and more of them brought nothing."""
    if len(rates) < 4 or not any(rates.values()):
        return False
    *earlier, _, _ = rates.values()
    is_flat = max(rates.values()) < _FLAT * max(earlier)
    return round_s <= 0 or (is_flat and read_s > round_s / (len(rates) + 1) / 2)


def at_random(files: Sequence[OpenedFile], size: int, rng: random.Random, *, is_direct: bool) -> list[Job]:
    """Return blocks of the files in random order."""
    ends = list(itertools.accumulate(file.size // size for file in files))
    jobs = []
    for number in rng.sample(range(ends[-1]), min(_MOST_PLACES, ends[-1])):
        which = bisect_right(ends, number)
        inside = number - (ends[which - 1] if which else 0)
        jobs.append(files[which].job(inside * size, is_direct=is_direct))
    if not is_direct:
        for file in files:
            os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)
    return jobs


def in_lanes(files: Sequence[OpenedFile], size: int, *, num_lanes: int, is_direct: bool) -> Lanes:
    """Return blocks of the files for readers that each go through their own in order.

    A reader has files of its own where there are enough of them, else its part of each file.
    """

    def lane(number: int) -> Iterator[Job]:
        has_own = len(files) >= num_lanes
        part, parts = (0, 1) if has_own else (number, num_lanes)
        for file in files[number::num_lanes] if has_own else files:
            num_blocks = file.size // size
            for block in range(part * num_blocks // parts, (part + 1) * num_blocks // parts):
                yield file.job(block * size, is_direct=is_direct)

    return [lane(number) for number in range(num_lanes)]


def _open(file: FoundFile, kind: StorageKind, stack: contextlib.ExitStack) -> OpenedFile | None:
    fd = _open_fd(file.path, stack)
    if fd is None:
        return None
    direct_fd = None if kind.medium is Medium.MEMORY else open_direct(file.path)
    if direct_fd is not None:
        stack.callback(os.close, direct_fd)
    return OpenedFile(file.path, file.size, fd, direct_fd)


def _open_fd(path: str, stack: contextlib.ExitStack) -> int | None:
    """Open a file until the stack closes; None where it may not be read, or is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    stack.callback(os.close, fd)
    return fd


def _depths(most: int) -> list[int]:
    """1, 2, 4, … and the last one as it was asked for."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]
