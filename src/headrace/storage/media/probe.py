"""Measures how fast what is under a path can be read: in order, again from memory, and at random up to the knee.

Before each window of reading, the files' pages are dropped from the page cache (`posix_fadvise`), and a look shows
whether they are gone (`mincore`): pages that are dirty, locked or mapped by somebody stay. Inside a window no block is
read twice. So what is called cold did not come from this machine's memory.
"""

import contextlib
import ctypes
import itertools
import mmap
import os
import random
import shlex
import stat
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.errors import HeadraceError, UnusableInput
from headrace.model import Text, format_bytes

from .kinds import Medium, StorageKind, kind_of
from .knee import Coldness, Knee, MeasuredReading, ProbeResult, find_knee

_READ_BYTES = 128 << 10  # of a read at random


def probe(path: str | os.PathLike[str], *, seconds: float = 15.0, depth_max: int = 64) -> ProbeResult:
    """Measure what is under a file or folder, reading existing files and writing nothing.

    It ends after about `seconds`; slow reads may make it longer by their own time. The pages of the files that it reads
    are dropped from the page cache.
    """
    for name, value, lowest, highest in (("seconds", seconds, 0.5, 3600), ("depth_max", depth_max, 1, 1024)):
        if not lowest <= value <= highest:
            raise ValueError(f"{name} must be between {lowest} and {highest}, got {value}")
    begin, given = time.monotonic(), os.fspath(path)
    kind = kind_of(given)
    with contextlib.ExitStack() as stack:
        files = draw_files(given, 0.1 * seconds, stack)
        in_order, warm = _read_in_order(kind, files, 0.2 * (begin + seconds - time.monotonic()))
        ladder, knee = _climb(kind, files, depth_max, begin + seconds)
        advise(files, os.POSIX_FADV_DONTNEED)
    return ProbeResult(
        kind=kind,
        num_files=len(files),
        file_bytes=sum(file.size for file in files),
        in_order=in_order,
        warm=warm,
        random=ladder,
        knee=knee,
    )


LARGE_BYTES = 8 << 20  # files of this size are shards; smaller ones are read where there are none
_SMALLEST_BYTES, _LEAST_BYTES = 4096, 1 << 20  # of a file, and of all together
_MOST_LOOKED_AT = 50_000  # files: a data set of a hundred million must not be listed
_MOST_FILES = 256  # that are open at a time


class ProbedFile(NamedTuple):
    """A file that is read: its first `size` bytes are data, without holes."""

    path: str
    size: int
    fd: int


def draw_files(path: str, seconds: float, stack: contextlib.ExitStack) -> list[ProbedFile]:
    """Open files at or below a path, and keep them open until the stack is closed; links are not followed."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        there = str(next(filter(os.path.isdir, Path(os.path.abspath(path)).parents)))
        raise UnusableInput(
            f"cannot look at {path}: {error.strerror or error}",
            nearest_folder=there,
            next_step=f"`ls -la {shlex.quote(there)}` shows what is there and who may read it; is the disk mounted?",
        ) from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        what, next_step = f"{path} is neither a file nor a folder", "a folder with data, or one of its files"
        raise UnusableInput(what, next_step=next_step)
    sizes, num_unreadable = _look_through(path, seconds) if stat.S_ISDIR(mode) else ({path: 0}, 0)
    files: list[ProbedFile] = []
    paths = [each for each, size in sizes.items() if size >= LARGE_BYTES] or list(sizes)
    drawn = random.sample(paths, min(_MOST_FILES, len(paths)))
    for each in drawn:
        size = 0
        with contextlib.suppress(OSError):
            fd = os.open(each, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            size = os.fstat(fd).st_size
            size = os.lseek(fd, 0, os.SEEK_HOLE)  # zeros of a hole come at no cost: it would look like a fast disk
        if size >= _SMALLEST_BYTES:
            files.append(ProbedFile(each, size, fd))
    if sum(file.size for file in files) < _LEAST_BYTES:
        folder = shlex.quote(path if stat.S_ISDIR(mode) else os.path.dirname(os.path.abspath(path)))
        raise UnusableInput(
            f"there is too little to read under {path}: it takes {format_bytes(_LEAST_BYTES)} of files",
            files=len(files),
            passed_over=len(drawn) - len(files) + num_unreadable,
            next_step=f"a folder with data; `cd {folder}; head -c 256M /dev/urandom >try; sync try` makes one",
        )
    return files


def _look_through(folder: str, seconds: float) -> tuple[dict[str, int], int]:
    """Return the sizes of files below a folder by their paths, and how many folders could not be read."""
    # Folders come in random order until the time or the number of files is used up, so that what is found is not always
    # what was written first.
    sizes: dict[str, int] = {}
    pending, num_unreadable, deadline = [folder], 0, time.monotonic() + seconds
    while pending:
        try:
            with os.scandir(pending.pop(random.randrange(len(pending)))) as entries:
                for entry in entries:
                    if len(sizes) >= _MOST_LOOKED_AT or time.monotonic() > deadline:
                        return sizes, num_unreadable
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        sizes[entry.path] = entry.stat(follow_symlinks=False).st_size
        except OSError:
            num_unreadable += 1
    return sizes, num_unreadable


_IN_CACHE = bytes(byte & 1 for byte in range(256))  # only the lowest bit of what `mincore` says of a page is defined

_BEYOND = Text(
    "not from this machine's memory; a server or a host may have it in its own",
    "并非来自本机内存；服务器或宿主机可能有缓存",
)
_LEFT = Text("{share} stayed there: mapped, locked or unwritten", "{share} 仍在其中：被映射、锁定或未写回")
_NOT_CHECKED = Text("dropped from the page cache, unchecked: not our files", "已请求逐出页缓存；文件属于他人，无法检查")
_NOT_KEPT = Text("this file system keeps nothing in the page cache", "该文件系统不把数据留在页缓存中")


def advise(files: Sequence[ProbedFile], advice: int) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # not every file system takes advice
            os.posix_fadvise(file.fd, 0, 0, advice)


def cached_share(file: ProbedFile) -> float | None:
    """The share of a file's beginning that is in the page cache; None where the kernel does not tell us."""
    # Since Linux 5.2 it says "all of it" to who neither owns a file nor may write it.
    if os.geteuid() not in (0, os.fstat(file.fd).st_uid) and not os.access(f"/proc/self/fd/{file.fd}", os.W_OK):
        return None
    length = min(file.size, 64 << 20)
    pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
    try:
        # private and never written to: only a writable one gives its address away
        with mmap.mmap(file.fd, length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as view:
            start = ctypes.c_char.from_buffer(view)
            failed = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(length), pages)
            del start
    except (OSError, ValueError):
        return None
    return None if failed else pages.raw.translate(_IN_CACHE).count(1) / len(pages)


