"""A probe of real files: what it reads, what it says, and that it leaves everything as it was."""

import contextlib
import heapq
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from headrace.errors import UnusableInput
from headrace.model import Text
from headrace.storage.media import Medium, kind_of, probe
from headrace.storage.media.knee import Coldness, KneeState, find_knee
from headrace.storage.media.probe import (
    LARGE_BYTES,
    ProbedBlock,
    ProbedFile,
    advise,
    blocks_at_random,
    blocks_in_order,
    cached_share,
    draw_files,
    judge_coldness,
    rate_of,
    read_window,
)

MIB = 1 << 20


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What a writer would have changed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two large files, forty small ones, an empty one and a link that leads out."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        (folder / f"shard-{number}.tar").write_bytes(os.urandom(LARGE_BYTES + number * MIB + 100))
    (folder / "small").mkdir()
    for number in range(40):
        (folder / "small" / f"{number}.jpg").write_bytes(os.urandom(30_000 + number))
    (folder / "small" / "empty").write_bytes(b"")
    (folder / "link").symlink_to("/")
    os.sync()
    return folder


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as held:
        yield held


def _opened(path: Path, stack: contextlib.ExitStack) -> ProbedFile:
    files = draw_files(str(path), 5.0, stack)
    return files[0]


# ------------------------------------------------------------------ a whole probe


def test_a_folder_is_measured_and_left_as_it_was(data: Path) -> None:
    before = _state(data)
    result = probe(data, seconds=1.5, depth_max=4)
    assert _state(data) == before
    assert (result.num_files, result.file_bytes) == (2, 2 * LARGE_BYTES + MIB + 200)
    assert [reading.depth for reading in result.random] == [1, 2, 4]
    assert all(reading.bytes_per_s > 0 for reading in (result.in_order, result.warm, *result.random))
    assert result.knee.state is not KneeState.NOT_MEASURED
    assert result.kind == kind_of(data)
    with pytest.raises(FrozenInstanceError):
        result.num_files = 0  # type: ignore[misc]  # that is the question


def test_cold_reads_are_shown_to_be_cold(data: Path) -> None:
    result = probe(data / "shard-0.tar", seconds=0.8, depth_max=2)
    if result.kind.medium is Medium.MEMORY or result.kind.other_cache is not None:
        pytest.skip("the temporary folder is not on a disk")
    assert {reading.coldness for reading in (result.in_order, *result.random)} == {Coldness.COLD}
    assert result.warm.coldness is Coldness.WARM


def test_memory_is_never_called_cold(data: Path) -> None:
    folder = Path("/dev/shm") / f"headrace-test-{os.getpid()}"
    if kind_of("/dev/shm").medium is not Medium.MEMORY:
        pytest.skip("/dev/shm is not memory here")
    folder.mkdir()
    try:
        (folder / "data").write_bytes((data / "shard-0.tar").read_bytes())
        result = probe(folder, seconds=0.6, depth_max=2)
        assert {reading.coldness for reading in (result.in_order, *result.random)} == {Coldness.WARM}
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_small_files_are_read_where_there_are_no_large_ones(data: Path) -> None:
    result = probe(data / "small", seconds=0.6, depth_max=2)
    assert result.num_files == 40
    assert [reading.depth for reading in result.random] == [1, 2]


