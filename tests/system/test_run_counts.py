"""Every step of a short training is in the recording, once: kept events and looked-at tasks lose and repeat nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from headrace.model import EventKind, LoaderSettings
from headrace.signals.recording import read_run

from .test_cli import HEADRACE, _environment

_SCRIPT = """
import sys
import torch
import headrace
from torch.utils.data import DataLoader, TensorDataset

way, data = sys.argv[1], TensorDataset(torch.randn(400, 4), torch.zeros(400, 1))
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = (
    headrace.DataLoader(data, batch_size=4, num_workers=1, backend="process")
    if way == "ours"
    else DataLoader(data, batch_size=4, num_workers=0)
)
for number, (rows, labels) in enumerate(loader):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(rows), labels).backward()
    optimizer.step()
    if way == "raises" and number == 69:
        raise KeyError("at step 69")
"""


_OWN_ITERATOR = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Endless(DataLoader):
    iterator = None
    def __iter__(self):
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(50):
            yield next(self.iterator)

class Halve(torch.nn.Module):
    def forward(self, rows):
        return rows / 2

if __name__ == "__main__":
    data = TensorDataset(torch.randn(400, 4), torch.zeros(400, 1))
    halve, model = Halve(), torch.nn.Linear(4, 1)
    loader = Endless(data, batch_size=4, num_workers=2)
    for epoch in range(2):
        for rows, labels in loader:
            torch.nn.functional.mse_loss(model(halve(rows)), labels).backward()
    loader.iterator._shutdown_workers()
"""


def test_a_loader_with_an_iterator_of_its_own_and_a_model_behind_a_module_without_parameters(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_OWN_ITERATOR, encoding="utf-8")
    done = subprocess.run(
        [HEADRACE, "-q", "run", "--out", "recorded", "train.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "recorded")
    (trainer,) = (one for one in run.processes if one.role == "trainer")
    (epoch,) = run.events_of(EventKind.EPOCH)  # one iterator was made
    (name,) = {run.name_of(trainer.pid, one["arg"]) for one in run.events_of(EventKind.WAIT)}
    assert name == run.name_of(trainer.pid, epoch["arg"])
    (said,) = run.events_of(EventKind.LOADER)
    assert LoaderSettings.from_text(run.name_of(trainer.pid, said["arg"])).num_workers == 2
    assert len(run.events_of(EventKind.FORWARD)) == len(run.events_of(EventKind.BACKWARD)) - 1 == 99
    for worker in (one for one in run.processes if one.role == "worker"):
        tasks, idle = (run.events_of(kind, worker.pid) for kind in (EventKind.FETCH, EventKind.IDLE))
        assert len(run.events_of(EventKind.COLLATE, worker.pid)) == len(tasks) == len(np.unique(tasks["value"]))
        assert len(idle) > len(tasks)  # the last one ends with the word that there is no more
    assert len(run.events_of(EventKind.FETCH)) == 100


@pytest.mark.parametrize(("way", "steps", "waits"), [("raises", 70, 70), ("ours", 100, 101)])
def test_every_step_is_recorded_once(tmp_path: Path, way: str, steps: int, waits: int) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [HEADRACE, "-q", "run", "--out", "recorded", "train.py", way],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
        timeout=100,
    )
    assert done.returncode == (1 if way == "raises" else 0), done.stderr
    events = read_run(tmp_path / "recorded").events
    counts = {kind: int((events["kind"] == kind).sum()) for kind in EventKind}
    assert (counts[EventKind.BACKWARD], counts[EventKind.OPTIMIZER]) == (steps, steps)
    assert counts[EventKind.WAIT] == waits
    assert counts[EventKind.FORWARD] in (steps - 1, steps)  # the first call is how the model is found
    if way == "ours":
        assert counts[EventKind.FETCH] >= 1
        assert counts[EventKind.IDLE] >= 1
    else:
        assert (counts[EventKind.FETCH], counts[EventKind.COLLATE]) == (steps, steps)
        fetches = events[events["kind"] == EventKind.FETCH]
        assert len(np.unique(fetches["start_ns"])) == steps
