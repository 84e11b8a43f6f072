"""Faults that the training process does to itself: a fork while batches are held, an exception out of `next`."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch

from headrace.doctor.chaos import ChaosSettings, run_chaos
from headrace.doctor.chaos.subject import drop_in_child, take_interrupted
from headrace.model import FaultKind

from .test_chaos_runs import check


@pytest.mark.alone  # what others leave in /dev/shm for a moment would be laid to the loader's charge
@pytest.mark.timeout(120)
@pytest.mark.parametrize("target", ["slots", "general"])
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_loop_that_forks_and_is_interrupted_gets_every_sample_once(target: str, backend: str) -> None:
    settings = ChaosSettings(
        target=f"tests.doctor.chaos.datasets:{target}",
        kinds=(FaultKind.FORK, FaultKind.INTERRUPT, FaultKind.SHM_FULL),
        num_faults=16,
        num_workers=2,
        backend=backend,
        start_method="fork",
        most_samples=200,
    )
    report = run_chaos(settings)
    check(report)
    assert {FaultKind.FORK, FaultKind.INTERRUPT} <= set(report.kinds())


def test_a_child_drops_its_copies_and_not_ours() -> None:
    held: list[Any] = [torch.zeros(3)]
    drop_in_child(held)
    assert len(held) == 1


def busy(numbers: Iterator[int]) -> Iterator[int]:
    for number in numbers:
        while number % 2:
            pass
        yield number


def test_a_handler_raises_while_next_works_and_a_batch_that_came_is_kept() -> None:
    batches = busy(count())
    assert take_interrupted(batches, 60.0) == ([0], False)
    assert take_interrupted(batches, 0.01) == ([], True)
    assert take_interrupted(batches, 60.0) == ([], False)  # the generator is at its end: nothing came
