"""A plain loop with Accelerate's wrappers around model, optimizer and loaders."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    data = [torch.randn(8) for _ in range(80)]
    model, optimizer, train, valid = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-3),
        DataLoader(data, batch_size=4, num_workers=2),
        DataLoader(data[:40], batch_size=4),
    )
    steps = 0
    for epoch in range(2):
        model.train()
        for batch in train:
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
        model.eval()
        with torch.no_grad():
            for batch in valid:
                accelerator.gather_for_metrics(model(batch))
        accelerator.save_state(f"saved/{epoch}")
    accelerator.print("steps", steps)


if __name__ == "__main__":
    main()
