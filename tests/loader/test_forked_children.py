"""Forked children of the training process: what they do with their copies of batches and loaders changes nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import headrace
from headrace.errors import NotSupported

from ..engine.datasets import Mapped, Streamed, gather
from ..engine.sameness import assert_same

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


@pytest.mark.parametrize(
    "arguments", [{}, {"collate_fn": gather}, {"backend": "thread"}], ids=["slots", "general", "threads"]
)
def test_a_data_set_that_drops_batches_in_its_workers_frees_nothing(arguments: dict[str, Any]) -> None:
    iterator = iter(loader_of(Mapped("large", 400), memory="64MiB", **arguments))
    held = [next(iterator) for _ in range(10)]
    copies = deepcopy(held)
    assert sum(1 for _ in loader_of(Hoarding(held, 40))) == 10
    assert sum(1 for _ in iterator) == 90
    assert_same(held, copies)


def test_a_child_that_ends_as_programs_do_ends_no_worker() -> None:
    """`sys.exit` runs finalizers, and multiprocessing's own end of all children that it knows of."""
    body = """
        import gc, os, sys
        from tests.loader.test_forked_children import *
        from tests.engine.datasets import *
        for dataset, backend in ((Mapped("large", 2000), "process"), (Streamed("large", 2000), "thread")):
            loader = loader_of(dataset, backend=backend)
            iterator = iter(loader)
            for _ in range(4):
                held = next(iterator)
                copies = deepcopy(held)
                pid = os.fork()
                if pid == 0:
                    sys.exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                for _ in range(12):
                    next(iterator)
                assert_same(held, copies)
            print(loader.stats().workers_lost)
        """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([f"{root}/src", root, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n0\n", "")


class Forking(Dataset):
    """Forks a child for a sample, which ends as programs do."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index % 10 == 3:
            pid = os.fork()
            if pid == 0:
                sys.exit(0)
            os.waitpid(pid, 0)
        return index


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_child_of_a_worker_ends_without_ending_the_worker(backend: str) -> None:
    loader = loader_of(Forking(80), backend=backend)
    assert torch.cat(list(loader)).tolist() == list(range(80))
    assert loader.stats().workers_lost == 0


# ------------------------------------------------------------------------------------------- inherited loaders


@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("dataset", [Mapped("large", 400), Streamed("large", 400)], ids=["mapped", "iterable"])
def test_an_inherited_iterator_is_refused_in_the_child_and_goes_on_in_the_parent(dataset: Any, backend: str) -> None:
    iterator = iter(loader_of(dataset, backend=backend))
    next(iterator)

    def try_next() -> None:
        with pytest.raises(NotSupported, match="belongs to process"):
            next(iterator)

    in_child(try_next)
    assert sum(1 for _ in iterator) == 99


@pytest.mark.parametrize(("persistent", "backend"), [(False, "process"), (True, "process"), (True, "thread")])
def test_a_child_iterates_over_an_inherited_loader_with_workers_of_its_own(persistent: bool, backend: str) -> None:
    loader = loader_of(Mapped("number", 400), persistent_workers=persistent, backend=backend)
    iterator = iter(loader)
    first = next(iterator)

    def iterate() -> None:
        assert torch.cat(list(loader)).tolist() == list(range(400))
        loader._iterator = None

    in_child(iterate)
    assert torch.cat([first, *iterator]).tolist() == list(range(400))
    loader._iterator = None


def test_a_child_that_resizes_closes_or_records_changes_nothing_in_the_parent() -> None:
    loader = loader_of(Mapped("number", 4000))
    iterator = iter(loader)
    first = next(iterator)

    def meddle() -> None:
        loader.resize(num_workers=4, prefetch_batches=1)
        loader.keep_stats = False
        loader.stats()
        iterator.close()

    in_child(meddle)
    assert torch.cat([first, *iterator]).tolist() == list(range(4000))
    stats = loader.stats()
    assert (len(stats.workers), stats.workers_lost) == (2, 0)
    assert stats.sample_times is not None
