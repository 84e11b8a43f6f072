"""A rate is what the storage delivered, whatever the shape of its delivery; readers read what they should."""

import itertools
import mmap
import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UnusableInput
from headrace.storage.media.probe_order import OpenedFile, RandomBlocks, in_lanes, in_turn
from headrace.storage.media.probe_reads import Job, Readers, rate_of, read_extent, read_whole_file


@settings(max_examples=30)
@given(st.integers(1, 8), st.floats(0.01, 0.2), st.floats(0.3, 2.0))
def test_reads_of_one_length_in_parallel_give_their_rate(depth: int, latency: float, window: float) -> None:
    reads = [(start * latency, (start + 1) * latency, 1000) for start in range(int(3 / latency)) for _ in range(depth)]
    assert rate_of(reads, 0.5, 0.5 + window) == pytest.approx(1000 * depth / latency, rel=0.01)


@settings(max_examples=30)
@given(st.integers(1, 32), st.floats(0.004, 0.02), st.floats(0.5, 2.0))
def test_a_queue_in_front_of_one_server_gives_the_servers_rate(depth: int, service: float, window: float) -> None:
    """Reads are served one by one; each one that ends is followed by a new one at the end of the queue."""
    ends = [number * service for number in range(1, int(4 / service))]
    reads = [((ends[place - depth] if place >= depth else 0.0), end, 1000) for place, end in enumerate(ends)]
    assert rate_of(reads, 0.8, 0.8 + window) == pytest.approx(1000 / service, rel=0.1)


@settings(max_examples=50)
@given(st.floats(0.2, 2.0), st.floats(0.0, 0.1))
def test_bursts_every_tenth_of_a_second_do_not_falsify(window: float, phase: float) -> None:
    """A disk with a limit: ten reads at once, then nothing until the next tenth. Counting is off by up to one burst."""
    reads = []
    for burst in range(40):
        start = 0.1 * burst
        reads += [(start + 0.0002 * number, start + 0.0002 * (number + 1), 1000) for number in range(9)]
        reads.append((start + 0.0018, start + 0.1, 1000))
    opened = 0.2 + phase
    assert rate_of(reads, opened, opened + window) == pytest.approx(100_000, rel=0.06)


def test_no_reads_and_no_window_are_no_rate() -> None:
    assert rate_of([], 0.0, 1.0) == 0.0
    assert rate_of([(0.0, 1.0, 5)], 1.0, 1.0) == 0.0


@pytest.fixture
def files(tmp_path: Path) -> list[OpenedFile]:
    opened = []
    for number, blocks in enumerate((5, 3, 9)):
        path = tmp_path / f"file{number}"
        path.write_bytes(b"".join(bytes([number, block]) * 2048 for block in range(blocks)) + b"tail")
        opened.append(OpenedFile(str(path), path.stat().st_size, os.open(path, os.O_RDONLY), None))
    return opened


def _close(files: list[OpenedFile]) -> None:
    for file in files:
        os.close(file.fd)


def _take(job: Job) -> bytes:
    with mmap.mmap(-1, 8192) as buffer:
        return buffer[: job(buffer)]


def test_every_block_comes_once_before_one_comes_again(files: list[OpenedFile]) -> None:
    blocks = RandomBlocks(files, 4096, random.Random(1), is_direct=False)
    take = blocks.jobs(17)
    seen = [_take(job)[:2] for job in iter(lambda: take(0), None)]
    expected = [bytes([number, block]) for number, count in enumerate((5, 3, 9)) for block in range(count)]
    assert sorted(seen) == expected
    assert seen != expected  # in random order
    assert not blocks.has_repeated
    again = blocks.jobs(1)(0)
    assert again is not None
    assert blocks.has_repeated
    _close(files)


@pytest.mark.parametrize("num_lanes", [1, 2, 3, 4])
def test_lanes_are_in_order_and_apart(files: list[OpenedFile], num_lanes: int) -> None:
    take = in_lanes(files, 4096, num_lanes=num_lanes, most_each=100, is_direct=False)
    lanes = [[_take(job)[:2] for job in iter(lambda lane=lane: take(lane), None)] for lane in range(num_lanes)]  # type: ignore[misc]
    for lane in lanes:
        assert lane == sorted(lane)
    together = list(itertools.chain(*lanes))
    assert len(together) == len(set(together)) == 17
    _close(files)


def test_readers_read_all_and_close_twice(files: list[OpenedFile]) -> None:
    jobs = [read_extent(files[0].fd, 4096 * block, 4096, files[0].path) for block in range(5)]
    with Readers(4096) as readers:
        window = readers.run(in_turn(jobs), depth=2, seconds=30.0)  # ends when the jobs do
        assert (window.total_bytes, len(window.latencies)) == (5 * 4096, 5)
        assert window.bytes_per_s > 0
        assert "2 buffers" in repr(readers)
        readers.close()
    _close(files)


def test_so_many_reads_are_in_flight_at_a_time() -> None:
    """Four readers meet inside a read: with fewer at a time this would not end well."""
    together = threading.Barrier(4)

    def meet(_: mmap.mmap) -> int:
        together.wait(timeout=60)
        return 1

    with Readers(4096) as readers:
        window = readers.run(in_turn([meet] * 8), depth=4, seconds=60.0)
    assert len(window.latencies) == 8


def test_an_error_in_a_reader_is_raised_where_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(100))
    fd = os.open(path, os.O_RDONLY)
    try:
        with Readers(4096) as readers, pytest.raises(UnusableInput, match="became shorter") as caught:
            readers.run(in_turn([read_extent(fd, 0, 4096, str(path))] * 3), depth=2, seconds=5.0)
    finally:
        os.close(fd)
    assert caught.value.evidence == {"offset": 0, "asked": 4096, "got": 100}


def test_whole_files_of_any_size(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 20_000)
    (tmp_path / "empty").write_bytes(b"")
    with mmap.mmap(-1, 4096) as buffer:
        sizes = [read_whole_file(str(tmp_path / name))(buffer) for name in ("long", "empty", "gone")]
    assert sizes == [20_000, 0, 0]
    with mmap.mmap(-1, 4096) as buffer, pytest.raises(UnusableInput, match="cannot read"):
        read_whole_file(str(tmp_path))(buffer)
