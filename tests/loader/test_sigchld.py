"""A script that ignores SIGCHLD, or reaps whatever child ends: nobody can ask the kernel how a worker ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.tensor(index)


def _reap_all(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.fixture(params=[signal.SIG_IGN, _reap_all], ids=["ignored", "reaped"])
def _nobody_waits(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, request.param)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("_nobody_waits")
@pytest.mark.parametrize(("persistent_workers", "backend"), [(False, "process"), (True, "process"), (True, "thread")])
def test_a_dead_worker_is_replaced_where_the_script_reaps_its_children(persistent_workers: bool, backend: str) -> None:
    loader = DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=persistent_workers, backend=backend)
    for _ in range(2):
        got: list[int] = []
        for number, batch in enumerate(loader):
            got += batch.tolist()
            if number == 5:
                os.kill(loader.stats().workers[0].pid, signal.SIGKILL)
        assert got == list(range(200))
    assert loader.stats().workers_lost == (2 if persistent_workers else 1)
