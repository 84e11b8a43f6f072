"""Switch a training script from torch's DataLoader: the same data set and loop with both, batch for batch the same.

Run it with `python examples/switch_from_torch.py`. It takes a few seconds and reads no files: the volumes are made
up, and a short sleep stands for the disk.
"""

import time

import numpy as np
import torch

import headrace


class Volumes:
    """Small volumes of two classes; the second class is brighter."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, object]:
        time.sleep(0.01)  # the disk
        random = np.random.default_rng(index)
        volume = random.normal(loc=index % 2, size=(16, 32, 32)).astype(np.float32)
        return {"volume": volume, "label": index % 2}


def train(loader: torch.utils.data.DataLoader) -> tuple[float, list[float]]:
    """Run one epoch and return its last loss and the time spent waiting for each batch."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16 * 32 * 32, 2)
    waits_s, loss = [], torch.zeros(())
    asked_at = time.perf_counter()
    for batch in loader:
        waits_s.append(time.perf_counter() - asked_at)
        loss = torch.nn.functional.cross_entropy(model(batch["volume"].flatten(1)), batch["label"])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.001 * gradient
        asked_at = time.perf_counter()
    return loss.item(), waits_s


def main() -> None:
    """Train one epoch with each loader and compare."""
    losses = []
    for kind in (torch.utils.data.DataLoader, headrace.DataLoader):
        # The one difference is the class: the arguments are the same.
        loader = kind(Volumes(), batch_size=8, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(0))
        loss, waits_s = train(loader)
        losses.append(loss)
        rest = sorted(waits_s[1:])
        print(
            f"{kind.__module__.split('.')[0]:<9} first batch {1000 * waits_s[0]:4.0f} ms   "
            f"wait, median {1000 * rest[len(rest) // 2]:4.0f} ms, worst {1000 * rest[-1]:4.0f} ms   loss {loss:.6f}"
        )
    print("the losses are the same" if losses[0] == losses[1] else "THE LOSSES DIFFER")


if __name__ == "__main__":
    main()
