"""Iterable data sets: split among workers, and not."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CASES = {
    "every_worker_gives_all": {"finds": "not_split"},
    "split_by_rank_alone": {"finds": "not_split"},
    "split_by_worker": {"finds": ""},
    "split_by_init": {"finds": ""},
}


class Stream(IterableDataset[torch.Tensor]):
    """Numbers in a row."""

    def __init__(self) -> None:
        self.first, self.step = 0, 1

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.first, 400, self.step):
            yield torch.full((4,), float(number))


class ByRank(Stream):
    """Each rank its part: workers are forgotten."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        for number in range(rank, 400, size):
            yield torch.full((4,), float(number))


class ByWorker(Stream):
    """Each worker its part."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 400, step):
            yield torch.full((4,), float(number))


def _split(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.first, info.dataset.step = worker, info.num_workers  # type: ignore[attr-defined]  # of Stream


def every_worker_gives_all() -> DataLoader[torch.Tensor]:
    return DataLoader(Stream(), batch_size=8, num_workers=2)


def split_by_rank_alone() -> DataLoader[torch.Tensor]:
    return DataLoader(ByRank(), batch_size=8, num_workers=2)


def split_by_worker() -> DataLoader[torch.Tensor]:
    return DataLoader(ByWorker(), batch_size=8, num_workers=2)


def split_by_init() -> DataLoader[torch.Tensor]:
    return DataLoader(Stream(), batch_size=8, num_workers=2, worker_init_fn=_split)
