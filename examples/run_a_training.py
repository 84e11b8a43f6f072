"""A training whose samples come too slowly: `headrace run examples/run_a_training.py` says so, and why.

Started with plain Python it does just that by itself, and prints what the findings say.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import headrace


class SlowSamples(Dataset[torch.Tensor]):
    """Each sample takes ten steps' time."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.1)
        return torch.full((4,), float(index))


def train() -> None:
    """Train for an epoch: nothing in here knows of Headrace but the mark around the checkpoint."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step, batch in enumerate(DataLoader(SlowSamples(), batch_size=2, num_workers=2)):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
        if step == 20:
            with headrace.phase("checkpoint"):
                torch.save(model.state_dict(), "/dev/null")
    print("trained")


def main() -> None:
    """Run this very script under `headrace run`."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "headrace", "run", "--out", str(run), __file__, "train"]
        subprocess.run(command, check=True)
        findings = json.loads((run / "findings.json").read_text(encoding="utf-8"))
    print(f"verdict: {findings['verdict']}")
    for finding in findings["findings"]:
        print(f"{finding['cause']}: {finding['share']:.0%} of the time")


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else main()