def drop_and_look(files: Sequence[ProbedFile]) -> float | None:
    """Drop the files from the page cache, and return the largest share that is left; None: not to be seen."""
    advise(files, os.POSIX_FADV_DONTNEED)
    left = [cached_share(file) for file in files]
    return None if None in left else max(filter(None, left), default=0.0)


def judge_coldness(kind: StorageKind, cached: float | None) -> tuple[Coldness, Text | None]:
    """Return whether reads were cold, or why that is not known; `cached` is what was in the page cache before."""
    if kind.medium is Medium.MEMORY:
        return Coldness.WARM, None
    if kind.other_cache is not None:
        return Coldness.UNKNOWN, kind.other_cache
    if cached is None:
        return Coldness.UNKNOWN, _NOT_CHECKED
    if cached <= 0.02:
        return Coldness.COLD, None if kind.medium in (Medium.NVME, Medium.SSD, Medium.HDD) else _BEYOND
    return Coldness.PARTLY, _LEFT.filled(share=f"{100 * cached:.0f} %")


RAMP_S = 0.1  # until then queues fill, and a disk with a limit gives its savings away
_STUCK_AFTER_S = 30.0  # beyond the window: a read of a healthy storage is back by then
_MOST_PLACES = 1 << 16  # that are drawn: the order of a file of terabytes is not made whole


class ProbedBlock(NamedTuple):
    file: ProbedFile
    offset: int
    size: int

    def read(self, buffer: memoryview) -> None:
        try:
            got = os.preadv(self.file.fd, [buffer[: self.size]], self.offset)
        except OSError as error:
            what = f"cannot read {self.file.path}: {error.strerror or error}"
            raise UnusableInput(what, offset=self.offset, next_step="`dmesg` tells more about disk errors") from error
        if got < self.size:
            what = f"{self.file.path} became shorter while it was read"
            raise UnusableInput(what, offset=self.offset, got=got, next_step="a path that nobody writes to meanwhile")


def read_window(blocks: Sequence[ProbedBlock], depth: int, seconds: float) -> tuple[float, int]:
    """Read with so many threads until the time or the blocks are used up; return bytes a second and how many reads."""
    # A read counts evenly over the time that it took. The window opens when every reader has a first read behind it,
    # and not before `RAMP_S`; it closes when the last read has begun. So the depth is kept all the time.
    todo, stop = iter(blocks), threading.Event()
    reads: list[tuple[float, float, int]] = []  # start, end, bytes
    errors: list[BaseException] = []

    def read(has_begun: threading.Event) -> None:
        buffer = memoryview(bytearray(max(block.size for block in blocks)))
        try:
            while not stop.is_set() and (block := next(todo, None)) is not None:
                start = time.perf_counter()
                block.read(buffer)
                reads.append((start, time.perf_counter(), block.size))
                has_begun.set()
        except BaseException as error:  # told in the thread that waits
            errors.append(error)
            stop.set()
        has_begun.set()

    begun = [threading.Event() for _ in range(depth)]
    # one that hangs in a dead mount must not hold up the end of the process
    threads = [threading.Thread(target=read, args=(each,), name="headrace-probe", daemon=True) for each in begun]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    try:
        for each in begun:
            each.wait(max(0.0, begin + _STUCK_AFTER_S - time.perf_counter()))
        opened = max(begin + RAMP_S, time.perf_counter())
        for end in (opened + max(0.05, seconds), opened + seconds + _STUCK_AFTER_S):
            for thread in threads:
                thread.join(max(0.0, end - time.perf_counter()))
            stop.set()  # what is under way ends
    finally:
        stop.set()
    if errors:
        raise errors[0]
    if num_stuck := sum(thread.is_alive() for thread in threads):
        raise HeadraceError(
            f"{num_stuck} of {depth} reads have not come back after {_STUCK_AFTER_S:.0f} s",
            next_step="look at the mount (`dmesg`, for NFS `nfsstat -m`): a server that is gone blocks every read",
        )
    closed = max(start for start, _, _ in reads)
    if closed < opened + 0.04:  # the blocks were used up at once
        opened, closed = min(start for start, _, _ in reads), max(end for _, end, _ in reads)
    return rate_of(reads, opened, closed), len(reads)


