"""What samples depend on besides their index is found in a process of its own, before anything is delivered."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, get_worker_info

from headrace.loader import probe_samples
from headrace.model import FeedReason

_OF_MODULE = np.random.RandomState(0)


class Kind(Dataset[Any]):
    """A data set whose samples depend on one thing."""

    def __init__(self, kind: str) -> None:
        self.kind, self.rng = kind, np.random.default_rng(0)
        self.lazy: random.Random | None = None

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        match self.kind:
            case "python":
                index += random.randrange(2)
            case "numpy":
                index += np.random.randint(2)
            case "torch":
                index += int(torch.randint(2, ()))
            case "held":
                index += int(self.rng.integers(2))
            case "its module's":
                index += _OF_MODULE.randint(2)
            case "made with the first sample":
                self.lazy = self.lazy or random.Random(index)
                index += self.lazy.randrange(2)
            case "puts it back":
                state = random.getstate()
                random.seed(index)
                index += random.randrange(2)
                random.setstate(state)
            case "worker":
                info = get_worker_info()
                index += 0 if info is None else info.id
            case "seed":
                index += torch.initial_seed() % 2
            case "raises":
                raise ValueError("no sample")
            case "dies":
                os._exit(3)
            case "hangs":
                time.sleep(60)
            case "whole batches":
                raise IndexError("ask for a batch")
            case "prints":
                os.write(1, b"a sample\n")
        return float(index)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if self.kind == "whole batches":
            assert len(indices) == 4
            return [float(index) for index in indices]
        return [self[index] for index in indices]


CASES = {
    "nothing": FeedReason.FED,
    "prints": FeedReason.FED,
    "whole batches": FeedReason.FED,
    "python": FeedReason.DRAWS,
    "numpy": FeedReason.DRAWS,
    "torch": FeedReason.DRAWS,
    "held": FeedReason.DRAWS,
    "its module's": FeedReason.DRAWS,
    "made with the first sample": FeedReason.DRAWS,
    "puts it back": FeedReason.DRAWS,
    "worker": FeedReason.ASKS_WORKER,
    "seed": FeedReason.ASKS_WORKER,
    "raises": FeedReason.PROBE_FAILED,
    "dies": FeedReason.PROBE_FAILED,
    "hangs": FeedReason.PROBE_LATE,
}


def seed_everything(worker: int) -> None:
    """What many scripts have as `worker_init_fn`."""
    np.random.seed((torch.initial_seed() + worker) % 2**32)


def collate(samples: list[Any]) -> Any:
    return torch.tensor(samples) * torch.rand(())


@pytest.mark.parametrize("kind", CASES)
def test_what_samples_depend_on(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(Kind(kind), batch_size=4, shuffle=True, num_workers=2, worker_init_fn=seed_everything)
    before = random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    assert probe_samples(loader, timeout_s=0.5 if kind == "hangs" else 20.0) is CASES[kind]
    assert (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()) == before  # type: ignore[union-attr]
    assert capfd.readouterr() == ("", "")


def test_a_collation_that_draws() -> None:
    assert probe_samples(DataLoader(Kind("nothing"), batch_size=4, num_workers=1, collate_fn=collate)) is (
        FeedReason.DRAWS
    )
    assert probe_samples(DataLoader(Kind("nothing"), batch_size=None, num_workers=1)) is FeedReason.FED


def test_the_sampler_of_the_script_is_not_asked() -> None:
    generator = torch.Generator().manual_seed(1)
    sampler = RandomSampler(range(40), generator=generator)
    before = generator.get_state().tolist()
    assert probe_samples(DataLoader(Kind("nothing"), sampler=sampler, num_workers=1)) is FeedReason.FED
    assert generator.get_state().tolist() == before


@pytest.mark.parametrize("batch", [{0, 1, 2}, {0: "a", 1: "b"}, range(3)])
def test_a_batch_sampler_may_give_what_cannot_be_cut(batch: Any) -> None:
    assert probe_samples(DataLoader(Kind("nothing"), batch_sampler=[batch], num_workers=1)) is FeedReason.FED


@pytest.mark.slow
def test_under_spawn(tmp_path: Path) -> None:
    for kind in ("nothing", "torch"):
        loader = DataLoader(Kind(kind), batch_size=4, num_workers=1, multiprocessing_context="spawn")
        assert probe_samples(loader, timeout_s=90.0) is CASES[kind]
