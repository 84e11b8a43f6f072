"""Parts that cannot be sent to a process that starts anew: spawn, and forkserver, Python 3.14's default."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from case_files import FOLDER
from torch.utils.data import DataLoader, Dataset

CASES = {
    "lambda_transform": {"finds": "unpicklable"},
    "lambda_collate": {"finds": "unpicklable"},
    "lock": {"finds": "unpicklable"},
    "open_file": {"finds": "unpicklable", "also": ["shared_handle"]},
    "local_class": {"finds": "unpicklable"},
    "generator": {"finds": "unpicklable"},
    "nested_lambda": {"finds": "unpicklable"},
    "connection": {"finds": "unpicklable", "also": ["shared_handle"]},
    "lock_that_is_left_behind": {"finds": ""},
}


class Numbers(Dataset[torch.Tensor]):
    """Healthy but for what it holds."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index))


class Transformed(Numbers):
    """With a function that is applied to each sample."""

    def __init__(self, transform: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.transform = transform

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(super().__getitem__(index))


class LeavesItBehind(Numbers):
    """Its lock does not travel: each process makes its own."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.held = threading.Lock()


def _count() -> Iterator[int]:
    yield from range(10)


def lambda_transform() -> Dataset[torch.Tensor]:
    return Transformed(lambda tensor: tensor * 2)


def lambda_collate() -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(), batch_size=4, num_workers=2, collate_fn=lambda rows: torch.stack(rows) * 2)


def lock() -> Dataset[torch.Tensor]:
    return Numbers(threading.Lock())


def open_file() -> Dataset[torch.Tensor]:
    return Numbers(open(FOLDER / "records.bin", "rb"))


def local_class() -> Dataset[torch.Tensor]:
    class Inside(Numbers):
        pass

    return Inside()


def generator() -> Dataset[torch.Tensor]:
    return Numbers(_count())


def nested_lambda() -> Dataset[torch.Tensor]:
    return Numbers({"steps": [{"name": "flip", "apply": lambda tensor: tensor.flip(0)}]})


def connection() -> Dataset[torch.Tensor]:
    return Numbers(sqlite3.connect(":memory:"))


def lock_that_is_left_behind() -> Dataset[torch.Tensor]:
    return LeavesItBehind()
