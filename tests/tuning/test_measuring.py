"""What a sample and a worker cost is measured in a process of its own, and nothing of it stays."""

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CannotLoadTarget
from headrace.tuning import Measured, ProbeHost

_MIB = 1 << 20

CODE = """
import sys, time
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Decoded(Dataset):
    def __init__(self): self.names = [f"image_{n:09}.jpg" for n in range(200_000)]
    def __len__(self): return len(self.names)
    def __getitem__(self, index):
        print("a sample says", index)
        for name in self.names: pass
        scratch = np.ones(24 << 20, np.uint8)
        return {"image": torch.from_numpy(scratch[: 4 << 20].copy()), "label": index}
def loader(): return DataLoader(Decoded(), batch_size=6, num_workers=3, prefetch_factor=4)
class Ragged(IterableDataset):
    def __iter__(self): return (np.zeros(1000 * (1 + n)) for n in range(8))
class Failing(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): raise OSError("no such scan")
class Dying(Failing):
    def __getitem__(self, index): import os; os._exit(7)
class Slow(Failing):
    def __getitem__(self, index): time.sleep(600)
class Greedy(Failing):
    def __getitem__(self, index): return np.ones(1 << 30, np.uint8)
class Empty(Failing):
    def __len__(self): return 0
"""


def measure_target(target: str, *, memory_bytes: int = 4 << 30, **bounds: Any) -> Measured:
    with ProbeHost(target, memory_bytes=memory_bytes) as host:
        return host.measure(**bounds)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "measured_things.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_loader_is_measured(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    measured = measure_target("measured_things.py:loader", num_samples=3)
    cost = measured.cost
    assert measured.num_fetched == 4
    assert cost.sample_bytes == 4 * _MIB
    assert cost.batch_sample_bytes == 4 * _MIB + 8  # and a label
    assert 27 * _MIB < cost.fetch_peak_bytes < 34 * _MIB
    assert 12 * _MIB < cost.dataset_bytes < 16 * _MIB
    assert 0 < cost.worker_bytes < 60 * _MIB
    assert cost.collected_bytes > 10 * _MIB
    assert cost.training_bytes > 100 * _MIB
    assert measured.cost.uses_rows
    assert capfd.readouterr() == ("", "")  # what the user's code prints stays there


def test_a_stream_of_several_sizes_is_measured(folder: Path) -> None:
    measured = measure_target("measured_things:Ragged", num_samples=3)
    assert (measured.least_bytes, measured.greatest_bytes) == (8000, 32000)
    assert not measured.cost.uses_rows


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Failing", "measured_things:Failing could not be measured: a sample failed: OSError: no such scan"),
        ("Dying", "ended with 7 while it fetched a sample"),
        ("Empty", "it has no sample"),
        ("absent", "has no 'absent'"),
    ],
)
def test_what_cannot_be_measured_says_why(folder: Path, name: str, said: str) -> None:
    with pytest.raises(CannotLoadTarget) as caught:
        measure_target(f"measured_things:{name}")
    assert said in str(caught.value)


def test_time_and_memory_are_bounded(folder: Path) -> None:
    with pytest.raises(CannotLoadTarget, match="it took more than 6"):
        measure_target("measured_things:Slow", seconds=6.0)
    with pytest.raises(CannotLoadTarget, match="and 600 MiB are free for it"):
        measure_target("measured_things:Greedy", memory_bytes=600 * _MIB)
