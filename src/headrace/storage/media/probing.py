"""Measures how fast what is under a path can be read: in order, at random, cold and warm, and up to which depth."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.errors import UnusableInput
from headrace.model import Text, format_bytes, parse_bytes

from .advice import suggest_depth
from .coldness import caches_beneath
from .kinds import kind_of
from .knee import DepthRate, Knee, KneeState, find_knee
from .probe_files import find_files
from .probe_phases import Phases
from .probe_result import FilesUsed, ProbeResult
from .written_file import written_test_file

DEFAULT_SECONDS = 15.0
DEFAULT_BYTES = 16 << 30
DEFAULT_DEPTH_MAX = 64
DEFAULT_READ_BYTES = 1 << 20  # what a reader of shards asks for at a time
_BUSY = 0.8  # of the processors
_LOOKING_SHARE = 0.1  # of the time, for going through folders

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


def probe(
    path: str | os.PathLike[str],
    *,
    seconds: float = DEFAULT_SECONDS,
    max_bytes: int | str = DEFAULT_BYTES,
    depth_max: int = DEFAULT_DEPTH_MAX,
    read_bytes: int | str = DEFAULT_READ_BYTES,
    write_test_bytes: int | str | None = None,
    seed: int | None = None,
    on_phase: Callable[[Text], None] | None = None,
) -> ProbeResult:
    """Measure what is under a file or folder, reading existing files and writing nothing.

    It ends after about `seconds`, or `max_bytes` read; a single slow read may make it longer by its own time. The
    pages of the files that it reads are dropped from the page cache. With `write_test_bytes` it writes a file of that
    size under the path, reads that one, and removes it in any case.
    """
    if not 0.5 <= seconds <= 3600:
        raise ValueError(f"seconds must be between 0.5 and 3600, got {seconds}")
    if not 1 <= depth_max <= 1024:
        raise ValueError(f"depth_max must be between 1 and 1024, got {depth_max}")
    byte_limit = parse_bytes(max_bytes, name="max_bytes")
    size = parse_bytes(read_bytes, name="read_bytes")
    if size % 4096 or not 4096 <= size <= 8 << 20:
        raise ValueError(f"read_bytes must be a multiple of 4096 up to 8 MiB, got {size}")
    begin = time.monotonic()
    seed = time.time_ns() if seed is None else seed
    with _target(os.fspath(path), write_test_bytes) as (target, is_temporary):
        kind = kind_of(target if not is_temporary else path, use_remembered=False)
        found = find_files(target, seconds=_LOOKING_SHARE * seconds, seed=seed)
        with Phases(
            kind, found, seconds=seconds - (time.monotonic() - begin), max_bytes=byte_limit, seed=seed, say=on_phase
        ) as phases:
            in_order = phases.in_order(size)
            small_random = phases.small_random()
            random = phases.ladder(size, depth_max)
            whole_files = phases.whole_files(depth_max)
            warm = phases.warm(size)
        rungs = [DepthRate(depth=reading.depth, rates=reading.rates) for reading in random or whole_files]
        knee = find_knee(rungs) if len(rungs) > 1 else Knee(state=KneeState.NOT_MEASURED)
        unknown = [*kind.unknown, *caches_beneath(kind), *phases.notes]
        if phases.stopped_at is not None:
            depth, latency = phases.stopped_at
            unknown.append(_NOT_PAST_DEPTH.filled(depth=depth, latency=latency))
        if phases.has_repeated:
            unknown.append(_REPEATED)
        if phases.has_used_all_bytes:
            unknown.append(_BYTES_USED.filled(size=format_bytes(byte_limit)))
        if whole_files:
            unknown.append(_METADATA_WARM)
        num_processors = len(os.sched_getaffinity(0))
        if max((reading.processors for reading in random), default=0.0) > _BUSY * num_processors:
            unknown.append(_PROCESSORS_BUSY)
        used = FilesUsed(
            num_large=len(found.large),
            large_bytes=sum(file.size for file in found.large),
            num_small=len(found.small),
            small_bytes=sum(file.size for file in found.small),
            examples=() if is_temporary else tuple(file.path for file in (*found.large, *found.small)[:3]),
            num_seen=found.num_seen,
            is_all_seen=found.is_all_seen,
            passed_over=tuple(sorted(found.passed_over.items())),
            is_temporary=is_temporary,
        )
        return ProbeResult(
            path=os.fspath(path),
            kind=kind,
            files=used,
            in_order=in_order,
            random=random,
            small_random=small_random,
            warm=warm,
            whole_files=whole_files,
            knee=knee,
            suggestion=suggest_depth(kind, knee, random or whole_files, in_order),
            unknown=tuple(dict.fromkeys(unknown)),
            seconds=time.monotonic() - begin,
            num_bytes=phases.num_bytes,
            num_processors=num_processors,
        )


@contextlib.contextmanager
def _target(path: str, write_test_bytes: int | str | None) -> Iterator[tuple[str, bool]]:
    if write_test_bytes is None:
        yield path, False
        return
    if not os.path.isdir(path):
        raise UnusableInput(
            f"{path} is not a folder: a file to test with is written into one", next_step="name a folder"
        )
    with written_test_file(Path(path), parse_bytes(write_test_bytes, name="write_test_bytes")) as file:
        yield str(file), True
