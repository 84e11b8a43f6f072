"""Samples that are huge beside the budget: what is queued stays within it, and everything comes, in order."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader
from headrace.errors import BatchTooLarge

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

MIB = 1 << 20
# the board, indices and headers; pages are whole
SLACK = 2 * MIB


class Huge(Dataset[Any]):
    """Arrays of `size` bytes that begin with their index; ragged: of a quarter to all of it, small ones first."""

    def __init__(self, count: int, size: int, *, is_ragged: bool = False) -> None:
        self.count, self.size, self.is_ragged = count, size, is_ragged

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        size = self.size // 4 * min(4, 1 + index * 5 % (index + 2) % 4) if self.is_ragged else self.size
        array = np.full(size, index % 251, np.uint8)
        array[:8] = np.frombuffer(np.int64(index).tobytes(), np.uint8)
        return array


class Failing(Huge):
    """Some of them are bad."""

    def __getitem__(self, index: int) -> Any:
        if index % 7 == 3:
            raise ValueError(f"sample {index} is bad")
        return super().__getitem__(index)


class Deadly(Huge):
    """Some of them take their worker with them, once each."""

    def __init__(self, count: int, size: int, marks: Path) -> None:
        super().__init__(count, size)
        self.marks = marks

    def __getitem__(self, index: int) -> Any:
        mark = self.marks / str(index)
        if index % 9 == 4 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def stack(samples: list[Any]) -> Any:
    return torch.from_numpy(np.stack(samples))


def keep(samples: list[Any]) -> list[Any]:
    return list(samples)


def indices_of(batch: Any) -> list[int]:
    return [int(np.asarray(sample[:8]).view(np.int64)[0]) for sample in batch]


@contextmanager
def peak_of(look: Callable[[], int]) -> Iterator[list[int]]:
    """Looks as often as it can while the block runs; the peak is the only item of the list."""
    peak, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.001):
            peak[0] = max(peak[0], look())

    thread = threading.Thread(target=watch, name="peak")
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def test_a_budget_of_some_bytes_is_told_as_that() -> None:
    for collate in (None, keep):
        with pytest.raises(BatchTooLarge, match="budget: 10 B\n  try: batch_size=1, or memory="):
            list(DataLoader(Huge(16, 64), 4, num_workers=4, memory=10, collate_fn=collate))


KINDS = {
    "slots": {},
    "collate": {"collate_fn": stack},
    "ragged": {"collate_fn": keep},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("backend", "start", "num_workers"),
    [
        ("process", "fork", 8),
        ("process", "fork", 2),
        ("thread", "fork", 8),
        pytest.param("process", "spawn", 3, marks=pytest.mark.slow),
    ],
)
def test_what_is_queued_stays_within_the_budget(kind: str, backend: str, start: str, num_workers: int) -> None:
    """A budget that holds one batch of 4 x 2 MiB, and what it is made of; and the one that the loop has."""
    dataset, batch_bytes, budget = Huge(48, 2 * MIB, is_ragged=kind == "ragged"), 8 * MIB, 17 * MIB
    loader: Any = DataLoader(
        dataset,
        4,
        num_workers=num_workers,
        backend=backend,
        multiprocessing_context=start,
        prefetch_factor=4,
        memory=budget,
        **KINDS[kind],
    )
    iterator: Any = iter(loader)
    arena, got = iterator._feed.pool.arena, []
    with peak_of(arena.used_bytes) as peak:
        for batch in iterator:
            got += indices_of(batch)
    assert got == list(range(48))
    # the one that the loop has; beside slots, a batch whose layout came too late takes the other way
    beside_bytes = batch_bytes if kind != "slots" else 2 * batch_bytes * loader.stats().general_batches
    assert 0 < peak[0] <= budget + beside_bytes + SLACK


def test_a_training_process_that_comes_late_to_its_first_batch_has_slots_all_the_same() -> None:
    """It may start many workers meanwhile: what is made before they know slots lies in memory beside these."""
    budget = 16 * MIB
    loader: Any = DataLoader(Huge(1024, MIB // 16), 16, num_workers=4, prefetch_factor=8, memory=budget)
    iterator: Any = iter(loader)
    time.sleep(0.5)
    with peak_of(iterator._feed.pool.arena.used_bytes) as peak:
        got = [index for batch in iterator for index in indices_of(batch)]
    assert got == list(range(1024))
    assert loader.stats().general_batches == 0
    assert peak[0] <= budget + SLACK


def test_of_two_slots_none_is_copied_from() -> None:
    """A loop holds a batch while it asks for the next one, and gives it back when it has that."""
    loader: Any = DataLoader(Huge(40, MIB), 4, num_workers=2, memory=2 * 4 * MIB + 2 * MIB)
    iterator: Any = iter(loader)
    got = [index for batch in iterator for index in indices_of(batch)]
    stats = loader.stats()
    assert got == list(range(40))
    assert (stats.copied_batches, stats.general_batches) == (0, 0)


@pytest.mark.parametrize("kept", [2, 5])
@pytest.mark.parametrize("collate", [None, stack], ids=["slots", "general"])
def test_a_loop_that_keeps_more_than_fits_goes_on(kept: int, collate: Any) -> None:
    loader: Any = DataLoader(Huge(40, MIB), 4, num_workers=2, memory=10 * MIB, collate_fn=collate)
    held: deque[Any] = deque(maxlen=kept)
    for number, batch in enumerate(loader):
        held.append(batch)
        first = max(0, number + 1 - kept)
        assert [index for one in held for index in indices_of(one)] == list(range(4 * first, 4 * number + 4))


def test_a_batch_that_does_not_fit_beside_its_samples_is_an_error_that_says_what_would() -> None:
    with pytest.raises(BatchTooLarge) as caught:
        list(DataLoader(Huge(16, MIB), 8, num_workers=2, memory=12 * MIB, collate_fn=stack))
    assert "its samples, and what they are collated to" in str(caught.value)
    size, memory = caught.value.next_step.removeprefix("batch_size=").split(", or memory=")
    for batch_size, budget in ((int(size), 12 * MIB), (8, memory.strip('"'))):
        loader: Any = DataLoader(Huge(16, MIB), batch_size, num_workers=2, memory=budget, collate_fn=stack)
        assert [index for batch in loader for index in indices_of(batch)] == list(range(16))


@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("collate", [None, stack], ids=["slots", "general"])
def test_bad_samples_hold_up_nothing_where_the_budget_is_tight(backend: str, collate: Any) -> None:
    loader: Any = DataLoader(
        Failing(60, MIB),
        4,
        num_workers=4,
        backend=backend,
        memory=9 * MIB,
        collate_fn=collate,
        on_error="quarantine",
        max_bad=20,
    )
    got = [index for batch in loader for index in indices_of(batch)]
    good = [index for index in range(60) if index % 7 != 3]
    assert got[: len(good)] == good


@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("collate", [None, stack], ids=["slots", "general"])
def test_lost_workers_hold_up_nothing_where_the_budget_is_tight(backend: str, collate: Any, tmp_path: Path) -> None:
    loader: Any = DataLoader(
        Deadly(48, MIB, tmp_path), 4, num_workers=4, backend=backend, memory=9 * MIB, collate_fn=collate
    )
    assert [index for batch in loader for index in indices_of(batch)] == list(range(48))
    assert loader.stats().workers_lost > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_process_tree_holds_the_budget_and_what_workers_have_in_hand(kind: str) -> None:
    """PSS of all processes, less that with tiny samples: no worker keeps a batch, and none is there twice."""
    size, num_workers, budget = 16 * MIB, 4, 140 * MIB

    def tree_pss() -> int:
        total = 0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total

    peaks = []
    for bytes_each in (1024, size):
        loader: Any = DataLoader(
            Huge(48, bytes_each, is_ragged=kind == "ragged"), 4, num_workers=num_workers, memory=budget, **KINDS[kind]
        )
        with peak_of(tree_pss) as peak:
            for _ in loader:
                pass
        peaks.append(peak[0])
    held = collating = 4 * size
    assert peaks[1] - peaks[0] <= budget + held + num_workers * size + collating + 64 * MIB
