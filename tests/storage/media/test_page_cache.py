"""A file's pages are brought out of the cache, and we know whether they are."""

import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.storage.media import kind_of, page_cache
from headrace.storage.media.page_cache import cached_share, drop_from_cache, open_direct

SIZE = 4 << 20


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "data"
    with path.open("wb") as out:
        out.write(os.urandom(SIZE))
        out.flush()
        os.fsync(out.fileno())  # dirty pages cannot be dropped
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def _has_a_cache(path: Path) -> bool:
    kind = kind_of(path)
    return bool(kind.disks) and not kind.is_guessed


def test_what_is_read_is_in_the_cache_and_what_is_dropped_is_not(file: int, tmp_path: Path) -> None:
    if not _has_a_cache(tmp_path):
        pytest.skip("the temporary folder is not on a disk")
    os.pread(file, SIZE, 0)
    assert cached_share(file, 0, SIZE) == pytest.approx(1.0)
    drop_from_cache(file)
    assert cached_share(file, 0, SIZE) == pytest.approx(0.0)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
    os.pread(file, 1 << 20, 0)
    assert cached_share(file, 0, SIZE) == pytest.approx(0.25, abs=0.02)
    assert cached_share(file, 1 << 20, 1 << 20) == pytest.approx(0.0, abs=0.05)


def test_large_ranges_are_looked_at_in_pieces() -> None:
    assert page_cache._pieces(10) == [(0, 10)]
    num_pages = (1 << 40) // mmap.PAGESIZE
    pieces = page_cache._pieces(num_pages)
    assert sum(count for _, count in pieces) == (256 << 20) // mmap.PAGESIZE
    assert pieces[0][0] == 0
    assert pieces[-1][0] + pieces[-1][1] == num_pages


@pytest.mark.slow
@pytest.mark.root
def test_the_pages_of_an_overlay_are_seen_too(tmp_path: Path) -> None:
    """Its files have their pages in another file; a count at the wrong one would call everything cold."""
    folders = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for folder in folders.values():
        folder.mkdir()
    (folders["lower"] / "data").write_bytes(os.urandom(SIZE))
    os.sync()
    options = f"lowerdir={folders['lower']},upperdir={folders['upper']},workdir={folders['work']}"
    mounting = ["mount", "-t", "overlay", "overlay", "-o", options, str(folders["merged"])]
    if subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("no overlay can be mounted here")
    try:
        fd = os.open(folders["merged"] / "data", os.O_RDONLY)
        os.pread(fd, SIZE, 0)
        before = cached_share(fd, 0, SIZE)
        drop_from_cache(fd)
        after = cached_share(fd, 0, SIZE)
        os.close(fd)
        assert (before, after) == (1.0, 0.0)
    finally:
        subprocess.run(["umount", str(folders["merged"])], check=True)


def test_a_direct_read_leaves_no_trace_in_the_cache(file: int, tmp_path: Path) -> None:
    direct = open_direct(str(tmp_path / "data"))
    if direct is None or not _has_a_cache(tmp_path):
        pytest.skip("no direct reads here")
    drop_from_cache(file)
    before = page_cache.fetched_bytes()
    with mmap.mmap(-1, 1 << 20) as buffer:
        assert os.preadv(direct, [buffer], 0) == 1 << 20
        assert buffer[:4096] == os.pread(file, 4096, 0)
    os.close(direct)
    assert cached_share(file, 1 << 20, 1 << 20) == pytest.approx(0.0)
    after = page_cache.fetched_bytes()
    if before is not None and after is not None:
        assert after - before >= 1 << 20


def test_nothing_is_cached_of_nothing(file: int) -> None:
    assert cached_share(file, 0, 0) == 0.0


def test_what_cannot_be_opened_direct_is_told() -> None:
    assert open_direct("/proc/self/mountinfo") is None
    assert open_direct("/no/such/file") is None


def test_no_count_where_the_kernel_keeps_none(tmp_path: Path) -> None:
    assert page_cache.fetched_bytes(tmp_path) is None
