"""A collation of the user's may write into its samples and keep them: the shared ones stay as they were fetched."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

import headrace
from headrace.engine.memory.arena import Arena
from headrace.engine.memory.blocks import Region
from headrace.engine.memory.parcels import dump, peek
from headrace.engine.worker.sharing import Borrowed
from headrace.errors import WorkerLost

SMALL, LARGE = 3_000, 5 << 20


@pytest.fixture
def arena() -> Any:
    arena = Arena.create(1 << 28)
    yield arena
    arena.close()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_written_is_not_shared(arena: Arena, size: int) -> None:
    block, _ = dump(
        [np.full(size, 7, np.uint8), torch.full((size,), 8, dtype=torch.uint8)], Region(arena, 0, arena.size), arena
    )
    borrowed = Borrowed(arena)
    array, tensor = borrowed.read(block)
    array += 100
    tensor.zero_()
    assert array.min() == array.max() == 107
    assert not tensor.any()
    del array, tensor
    borrowed.settle()
    again = peek(arena, block)
    assert again[0].min() == again[0].max() == 7
    assert (again[1] == 8).all()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_kept_outlives_its_block(arena: Arena, size: int) -> None:
    block, used = dump([np.full(size, 7, np.uint8), 1], Region(arena, 0, arena.size), arena)
    borrowed = Borrowed(arena)
    kept = borrowed.read(block)[0]
    kept[0] = 9
    borrowed.settle()
    arena.view(block, used)[:] = bytes(used)  # the block's next use
    assert kept[0] == 9
    assert kept[1:].min() == kept[1:].max() == 7


def test_where_nothing_can_be_mapped_a_large_block_is_copied(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Arena, "map_apart", refused)
    block, _ = dump([np.full(LARGE, 7, np.uint8)], Region(arena, 0, arena.size), arena)
    borrowed = Borrowed(arena)
    (array,) = borrowed.read(block)
    array += 1
    borrowed.settle()
    assert array.min() == array.max() == 8
    assert peek(arena, block)[0].max() == 7


def test_a_mapping_ends_with_its_collation(arena: Arena) -> None:
    block, _ = dump([np.zeros(LARGE, np.uint8)], Region(arena, 0, arena.size), arena)
    before = Path("/proc/self/maps").read_text().count("\n")
    for _ in range(20):
        borrowed = Borrowed(arena)
        assert borrowed.read(block)[0].size == LARGE
        borrowed.settle()
    assert Path("/proc/self/maps").read_text().count("\n") < before + 10


class Values(Dataset[Any]):
    """Arrays that go through shared memory as they are."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return np.full(self.size, index, np.uint8)


class WritesThenDies:
    """Changes its samples; the first time, its worker is killed after that."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag
        self.kept: list[Any] = []

    def __call__(self, samples: list[Any]) -> torch.Tensor:
        earlier = [int(sample[0]) for sample in self.kept]
        for sample in samples:
            sample += 100
        if get_worker_info() is not None and 20 in [int(s[0]) - 100 for s in samples] and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.kept = samples[:2]
        assert earlier == [] or min(earlier) >= 100  # not somebody else's bytes by now
        return torch.tensor([int(sample[-1]) for sample in samples])


@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_killed_collation_is_repeated_on_what_was_fetched(
    backend: Any, size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flag = tmp_path / "died"
    loader: Any = headrace.DataLoader(
        Values(size), 8, num_workers=2, backend=backend, collate_fn=WritesThenDies(flag), memory="1GiB"
    )
    got = [value for batch in loader for value in batch.tolist()]
    assert flag.exists(), "nobody died"
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "the collation of a batch (for" in said
    assert got == [index + 100 for index in range(48)]


def dies_at_twenty(samples: list[Any]) -> torch.Tensor:
    if get_worker_info() is not None and any(int(sample[0]) == 20 for sample in samples):
        os._exit(3)
    return torch.stack([torch.from_numpy(sample) for sample in samples])


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_collation_that_kills_each_worker_ends_the_epoch_with_an_error(backend: Any) -> None:
    """No sample can be left out for it: which of them is to blame nobody knows."""
    loader: Any = headrace.DataLoader(
        Values(SMALL), 8, num_workers=2, backend=backend, collate_fn=dies_at_twenty, on_error="quarantine"
    )
    got: list[int] = []

    def take_all() -> None:
        for batch in loader:
            got.extend(batch[:, 0].tolist())

    with pytest.raises(WorkerLost, match="the collation of a batch"):
        take_all()
    assert got == list(range(16))
    assert not loader.quarantine
