"""A training script without `if __name__ == "__main__":` whose loader starts its workers anew."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

CASES = {"spawns_when_imported": {"target": "loader", "finds": "needs_main_guard", "also": ["import_fails"]}}
dataset = TensorDataset(torch.rand(64, 4))
loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="spawn")
for _batch in loader:
    pass
