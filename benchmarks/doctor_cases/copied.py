"""Millions of small objects: each worker that only reads them copies their pages. And the same as arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CASES = {
    "three_million_tuples": {"finds": "copied_dataset", "seconds": 240},
    "two_million_texts": {"finds": "copied_dataset", "seconds": 240},
    "a_million_dictionaries": {"finds": "copied_dataset", "seconds": 240},
    "the_same_as_arrays": {"finds": ""},
    "the_same_as_one_text": {"finds": ""},
    "ten_thousand_paths": {"finds": ""},
}


class Rows(Dataset[torch.Tensor]):
    """Reads its list."""

    def __init__(self, rows: object, num: int) -> None:
        self.rows, self.num = rows, num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(len(str(self.rows[index]))))  # type: ignore[index]  # a list or an array


class OneText(Rows):
    """All names in one array of bytes, and where each begins."""

    def __init__(self, num: int) -> None:
        lengths = np.full(num, 20)
        super().__init__(np.frombuffer(b"train/picture_000000" * num, np.uint8), num)
        self.ends = lengths.cumsum()

    def __getitem__(self, index: int) -> torch.Tensor:
        end = int(self.ends[index])
        return torch.tensor(float(len(bytes(self.rows[end - 20 : end]))))  # type: ignore[index]  # an array


def _loader(dataset: Dataset[torch.Tensor]) -> DataLoader[torch.Tensor]:
    return DataLoader(dataset, batch_size=256, shuffle=True, num_workers=2)


def three_million_tuples() -> DataLoader[torch.Tensor]:
    return _loader(Rows([(number, number * 0.5) for number in range(3_000_000)], 3_000_000))


def two_million_texts() -> DataLoader[torch.Tensor]:
    return _loader(Rows([f"train/{number:09}.jpg" for number in range(2_000_000)], 2_000_000))


def a_million_dictionaries() -> DataLoader[torch.Tensor]:
    return _loader(Rows([{"path": f"{number:09}.jpg", "label": number} for number in range(1_000_000)], 1_000_000))


def the_same_as_arrays() -> DataLoader[torch.Tensor]:
    return _loader(Rows(np.arange(6_000_000).reshape(-1, 2), 3_000_000))


def the_same_as_one_text() -> DataLoader[torch.Tensor]:
    return _loader(OneText(2_000_000))


def ten_thousand_paths() -> DataLoader[torch.Tensor]:
    return _loader(Rows([f"train/{number:09}.jpg" for number in range(10_000)], 10_000))
