"""A training script without a guard that trains when it is imported; with fork, and nobody notices."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

CASES = {"trains_when_imported": {"target": "loader", "finds": "needs_main_guard"}}
dataset = TensorDataset(torch.rand(64, 4))
loader = DataLoader(dataset, batch_size=4, num_workers=2)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in loader:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
