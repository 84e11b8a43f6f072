"""Forked children of the training process: what they do with their copies of batches and loaders changes nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from torch.utils.data import Dataset

import headrace

from .engine.datasets import Mapped, Streamed, gather
from .engine.sameness import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

_ROUNDS = 4
_BATCHES_BETWEEN = 12  # more than there are batches ahead: whatever slot is free is filled meanwhile


def loader_of(dataset: Any, **arguments: Any) -> headrace.DataLoader[Any]:
    return headrace.DataLoader(
        dataset, **{"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork", **arguments}
    )


def in_child(act: Callable[[], object]) -> None:
    """Do something in a forked child that ends there and then, and fail if it failed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def in_process(act: Callable[[], object]) -> None:
    """Do something in a child of multiprocessing."""
    child = multiprocessing.get_context("fork").Process(target=act)
    child.start()
    child.join()
    assert child.exitcode == 0
    child.close()


@pytest.mark.parametrize("fork", [in_child, in_process])
@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (Mapped("large", 2000), {}),
        (Mapped("large", 2000), {"backend": "thread"}),
        (Mapped("large", 2000), {"collate_fn": gather}),
        (Mapped("large", 2000), {"device": "cpu"}),
        (Streamed("large", 2000), {}),
    ],
    ids=["slots", "threads", "general", "device", "iterable"],
)
def test_a_child_that_drops_its_copy_frees_nothing(
    dataset: Any, arguments: dict[str, Any], fork: Callable[[Callable[[], object]], None]
) -> None:
    loader = loader_of(dataset, **arguments)
    iterator = iter(loader)
    held, copies = [], []

    def drop() -> None:
        held.clear()
        gc.collect()

    for _ in range(_ROUNDS):
        held.append(next(iterator))
        copies.append(deepcopy(held[-1]))
        fork(drop)
        for _ in range(_BATCHES_BETWEEN):
            next(iterator)
        assert_same(held, copies)
    leased = loader.stats().slots.leased
    held.clear()
    assert loader.stats().slots.leased == max(0, leased - _ROUNDS)  # the process that took them gives them back


class Hoarding(Dataset):
    """Holds batches of another loader, and drops them in whichever worker fetches first."""

    def __init__(self, batches: list[Any], size: int) -> None:
        self.batches, self.size = batches, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.batches.clear()
        return index


@pytest.mark.parametrize("arguments", [{}, {"collate_fn": gather}], ids=["slots", "general"])
def test_a_data_set_that_drops_batches_in_its_workers_frees_nothing(arguments: dict[str, Any]) -> None:
    iterator = iter(loader_of(Mapped("large", 400), memory="64MiB", **arguments))
    held = [next(iterator) for _ in range(10)]
    copies = deepcopy(held)
    assert sum(1 for _ in loader_of(Hoarding(held, 40))) == 10
    assert sum(1 for _ in iterator) == 90
    assert_same(held, copies)
