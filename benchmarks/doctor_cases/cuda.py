"""CUDA in workers. Without a GPU, what CUDA does at a fork is done by hand, and torch's own check raises its own error.

With a GPU, `torch.cuda.init()` marks the process; whoever is forked from it afterwards is told so by
`torch.cuda._is_in_bad_fork()`, and torch raises. Without one, the mark is all that is simulated.
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

CASES = {
    "forked_after_cuda": {"finds": "cuda_in_worker", "is_simulated": True},
    "forked_after_cuda_at_sample_6": {"finds": "cuda_in_worker", "is_simulated": True},
    "cuda_without_a_gpu": {"finds": "cuda_in_worker|sample_fails", "is_simulated": True},
}


class OnCuda(Dataset[torch.Tensor]):
    """Its samples go through the GPU."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        _initialise()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.at in (None, index) and get_worker_info() is not None and torch.cuda._is_in_bad_fork():
            torch.cuda._lazy_init()  # what `.cuda()` does first
        return torch.full((4,), float(index))


def _initialise() -> None:
    if torch.cuda.is_available():
        torch.cuda.init()
        return
    state = {"is_bad": False}
    os.register_at_fork(after_in_child=lambda: state.update(is_bad=True))
    torch.cuda._is_in_bad_fork = lambda: state["is_bad"]  # a driver would say so


class Plain(OnCuda):
    """A sample on the GPU, where there is none."""

    def __init__(self) -> None:
        pass

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index)).cuda()


def forked_after_cuda() -> DataLoader[torch.Tensor]:
    return DataLoader(OnCuda(), batch_size=4, num_workers=2)


def forked_after_cuda_at_sample_6() -> DataLoader[torch.Tensor]:
    return DataLoader(OnCuda(6), batch_size=4, num_workers=2)


def cuda_without_a_gpu() -> DataLoader[torch.Tensor]:
    return DataLoader(Plain(), batch_size=4, num_workers=2)
