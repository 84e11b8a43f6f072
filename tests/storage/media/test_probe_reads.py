"""A rate is what the storage delivered, whatever the shape of its delivery; readers read what they should."""

import itertools
import mmap
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UnusableInput
from headrace.storage.media.probe import OpenedFile, at_random, in_lanes
from headrace.storage.media.probe_reads import Job, Readers, rate_of

MIB = 1 << 20


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
        opened.append(OpenedFile(str(path), path.stat().st_size, os.open(path, os.O_RDONLY)))
    return opened


def _close(files: list[OpenedFile]) -> None:
    for file in files:
        os.close(file.fd)


def _take(job: Job) -> bytes:
    with mmap.mmap(-1, 4096) as buffer:
        return buffer[: job.read(buffer)]


def test_every_block_comes_once(files: list[OpenedFile]) -> None:
    seen = [_take(job)[:2] for job in at_random(files, 4096, random.Random(1), is_direct=False)]
    expected = [bytes([number, block]) for number, count in enumerate((5, 3, 9)) for block in range(count)]
    assert sorted(seen) == expected
    assert seen != expected  # in random order
    _close(files)


@pytest.mark.parametrize("num_lanes", [1, 2, 3, 4])
def test_lanes_are_in_order_and_apart(files: list[OpenedFile], num_lanes: int) -> None:
    lanes = [[_take(job)[:2] for job in lane] for lane in in_lanes(files, 4096, num_lanes=num_lanes, is_direct=False)]
    for lane in lanes:
        assert lane == sorted(lane)
    together = list(itertools.chain(*lanes))
    assert len(together) == len(set(together)) == 17
    _close(files)


def test_readers_read_all_and_close_twice(files: list[OpenedFile]) -> None:
    jobs = iter([files[0].job(4096 * block, is_direct=False) for block in range(5)])
    with Readers(4096) as readers:
        window = readers.run([jobs] * 2, seconds=30.0, most_bytes=MIB)  # ends when the jobs do
        assert (window.total_bytes, len(window.latencies)) == (5 * 4096, 5)
        assert window.bytes_per_s > 0
        assert "2 buffers" in repr(readers)
        readers.close()
    _close(files)


def test_readers_stop_when_the_bytes_are_used_up(files: list[OpenedFile]) -> None:
    jobs = itertools.cycle([files[0].job(0, is_direct=False)])
    with Readers(4096) as readers:
        window = readers.run([jobs] * 2, seconds=30.0, most_bytes=20 * 4096)
    assert 20 <= len(window.latencies) <= 24  # those that were under way have ended
    _close(files)


def test_so_many_reads_are_in_flight_at_a_time() -> None:
    """Four readers meet between two reads: with fewer at a time this would not end well."""
    together = threading.Barrier(4)

    def meeting() -> Iterator[Job]:
        for _ in range(2):
            together.wait(timeout=60)
            yield Job("/dev/null")

    with Readers(4096) as readers:
        window = readers.run([meeting() for _ in range(4)], seconds=60.0, most_bytes=MIB)
    assert len(window.latencies) == 8


def test_an_error_in_a_reader_is_raised_where_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(100))
    fd = os.open(path, os.O_RDONLY)
    try:
        with Readers(4096) as readers, pytest.raises(UnusableInput, match="became shorter") as caught:
            readers.run([iter([Job(str(path), fd)] * 3)] * 2, seconds=5.0, most_bytes=MIB)
    finally:
        os.close(fd)
    assert caught.value.evidence == {"offset": 0, "asked": 4096, "got": 100}


def test_whole_files_of_any_size(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 20_000)
    (tmp_path / "empty").write_bytes(b"")
    with mmap.mmap(-1, 4096) as buffer:
        sizes = [Job(str(tmp_path / name)).read(buffer) for name in ("long", "empty", "gone")]
    assert sizes == [20_000, 0, 0]
    with mmap.mmap(-1, 4096) as buffer, pytest.raises(UnusableInput, match="cannot read"):
        Job(str(tmp_path)).read(buffer)
