"""Extents that are read ahead inside an iterable data set come in order, whole, and with their true errors."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, get_worker_info

import headrace
from headrace.storage.reading import Extent, close_files, read_ahead

SIZE = 300_000


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("ahead") / "shard.tar"
    path.write_bytes(random.Random(2).randbytes(SIZE))
    yield path
    close_files()


@given(
    places=st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 40_000)), max_size=40),
    depth=st.integers(1, 6),
    block_bytes=st.sampled_from([1, 4096, 100_000]),
)
def test_each_extent_in_its_order(shard: Path, places: list[tuple[int, int]], depth: int, block_bytes: int) -> None:
    whole = shard.read_bytes()
    extents = [Extent(str(shard), at, min(size, SIZE - at)) for at, size in places]
    found = list(read_ahead(extents, depth, block_bytes))
    assert [extent for extent, _ in found] == extents
    for extent, view in found:
        assert view == whole[extent.offset : extent.offset + extent.size]


def test_no_more_is_asked_for_than_is_in_flight(shard: Path) -> None:
    asked = 0

    def extents() -> Iterator[Extent]:
        nonlocal asked
        for number in range(100):
            asked += 1
            yield Extent(str(shard), number * 2000, 1000)

    reading = read_ahead(extents(), depth=3, block_bytes=1000)
    assert asked == 0
    next(reading)
    assert asked <= 3 + 2  # one more to know that a run is at its end
    reading.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-io")]


def test_a_file_that_ends_too_soon_spares_what_is_whole(shard: Path) -> None:
    extents = [Extent(str(shard), SIZE - 2000, 1000), Extent(str(shard), SIZE - 1000, 2000)]
    reading = read_ahead(extents)
    assert len(next(reading)[1]) == 1000
    with pytest.raises(OSError, match=r"ends 1000 bytes before the end of a sample.*shard\.tar"):
        next(reading)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.tar"):
        next(read_ahead([Extent(str(tmp_path / "gone.tar"), 0, 10)]))
    with pytest.raises(ValueError, match="above 0"):
        read_ahead([], depth=0)


class Stream(IterableDataset[Any]):
    """Rows of a shard, each worker its own part."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        info = get_worker_info()
        rows = range(info.id if info else 0, 100, info.num_workers if info else 1)
        for extent, view in read_ahead((Extent(self.path, row * 3000, 3000) for row in rows), depth=2):
            yield extent.offset // 3000, np.array(view)  # a copy: views are read-only, tensors are not


@pytest.mark.parametrize("num_workers", [0, 2])
def test_in_an_iterable_data_set(shard: Path, num_workers: int) -> None:
    whole, seen = shard.read_bytes(), set()
    for rows, data in headrace.DataLoader(Stream(str(shard)), batch_size=10, num_workers=num_workers):
        for row, values in zip(rows.tolist(), data.numpy(), strict=True):
            assert values.tobytes() == whole[row * 3000 : (row + 1) * 3000]
            seen.add(row)
    assert seen == set(range(100))
