"""Saves in a loop: torch.distributed.checkpoint, at once and in the background, and torch.save to three places."""

import io
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model = torch.nn.Linear(64, 64)
    future = None
    for step, batch in enumerate(DataLoader([torch.randn(64) for _ in range(160)], batch_size=4)):
        model(batch).square().mean().backward()
        state = {"model": model.state_dict()}
        if step in {5, 15}:
            dcp.save(state, checkpoint_id=f"now/{step}", no_dist=True)
        if step in {10, 20}:
            if future is not None:
                future.result()
            future = dcp.async_save(state, checkpoint_id=f"later/{step}", no_dist=True)
    assert future is not None
    future.result()
    torch.save(state, "path.pt")
    torch.save(state, io.BytesIO())
    with Path("file.pt").open("wb") as file:
        torch.save(state, file)
    list(DataLoader([1, 2]))  # the training goes on: what comes after the last event is its end


if __name__ == "__main__":
    main()
