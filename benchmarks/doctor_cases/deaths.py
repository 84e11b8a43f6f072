"""Workers that die: exits, crashes, kills, in every process or in workers alone; descriptors that run out."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

import torch
from case_files import FOLDER
from torch.utils.data import DataLoader, Dataset, get_worker_info

CASES = {
    "exits_in_workers": {"finds": "worker_dies"},
    "segfault_in_workers": {"finds": "worker_dies"},
    "abort_in_workers": {"finds": "worker_dies"},
    "killed_in_workers": {"finds": "worker_dies", "also": ["out_of_memory"]},
    "segfault_at_sample_5": {"finds": "worker_dies|corrupt_sample|sample_fails"},
    "exits_at_sample_9": {"finds": "worker_dies|corrupt_sample|sample_fails"},
    "files_are_never_closed": {"finds": "fd_limit", "limits": {"open_files": 1100}, "also": ["corrupt_sample"]},
    "files_never_closed_in_workers": {"finds": "fd_limit", "limits": {"open_files": 1100}, "also": ["corrupt_sample"]},
}


class Fatal(Dataset[torch.Tensor]):
    """Healthy until something fatal is done."""

    def __init__(self, deed: str, at: int | None = None, *, only_in_workers: bool = True) -> None:
        self.deed, self.at, self.only_in_workers = deed, at, only_in_workers

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> torch.Tensor:
        is_there = not self.only_in_workers or get_worker_info() is not None
        if is_there and self.at in (None, index):
            match self.deed:
                case "exit":
                    sys.exit(3)
                case "segfault":
                    ctypes.string_at(8)
                case "abort":
                    os.abort()
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((4,), float(index))


class NeverCloses(Dataset[torch.Tensor]):
    """Opens its file for each sample, and keeps it."""

    def __init__(self, *, only_in_workers: bool) -> None:
        self.opened: list[Any] = []
        self.only_in_workers = only_in_workers

    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.only_in_workers or get_worker_info() is not None:
            self.opened += [os.open(FOLDER / "records.bin", os.O_RDONLY) for _ in range(16)]
        return torch.full((4,), float(index))


def _loader(dataset: Dataset[torch.Tensor]) -> DataLoader[torch.Tensor]:
    return DataLoader(dataset, batch_size=4, num_workers=2)


def exits_in_workers() -> DataLoader[torch.Tensor]:
    return _loader(Fatal("exit"))


def segfault_in_workers() -> DataLoader[torch.Tensor]:
    return _loader(Fatal("segfault"))


def abort_in_workers() -> DataLoader[torch.Tensor]:
    return _loader(Fatal("abort", at=11))


def killed_in_workers() -> DataLoader[torch.Tensor]:
    return _loader(Fatal("kill", at=2))


def segfault_at_sample_5() -> DataLoader[torch.Tensor]:
    return _loader(Fatal("segfault", at=5, only_in_workers=False))


def exits_at_sample_9() -> DataLoader[torch.Tensor]:
    return _loader(Fatal("exit", at=9, only_in_workers=False))


def files_are_never_closed() -> DataLoader[torch.Tensor]:
    return _loader(NeverCloses(only_in_workers=False))


def files_never_closed_in_workers() -> DataLoader[torch.Tensor]:
    return _loader(NeverCloses(only_in_workers=True))
