"""The path of a healthy sample: what runs for each batch is the list of modules in ARCHITECTURE.md, and no other."""

from __future__ import annotations

import collections
import re
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from headrace import DataLoader

ROOT = Path(__file__).parents[2]
BATCH, TRACED = 16, 30  # samples a batch, batches in the stretch that is traced


class Trace:
    """Notes which of our modules run between two batches, or between two chunks in a worker."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.turns: list[set[str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "/src/headrace/" in code.co_filename:
            module = code.co_filename.partition("/src/headrace/")[2].removesuffix(".py")
            if (module, code.co_name) in (("loader/workers", "__next__"), ("engine/worker/worker", "_serve")):
                self.turns.append(self.seen)
                self.seen = set()
            self.seen.add(module)

    def usual(self) -> set[str]:
        """Those that ran in most turns."""
        counts = collections.Counter(module for seen in self.turns[1:] for module in seen)
        return {module for module, count in counts.items() if count > len(self.turns) / 2}


class Traced(Dataset[Any]):
    """Traces its worker from the 300th sample to the 600th there, and writes down what ran for every chunk."""

    def __init__(self, seconds: float, folder: Path) -> None:
        self.seconds, self.folder = seconds, folder
        self.count, self.trace = 0, Trace()

    def __len__(self) -> int:
        return 100 * BATCH

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.count += 1
        if self.count == 300:
            sys.setprofile(self.trace)
        elif self.count == 600:
            sys.setprofile(None)
            (self.folder / "worker").write_text("\n".join(self.trace.usual()))
        time.sleep(self.seconds)
        return np.full((64, 64), index, np.float32), index


@pytest.mark.parametrize("seconds", [0.0, 0.0005], ids=["tiny", "slow"])
def test_a_healthy_batch_passes_through_no_other_modules(seconds: float, tmp_path: Path) -> None:
    loader = DataLoader(Traced(seconds, tmp_path), batch_size=BATCH, num_workers=1)
    trace = Trace()
    for number, _ in enumerate(loader):
        sys.setprofile(trace if 40 <= number < 40 + TRACED else None)
        time.sleep(0.01 + 3 * BATCH * seconds)  # the next batch is ready, also where others use the cores
    found = trace.usual() | set((tmp_path / "worker").read_text().split())
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The path of a sample")[2].partition("\n1. ")[0]
    listed = [name if "/" in name else f"engine/{name}" for name in re.findall(r"`([a-z_/]+)`", section)]
    listed = [f"engine/{name}" if name.split("/")[0] in ("epoch", "memory", "worker") else name for name in listed]
    assert found == set(listed)
    assert len(listed) <= 20


def test_the_trace_sees_what_runs() -> None:
    trace = Trace()
    sys.setprofile(trace)
    try:
        DataLoader([1, 2])
    finally:
        sys.setprofile(None)
    assert "loader/dataloader" in trace.seen
