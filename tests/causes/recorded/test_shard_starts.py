"""Starts of shards: named where late batches are theirs, and not where something else is waited for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.causes.recorded import ProcessEvents
from headrace.model import EventKind, LoaderSettings

from .test_recorded import Tape, causes, explain, simulate

_S = 1_000_000_000


def opening(processes: list[ProcessEvents], tasks: set[int], name: str = "") -> list[ProcessEvents]:
    """Put the opening of a shard into the tasks of some batches."""
    changed = []
    for process in processes:
        fetches = process.of(EventKind.FETCH)
        chosen = fetches[np.isin(fetches["value"], list(tasks))]
        events = np.zeros(len(chosen), process.events.dtype)
        events["start_ns"], events["pid"] = chosen["start_ns"] + 1000, process.pid
        events["kind"], events["arg"] = int(EventKind.SHARD_OPEN), 7 if name else 0
        whole = np.sort(np.concatenate([process.events, events]), order="start_ns")
        names = {**process.names, 7: name} if name else process.names
        changed.append(ProcessEvents(process.pid, process.parent_pid, process.role, whole, names))
    return changed


@settings(max_examples=15)
@given(
    workers=st.integers(1, 4),
    step_s=st.floats(0.02, 0.1),
    every=st.integers(6, 12),
    slow=st.floats(1.0, 2.0),
    seed=st.integers(0, 99),
)
def test_late_batches_at_the_starts_of_shards_are_named(
    workers: int, step_s: float, every: int, slow: float, seed: int
) -> None:
    count = workers * every * 8
    usual_s = workers * step_s / 4
    tasks = usual_s * np.random.default_rng(seed).uniform(0.9, 1.1, count)
    starts = {number for number in range(count) if number // workers % every == 0}
    for number in starts:
        tasks[number] += workers * step_s * (2 + slow * every)
    processes, end_s = simulate(workers=workers, task_s=list(tasks), step_s=step_s)
    found = explain(opening(processes, starts, "shard-3.tar"), end_s)
    assert causes(found) == ["shard_boundary"]
    said = " ".join(text.en for text in found.findings[0].evidence)
    assert "tasks that opened a shard" in said
    assert "shard-3.tar" in said
    assert found.findings[0].fix
    assert found.findings[0].futile


def test_shards_that_open_quickly_are_not_what_a_slow_pool_waits_for() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 80, step_s=0.05)
    assert causes(explain(opening(processes, set(range(0, 80, 10))), end_s)) == ["batch_lockstep"]


def test_where_every_task_opens_an_archive_that_is_how_samples_are_read() -> None:
    tasks = list(np.random.default_rng(1).uniform(0.3, 0.5, 80))
    processes, end_s = simulate(workers=2, task_s=tasks, step_s=0.05)
    assert "shard_boundary" not in causes(explain(opening(processes, set(range(80))), end_s))


def test_heavy_samples_beside_quick_starts_stay_stragglers() -> None:
    tasks = 0.025 * np.ones(200)
    heavy = [23, 61, 97, 131, 183]
    tasks[heavy] = 1.2
    processes, end_s = simulate(workers=2, task_s=list(tasks), step_s=0.05)
    assert causes(explain(opening(processes, set(range(0, 200, 20))), end_s)) == ["straggler_sample"]


@pytest.mark.parametrize("workers", [8, 16, 32])
def test_heavy_samples_are_not_laid_to_openings_of_other_workers(workers: int) -> None:
    """With many workers one of them opens a shard at nearly any moment, and costs the loop nothing."""
    step_s, number = 0.4 / workers, workers * 40
    starts = {task for task in range(number) if (task // workers + task % workers) % 4 == 0}
    tasks = np.array([0.7 if task in starts else 0.2 for task in range(number)])
    processes, end_s = simulate(workers=workers, task_s=list(tasks), step_s=step_s)
    assert causes(explain(opening(processes, starts, "s"), end_s)) == []
    for first in range(20, number, number // 10):
        tasks[next(task for task in range(first, number) if task not in starts)] = 2 * workers * step_s + 0.6
    processes, end_s = simulate(workers=workers, task_s=list(tasks), step_s=step_s)
    assert causes(explain(opening(processes, starts, "s"), end_s)) == ["straggler_sample"]


def test_waits_beside_the_starts_of_shards_are_told_too() -> None:
    tasks = 0.3 * np.ones(120)  # too slow without any shard
    starts = set(range(0, 120, 12)) | set(range(1, 120, 12))
    for number in starts:
        tasks[number] += 6.0
    processes, end_s = simulate(workers=2, task_s=list(tasks), step_s=0.05)
    found = explain(opening(processes, starts), end_s)
    assert causes(found)[0] == "shard_boundary"
    assert sum(finding.share for finding in found.findings) <= 1


def test_our_own_loader_is_judged_by_what_covers_its_waits() -> None:
    asked_for = LoaderSettings(by="headrace", batch_size=4, num_workers=1)
    trainer = Tape(100, "trainer", names={1: "Shards#1"}, loaders={1: asked_for})
    worker = Tape(200, "worker")
    trainer.add(EventKind.EPOCH, 1.0, 0.05, 0, 1)
    now = 1.05
    for number in range(60):
        task_s = 0.9 if number % 10 == 9 else 0.01
        worker.add(EventKind.FETCH, now, task_s, 4)
        if number % 10 == 9:
            worker.add(EventKind.SHARD_OPEN, now, 0.001)
        trainer.add(EventKind.WAIT, now, task_s + 1e-4, number, 1)
        now += task_s + 1e-4
        trainer.add(EventKind.FORWARD, now, 0.05)
        worker.add(EventKind.IDLE, now, 0.05)
        now += 0.05
    found = explain([trainer.process(), worker.process()], now + 0.1)
    assert causes(found) == ["shard_boundary"]