def rate_of(reads: Sequence[tuple[float, float, int]], opened: float, closed: float) -> float:
    """Return bytes a second from reads (start, end, bytes) inside a window.

    >>> rate_of([(0.0, 2.0, 100), (2.0, 4.0, 100)], 1.0, 3.0)
    50.0
    """
    inside = (size * max(0.0, min(end, closed) - max(start, opened)) / (end - start) for start, end, size in reads)
    return sum(inside) / (closed - opened)


def blocks_in_order(files: Sequence[ProbedFile], size: int) -> Iterator[ProbedBlock]:
    for file in files:
        for offset in range(0, file.size, size):
            yield ProbedBlock(file, offset, min(size, file.size - offset))


def blocks_at_random(files: Sequence[ProbedFile], size: int) -> list[ProbedBlock]:
    """Blocks of the files in random order: each at most once, and the end of a file only where it is the whole file."""
    drawn = random.choices(files, [file.size for file in files], k=_MOST_PLACES)
    numbered = ((file, random.randrange(max(1, file.size // size))) for file in drawn)
    return list(dict.fromkeys(ProbedBlock(file, size * number, min(size, file.size)) for file, number in numbered))


_IN_ORDER_BYTES = 1 << 20  # of a read in order
_MOST_WINDOW_BYTES, _WARM_BYTES = 1 << 30, 128 << 20  # other things must keep their place in the page cache
_ROUNDS = 3  # fewer, and there is no telling chance from a difference
_FLAT = 1.1  # two doublings that bring less than this are not going anywhere


def _read_in_order(
    kind: StorageKind, files: list[ProbedFile], seconds: float
) -> tuple[MeasuredReading, MeasuredReading]:
    """One reader from the beginning of the data, and the last of that once more."""
    size, is_cold = _IN_ORDER_BYTES, judge_coldness(kind, drop_and_look(files))
    blocks = list(itertools.islice(blocks_in_order(files, size), _MOST_WINDOW_BYTES // size))
    cold_rate, num_read = read_window(blocks, 1, seconds)
    again = blocks[:num_read][-_WARM_BYTES // size :]
    warm_rate, _ = read_window(again, 1, 1.0)
    is_kept = cached_share(again[-1].file) != 0.0
    is_warm = (Coldness.WARM, None) if is_kept else (Coldness.UNKNOWN, _NOT_KEPT)
    return MeasuredReading(1, size, cold_rate, *is_cold), MeasuredReading(1, size, warm_rate, *is_warm)


def _climb(
    kind: StorageKind, files: list[ProbedFile], depth_max: int, end: float
) -> tuple[tuple[MeasuredReading, ...], Knee]:
    """Blocks at random at depth 1, 2, 4, …, in rounds: up and down, so that a drift does not look like a knee."""
    advise(files, os.POSIX_FADV_RANDOM)  # no readahead
    blocks = blocks_at_random(files, _READ_BYTES)
    depths = [*(1 << power for power in range(depth_max.bit_length()) if 1 << power < depth_max), depth_max]
    rates: dict[int, list[float]] = {}  # by depth, one a round
    cached: list[float | None] = []
    for number in range(_ROUNDS):
        for place, depth in enumerate(depths if number % 2 == 0 else depths[::-1]):
            first = [each[0] for each in rates.values()]
            if number == 0 and place > 3 and max(first[-2:]) < _FLAT * max(first[:-2]):
                depths = depths[:place]
                break
            left_s = end - time.monotonic()
            if number == 2 and left_s < 0:
                break  # two rounds there must be
            cached.append(drop_and_look(files))
            window_s = left_s / ((_ROUNDS - number) * len(depths) - place) - RAMP_S
            rate, num_read = read_window(blocks[: _MOST_WINDOW_BYTES // _READ_BYTES], depth, window_s)
            rates.setdefault(depth, []).append(rate)
            # in turn, so that none is read again before all of them were
            blocks = blocks[num_read:] + blocks[:num_read]
    judged = judge_coldness(kind, None if None in cached else max(filter(None, cached), default=0.0))
    medians = ((depth, statistics.median(each)) for depth, each in sorted(rates.items()))
    return tuple(MeasuredReading(depth, _READ_BYTES, rate, *judged) for depth, rate in medians), find_knee(rates)