def test_one_depth_alone_has_no_knee(data: Path) -> None:
    assert probe(data, seconds=0.5, depth_max=1).knee.state is KneeState.NOT_MEASURED


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="No such file") as caught:
        probe(tmp_path / "gone" / "data")
    assert caught.value.evidence == {"nearest_folder": str(tmp_path)}
    assert f"`ls -la {tmp_path}`" in caught.value.next_step
    with pytest.raises(UnusableInput, match="neither a file nor a folder") as caught:
        probe("/dev/null")
    assert "a folder with data" in caught.value.next_step
    for wrong in ({"seconds": 0.1}, {"depth_max": 0}, {"depth_max": 5000}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            probe(tmp_path, **wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------ which files


def test_too_little_to_read_says_what_is_there_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 5000)
    (tmp_path / "none").write_bytes(b"")
    with pytest.raises(UnusableInput, match="too little to read") as caught:
        probe(tmp_path, seconds=1)
    assert caught.value.evidence == {"files": 1, "passed_over": 1}
    assert f"`cd {tmp_path}; head -c 256M /dev/urandom >try; sync try`" in caught.value.next_step


def test_holes_are_not_taken_for_a_fast_disk(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(64 * MIB)
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) != 0:
            pytest.skip("this file system does not tell of holes")
    with pytest.raises(UnusableInput, match="too little to read") as caught:
        probe(tmp_path, seconds=1)
    assert caught.value.evidence["passed_over"] == 1


def test_links_are_not_followed_and_nothing_stays_open(data: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        files = draw_files(str(data), 5.0, stack)
        assert {os.path.basename(file.path) for file in files} == {"shard-0.tar", "shard-1.tar"}
    assert len(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------------ the page cache


def test_what_is_read_is_in_the_cache_and_what_is_dropped_is_not(data: Path, stack: contextlib.ExitStack) -> None:
    if kind_of(data).medium is Medium.MEMORY or kind_of(data).other_cache is not None:
        pytest.skip("the temporary folder is not on a disk")
    file = _opened(data / "shard-0.tar", stack)
    os.pread(file.fd, file.size, 0)
    assert cached_share(file) == pytest.approx(1.0)
    advise([file], os.POSIX_FADV_DONTNEED)
    assert cached_share(file) == pytest.approx(0.0)
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
    os.pread(file.fd, 2 * MIB, 0)
    assert cached_share(file) == pytest.approx(0.25, abs=0.02)


@pytest.mark.slow
@pytest.mark.root
def test_the_pages_of_an_overlay_are_seen_too(tmp_path: Path, data: Path) -> None:
    """Its files have their pages in another file; a count at the wrong one would call everything cold."""
    folders = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for folder in folders.values():
        folder.mkdir()
    (folders["lower"] / "data").write_bytes((data / "shard-0.tar").read_bytes())
    os.sync()
    options = f"lowerdir={folders['lower']},upperdir={folders['upper']},workdir={folders['work']}"
    mounting = ["mount", "-t", "overlay", "overlay", "-o", options, str(folders["merged"])]
    if subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("no overlay can be mounted here")
    try:
        with contextlib.ExitStack() as stack:
            file = _opened(folders["merged"] / "data", stack)
            os.pread(file.fd, file.size, 0)
            before = cached_share(file)
            advise([file], os.POSIX_FADV_DONTNEED)
            assert (before, cached_share(file)) == (1.0, 0.0)
    finally:
        subprocess.run(["umount", str(folders["merged"])], check=True)


def test_coldness_is_judged_from_what_was_seen() -> None:
    disk = replace(kind_of("/proc"), medium=Medium.NVME)
    behind_fuse = replace(disk, other_cache=Text("a cache of its own", "自己的缓存"))
    for kind, cached, expected, said in (
        (disk, 0.0, Coldness.COLD, ""),
        (replace(disk, medium=Medium.NFS), 0.0, Coldness.COLD, "a server or a host may have it"),
        (disk, 0.4, Coldness.PARTLY, "40 % stayed"),
        (disk, None, Coldness.UNKNOWN, "not our files"),
        (behind_fuse, 0.0, Coldness.UNKNOWN, "a cache of its own"),
        (replace(disk, medium=Medium.MEMORY), 0.0, Coldness.WARM, ""),
    ):
        state, reason = judge_coldness(kind, cached)
        assert state is expected, said
        assert (said in reason.en) if reason is not None else not said


# ------------------------------------------------------------------ reading


def test_every_block_comes_once(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    sizes = (256 * 4096, 3 * 4096, 9 * 4096 + 5, 5000)
    for number, size in enumerate(sizes):
        (tmp_path / str(number)).write_bytes(os.urandom(size))
    files = draw_files(str(tmp_path), 5.0, stack)
    blocks = blocks_at_random(files, 4096)
    assert len(blocks) == len(set(blocks)) == 256 + 3 + 9 + 1
    assert {block.size for block in blocks} == {4096}
    in_order = list(blocks_in_order(files, 4096))
    assert sum(block.size for block in in_order) == sum(sizes)
    for _, each in itertools.groupby(in_order, key=lambda block: block.file):
        offsets = [block.offset for block in each]
        assert offsets == sorted(offsets)


class _LimitedBlock(ProbedBlock):
    """A block of a storage that serves four reads at a time, each in 20 ms, in the order in which they come."""

    free_at, turn = [0.0] * 4, threading.Lock()

    def read(self, buffer: memoryview) -> None:
        with self.turn:
            done_at = max(time.perf_counter(), heapq.heappop(self.free_at)) + 0.02
            heapq.heappush(self.free_at, done_at)
        time.sleep(max(0.0, done_at - time.perf_counter()))


@pytest.mark.alone
def test_the_knee_of_a_limited_reader_is_found() -> None:
    file = ProbedFile("limited", 1 << 30, -1)
    blocks = [_LimitedBlock(file, 4096 * number, 4096) for number in range(100_000)]
    depths = (1, 2, 4, 8, 16)
    rates = {depth: [read_window(blocks, depth, 0.2)[0] for _ in range(3)] for depth in depths}
    knee = find_knee(rates)
    if knee.state is KneeState.TOO_NOISY:
        pytest.skip("the machine is too busy to tell")
    assert knee.depth == 4


def test_so_many_reads_are_in_flight_at_a_time() -> None:
    """Four readers meet in a read: with fewer at a time this would not end well."""
    together = threading.Barrier(4)

    class Meeting(ProbedBlock):
        def read(self, buffer: memoryview) -> None:
            together.wait(timeout=60)

    blocks = [Meeting(ProbedFile("x", 4096, -1), 0, 4096)] * 8
    assert read_window(blocks, 4, 60.0)[1] == 8  # and it ends when the blocks do


def test_an_error_in_a_reader_is_raised_where_one_waits(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    (tmp_path / "data").write_bytes(bytes(2 * MIB))
    file = _opened(tmp_path / "data", stack)
    os.truncate(tmp_path / "data", 100)
    with pytest.raises(UnusableInput, match="became shorter") as caught:
        read_window([ProbedBlock(file, 0, 4096)] * 3, 2, 5.0)
    assert caught.value.evidence == {"offset": 0, "got": 100}


def test_a_read_counts_for_its_part_inside_the_window() -> None:
    assert rate_of([(0.0, 4.0, 400), (5.0, 6.0, 100)], 1.0, 3.0) == pytest.approx(100.0)
