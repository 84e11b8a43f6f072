"""The training of `headrace demo`, as a user would have written it: nothing in it knows of Headrace."""

import os
import sys
from typing import Any

import numpy as np
import torch
from torch.nn import Linear, ReLU, Sequential
from torch.utils.data import DataLoader, Dataset

SCANS, POINTS = 8, 16384  # of a sample: eight turns of the scanner, as many points of each


class Sequences(Dataset[Any]):
    """Sequences of LiDAR scans, one file a scan, each moved to where the last one was taken."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(entry.path for entry in os.scandir(folder))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        moved = []
        for turn in range(SCANS):
            scan = np.fromfile(self.paths[(index + turn) % len(self.paths)], np.float32).reshape(-1, 4)
            some = scan[:: len(scan) // POINTS][:POINTS]
            some[:, 0] += 0.8 * (SCANS - turn)  # metres that the car drove meanwhile
            moved.append(some)
        return {"points": np.stack(moved), "label": index % 2}


def main(folder: str, epochs: int, batch_size: int, num_workers: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Sequences(folder), batch_size, shuffle=True, num_workers=num_workers, persistent_workers=True)
    points, classes = Sequential(Linear(4, 32), ReLU(), Linear(32, 64)), Linear(64, 2)
    optimizer = torch.optim.SGD([*points.parameters(), *classes.parameters()], lr=1e-3)
    for epoch in range(epochs):
        for step, batch in enumerate(loader):
            some = batch["points"].flatten(1, 2)[:, ::128]
            loss = torch.nn.functional.cross_entropy(classes(points(some).amax(1)), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step} loss {loss.item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
