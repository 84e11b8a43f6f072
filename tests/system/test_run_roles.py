"""`headrace run` on scripts that evaluate a part of what they train, make their loader anew, or have none."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from .test_cli import HEADRACE, _environment
from .test_run_command import document, script

pytestmark = pytest.mark.alone  # beside another test the cores are full now and then, and that is told, too

# What timm does: it trains a task, and evaluates the model inside it.
_NESTED = """
import time, torch
from torch.utils.data import DataLoader

class Task(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
    def forward(self, rows):
        time.sleep(0.01)
        return self.model(rows)

def slowly(rows):
    time.sleep(0.01)
    return torch.stack(rows)

if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    task = Task(model)
    optimizer = torch.optim.SGD(task.parameters(), lr=0.01)
    valid = DataLoader([torch.ones(4)] * 80, batch_size=4, collate_fn=slowly)
    for epoch in range(3):
        task.train()
        for rows in DataLoader([torch.ones(4)] * 100, batch_size=4):
            task(rows).mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for rows in valid:
                model(rows)
"""

_NO_LOADER = """
import time, torch

def get_batch():
    time.sleep(0.01)
    return torch.ones(4, 4)

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    model(get_batch()).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


_A_PASS_A_STEP = """
import torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader([torch.ones(4)] * 400, batch_size=4, num_workers=1)
    for step in range(25):
        model(next(iter(loader))).mean().backward()
        optimizer.step()
"""


def run(tmp_path: Path, text: str) -> tuple[str, dict[str, Any]]:
    path = script(tmp_path, text, "train.py")
    done = subprocess.run(
        [HEADRACE, "run", "--out", str(tmp_path / "run"), str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr, document(tmp_path / "run")


def _own_causes(found: dict[str, Any]) -> list[str]:
    """The causes in the script itself; a busy machine's cores that are taken, and its slow steps, are told too."""
    return [one["cause"] for one in found["findings"] if one["cause"] not in ("cpu_contended", "unknown")]


def test_the_model_inside_the_one_that_is_trained_is_evaluated_and_a_loader_made_anew_is_one(tmp_path: Path) -> None:
    said, found = run(tmp_path, _NESTED)
    seen = {(row["role"], row["num_made"], row["passes"], row["batches"]) for row in found["loaders"]}
    assert seen == {("training", 3, 3, 75), ("evaluation", 1, 3, 60)}
    places = {row["role"]: row["place"] for row in found["loaders"]}
    assert places == {
        "training": f"{tmp_path}/train.py:{1 + _NESTED[: _NESTED.index('for rows in DataLoader')].count(chr(10))}",
        "evaluation": f"{tmp_path}/train.py:{1 + _NESTED[: _NESTED.index('valid = DataLoader')].count(chr(10))}",
    }
    assert "train.py:" in said.partition("\nloaders\n")[2]
    rows = {row["activity"]: row for row in found["times"]}
    assert rows["evaluation"]["count"] == 3
    assert _own_causes(found) == ["evaluation"]
    assert found["figures"]["steps"] == 72


def test_a_loop_without_a_loader_has_its_table(tmp_path: Path) -> None:
    said, found = run(tmp_path, _NO_LOADER)
    rows = {row["activity"]: row for row in found["times"]}
    assert rows["backward"]["count"] == rows["optimizer"]["count"] == 60
    assert rows["forward"]["count"] == rows["between_steps"]["count"] == 58  # by the second call the model is found
    assert rows["between_steps"]["seconds"] >= 58 * 0.01
    assert "between steps: data made by the loop itself, or other Python" in said
    assert 'headrace.phase("data")' in said
    assert _own_causes(found) == []
    assert found["verdict"] in ("unknown", "elsewhere", "stuttering")  # the last two on a busy machine


def test_who_takes_one_batch_of_each_pass_is_told_to_keep_the_iterator(tmp_path: Path) -> None:
    said, found = run(tmp_path, _A_PASS_A_STEP)
    assert found["findings"][0]["cause"] == "epoch_start"
    assert "do: keep one iterator for many steps" in said
    assert "after 1 batch on average" in " ".join(said.split())
