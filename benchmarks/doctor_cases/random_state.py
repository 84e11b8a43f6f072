"""Random states that every worker inherits alike; and the ones that torch seeds for each worker."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CASES = {
    "numpy_generator_held": {"finds": "frozen_random"},
    "python_random_held": {"finds": "frozen_random"},
    "torch_generator_held": {
        "finds": "frozen_random",
        "also": ["unpicklable", "worker_dies"],
    },  # torch 2.13 cannot send it
    "seeded_alike_by_init": {"finds": "frozen_random"},
    "generator_at_module_level": {"finds": "frozen_random"},
    "numpy_global": {"finds": ""},
    "torch_global": {"finds": ""},
    "seeded_by_index": {"finds": ""},
    "nothing_random": {"finds": ""},
}
_GENERATOR = np.random.default_rng(0)


class Noise(Dataset[torch.Tensor]):
    """Adds noise to its sample."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind == "numpy":
            self.numpy = np.random.default_rng(0)
        elif kind == "python":
            self.python = random.Random(0)
        elif kind == "torch":
            self.torch = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        match self.kind:
            case "numpy":
                noise = self.numpy.random(4)
            case "python":
                noise = np.array([self.python.random() for _ in range(4)])
            case "torch":
                noise = torch.rand(4, generator=self.torch).numpy()
            case "module":
                noise = _GENERATOR.random(4)
            case "numpy_global":
                noise = np.random.rand(4)
            case "torch_global":
                noise = torch.rand(4).numpy()
            case "index":
                noise = np.random.default_rng(index).random(4)
            case _:
                noise = np.full(4, float(index))
        return torch.from_numpy(np.asarray(noise, np.float64))


def _seed_all_alike(_worker: int) -> None:
    np.random.seed(1234)


def _loader(kind: str) -> DataLoader[torch.Tensor]:
    return DataLoader(Noise(kind), batch_size=8, num_workers=2)


def numpy_generator_held() -> DataLoader[torch.Tensor]:
    return _loader("numpy")


def python_random_held() -> DataLoader[torch.Tensor]:
    return _loader("python")


def torch_generator_held() -> DataLoader[torch.Tensor]:
    return _loader("torch")


def seeded_alike_by_init() -> DataLoader[torch.Tensor]:
    return DataLoader(Noise("numpy_global"), batch_size=8, num_workers=2, worker_init_fn=_seed_all_alike)


def generator_at_module_level() -> DataLoader[torch.Tensor]:
    return _loader("module")


def numpy_global() -> DataLoader[torch.Tensor]:
    return _loader("numpy_global")


def torch_global() -> DataLoader[torch.Tensor]:
    return _loader("torch_global")


def seeded_by_index() -> DataLoader[torch.Tensor]:
    return _loader("index")


def nothing_random() -> DataLoader[torch.Tensor]:
    return _loader("none")
