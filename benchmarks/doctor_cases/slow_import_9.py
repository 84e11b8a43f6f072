"""A module that takes 9 seconds to import."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

CASES = {"takes_9_s": {"target": "loader", "finds": "slow_import", "seconds": 300, "options": ["--timeout", "60"]}}
time.sleep(9)


def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=4, num_workers=2)
