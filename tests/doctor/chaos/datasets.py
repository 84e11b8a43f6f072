"""Data sets and loaders for chaos, named as a user names them: one for each way that samples take to their batch."""

import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[Any]):
    """Arrays, numbers and texts made from the index: they go into slots."""

    def __init__(self, num_samples: int = 1600, size: int = 300, pause_s: float = 0.0005) -> None:
        self.num_samples, self.size, self.pause_s = num_samples, size, pause_s

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        if self.pause_s:
            time.sleep(self.pause_s)
        return {"x": np.full(self.size, index, np.float32), "y": index, "name": f"sample {index}"}


class ListOfRows(Rows):
    """Fetches several samples in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Ragged(Rows):
    """Samples of different lengths: only a collation of the user's can join them."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((1 + index % 50,), float(index))


class Drawing(Rows):
    """Samples that draw random numbers: they are seeded by their position, so a second try is the same."""

    def __getitem__(self, index: int) -> Any:
        return torch.rand(64) + index, index


def keep(samples: list[Any]) -> list[Any]:
    """Collate nothing: the samples as they are."""
    return list(samples)


def pad(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def change(samples: list[dict[str, Any]]) -> torch.Tensor:
    """Collate as many users do: write into the samples, then join them."""
    for sample in samples:
        sample["x"] += 1000
        sample["x"][::7] *= -1
    return torch.from_numpy(np.stack([sample["x"][:400] for sample in samples]))


def slots() -> Any:
    return Rows()


def tiny() -> Any:
    """Samples so quick that a chunk holds many."""
    return Rows(6000, 8, 0.0)


def large() -> Any:
    return Rows(400, 500_000)


def lists() -> Any:
    return ListOfRows()


def drawing() -> Any:
    return Drawing()


def general() -> Any:
    return DataLoader(Ragged(), batch_size=6, collate_fn=pad)


def kept() -> Any:
    return DataLoader(Rows(), batch_size=7, collate_fn=keep)


def changed() -> Any:
    return DataLoader(Rows(), batch_size=6, collate_fn=change)


def changed_large() -> Any:
    """Samples that are mapped for their collation, not copied."""
    return DataLoader(Rows(200, 1_200_000), batch_size=4, collate_fn=change)


def whole() -> Any:
    """A collation of the user's over `__getitems__`: batches are not split."""
    return DataLoader(ListOfRows(), batch_size=5, collate_fn=keep)


class SomeBad(Rows):
    """A few samples that fail by themselves."""

    def __getitem__(self, index: int) -> Any:
        if index % 400 == 7:
            raise ValueError(f"sample {index} cannot be decoded")
        return super().__getitem__(index)


def some_bad() -> Any:
    return SomeBad()
