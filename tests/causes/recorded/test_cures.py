"""The cure that fits what was measured: one test for each that was wrong on trainings that nobody here wrote."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.causes.recorded import ProcessEvents, explain_processes
from headrace.model import Bottleneck, Cause, EventKind, Finding, Text
from headrace.signals.system import SystemSample

from .test_cores import waits_for_cores
from .test_parts import play_in_process
from .test_recorded import explain, simulate
from .test_surroundings import SECOND, machine, process

_S = 1_000_000_000
THREADS = Text("too many threads in each worker", "每个 worker 的线程太多")


def first(processes: list[ProcessEvents], end_s: float, cores: float = 8) -> Finding:
    return explain(processes, end_s, cores).findings[0]


def fixes(finding: Finding) -> str:
    return " ".join(text.en for text in finding.fix)


def futile(finding: Finding) -> str:
    return " ".join(text.en for text in finding.futile)


def standing_still(durations: str, workers: int = 4, seed: int = 1) -> Finding:
    """Workers whose samples stand still for 40 ms, each for itself or all behind one lock that is held for 10 ms."""
    random = np.random.default_rng(seed)
    processes, end_s = simulate(workers=workers, task_s=[0.16] * 80, step_s=0.01, cpu=0.02)
    for number, worker in enumerate(processes[1:]):
        worker.events["start_ns"] += number * 10_000_000 * 4 // workers
        samples = np.flatnonzero(worker.events["kind"] == int(EventKind.SAMPLE))
        if durations == "random":
            lengths = random.exponential(1.0, (len(samples) // 4, 4))
            lengths *= 0.16 / lengths.sum(axis=1, keepdims=True)
            worker.events["duration_ns"][samples] = (lengths.ravel() * _S).astype(np.int64)
            before = np.cumsum(lengths, axis=1) - lengths - np.arange(4) * 0.04
            moved = worker.events["start_ns"][samples].astype(np.int64) + (before.ravel() * _S).astype(np.int64)
            worker.events["start_ns"][samples] = moved
        elif durations == "behind a lock":
            short = samples[0]  # the first of all finds it free; when a sample ends is as before
            worker.events["start_ns"][short] += 10_000_000 * 4 // workers * (workers - 1 - number)
            worker.events["duration_ns"][short] = 10_000_000 * 4 // workers * (1 + number)
    return first(processes, end_s)


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_take_turns_are_not_told_to_be_more(workers: int) -> None:
    finding = standing_still("behind a lock", workers)
    assert finding.bottleneck is Bottleneck.SERIAL
    assert "more_workers_gain" not in finding.figures
    assert "more workers bring nothing" in finding.fix[0].en
    assert "workers take turns" in finding.evidence[1].en
    assert finding.cause is Cause.LOADER_THROUGHPUT  # the rounds, where there are some, are how it looks
    assert finding.title is not None
    assert finding.title.en == "the workers take turns at something they share"
    assert "fewer workers" not in futile(finding)
    assert "from headrace import DataLoader" not in fixes(finding)


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_wait_each_for_itself_are_told_to_be_more(workers: int) -> None:
    finding = standing_still("each for itself", workers)
    assert finding.bottleneck is None
    assert finding.fix[0].en.startswith("num_workers=")


def test_where_it_cannot_be_told_the_check_is_named_and_no_gain() -> None:
    finding = standing_still("random")
    assert finding.bottleneck is None
    assert "more_workers_gain" not in finding.figures
    assert "one run with `num_workers=2` decides" in finding.fix[0].en


def test_threads_in_each_worker_are_what_is_named() -> None:
    """98 % on a core and 51 % without one: no single thread does that."""
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=0.98)
    waits_for_cores(processes, 0.51)
    finding = first(processes, end_s, cores=2)
    assert finding.bottleneck is Bottleneck.THREADS
    assert all(word in finding.fix[0].en for word in ("OMP_NUM_THREADS=1", "cv2.setNumThreads(", "set_num_threads(1)"))
    assert not {"more_workers_gain", "faster_decode_gain"} & finding.figures.keys()
    assert "codecs" not in fixes(finding)
    assert "from headrace import DataLoader" not in fixes(finding)
    assert (finding.cause, finding.title) == (Cause.LOADER_THROUGHPUT, THREADS)


@pytest.mark.parametrize(("threads", "expected"), [(10, Bottleneck.THREADS), (3, Bottleneck.CPU_DECODE)])
def test_on_a_busy_machine_the_number_of_threads_decides(threads: int, expected: Bottleneck) -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=0.22)
    waits_for_cores(processes, 0.89)
    samples = [
        SystemSample(
            at_ns=round(at * SECOND),
            machine=machine(cpu_user_s=int(2 * at)),
            processes=(
                process(100, 0.1 * at),
                *(process(pid, 0.4 * at, parent=100, threads=threads) for pid in (200, 201)),
            ),
        )
        for at in (0.0, end_s)
    ]
    found = explain_processes(processes, start_ns=0, end_ns=round(end_s * SECOND), cores=2, system=samples)
    data = next(one for one in found.findings if one.bottleneck is not None)
    assert data.bottleneck is expected


@pytest.mark.parametrize("others", [0.8, 1.5])
def test_threads_come_before_the_others_on_the_cores(others: float) -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.02, cpu=0.3)
    waits_for_cores(processes, 0.9)
    own = (2 - others) / 2
    samples = [
        SystemSample(
            at_ns=round(at * SECOND),
            machine=machine(cpu_user_s=2 * at),
            processes=(process(100, 0.0), *(process(pid, own * at, parent=100, threads=10) for pid in (200, 201))),
        )
        for at in (0.0, end_s)
    ]
    found = explain_processes(processes, start_ns=0, end_ns=round(end_s * SECOND), cores=2, system=samples)
    assert [(one.cause, one.bottleneck) for one in found.findings] == [
        (Cause.LOADER_THROUGHPUT, Bottleneck.THREADS),
        (Cause.CPU_CONTENDED, None),
    ]


def test_threads_that_a_task_waits_for_are_threads_too() -> None:
    """The thread of the task stands still meanwhile, and its process computes; the same on idle cores is well."""
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=0.7)
    for number, one in enumerate(processes):
        looks = one.of(EventKind.SAMPLE).copy()
        looks["kind"], looks["arg"], looks["duration_ns"] = int(EventKind.OFF_CORE), 0, looks["duration_ns"] * 0.8
        events = np.sort(np.concatenate([one.events, looks]), order="start_ns", kind="stable")
        processes[number] = ProcessEvents(one.pid, one.parent_pid, one.role, events, one.names)
    for cores, expected in ((2, Bottleneck.THREADS), (16, Bottleneck.CPU_DECODE)):
        samples = [
            SystemSample(
                at_ns=round(at * SECOND),
                machine=machine(cpu_user_s=int(2 * at), cpu_idle_s=int((cores - 2) * at)),
                processes=(process(100, 0.6 * at), *(process(pid, 0.7 * at, parent=100) for pid in (200, 201))),
            )
            for at in (0.0, end_s)
        ]
        found = explain_processes(processes, start_ns=0, end_ns=round(end_s * SECOND), cores=cores, system=samples)
        assert found.findings[0].bottleneck is expected


def with_collation(processes: list[ProcessEvents], share: float) -> list[ProcessEvents]:
    """Let each task collate for the last part of its time."""
    changed = []
    for one in processes:
        tasks = one.of(EventKind.FETCH).copy()
        tasks["start_ns"] += (tasks["duration_ns"] * (1 - share)).astype(np.int64)
        tasks["duration_ns"] = tasks["duration_ns"] * share
        tasks["kind"] = int(EventKind.COLLATE)
        events = np.sort(np.concatenate([one.events, tasks]), order="start_ns")
        changed.append(ProcessEvents(one.pid, one.parent_pid, one.role, events, one.names))
    return changed


def test_a_heavy_collation_in_workers_is_not_copying() -> None:
    """A worker that collates does not get to send: the batch counts as queued, and is not there."""
    processes, end_s = simulate(workers=2, task_s=[0.2] * 60, step_s=0.01, cpu=1.0, puts_early=True)
    gets = processes[0].events["kind"] == int(EventKind.QUEUE_GET)
    processes[0].events["value"][gets] = 1
    finding = first(with_collation(processes, 0.9), end_s)
    assert finding.bottleneck is Bottleneck.COLLATE
    assert "`collate_fn`" in fixes(finding)
    assert "float32" not in fixes(finding)
    assert any("`collate_fn` is what takes long: " in text.en for text in finding.evidence)


def test_a_heavy_collation_in_the_training_process_is_not_decoding() -> None:
    processes, end_s = play_in_process(0.08, 0.02)
    finding = first(with_collation(processes, 0.9), end_s)
    assert finding.bottleneck is Bottleneck.COLLATE
    assert "`collate_fn`" in fixes(finding)
    assert "decod" not in fixes(finding)


def test_batches_that_lie_there_are_no_empty_buffer() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.001] * 60, step_s=0.01)
    shift = 0
    for event in processes[0].events:  # each of them takes 30 ms to be taken
        event["start_ns"] += shift
        if event["kind"] in {int(EventKind.WAIT), int(EventKind.QUEUE_GET)}:
            shift += 30_000_000 * int(event["kind"] == int(EventKind.WAIT))
            event["duration_ns"] = 30_000_000
            event["value"] = 1 if event["kind"] == int(EventKind.QUEUE_GET) else event["value"]
    finding = first(processes, end_s + shift / _S)
    assert finding.bottleneck is Bottleneck.IPC_COPY
    assert "a bigger batch" in fixes(finding)
    assert "buffer is empty" not in futile(finding)
    assert "bigger batch" not in futile(finding)


def test_without_workers_nothing_is_said_of_prefetching_and_the_first_workers_are_advised() -> None:
    finding = first(*play_in_process(0.08, 0.02))
    assert finding.fix[0].en.startswith("num_workers=5: about ")
    assert "prefetch_factor" not in futile(finding)
    assert "from headrace import DataLoader" not in fixes(finding)


def test_first_workers_are_not_advised_for_iterables_nor_for_what_takes_as_long_to_send() -> None:
    assert "num_workers" not in fixes(first(*play_in_process(0.004, 0.002)))
    processes, end_s = play_in_process(0.08, 0.02)
    processes[0].events["value"][processes[0].events["kind"] == int(EventKind.SAMPLE)] = -1
    assert "num_workers" not in fixes(first(processes, end_s))


def test_codecs_are_not_advised_where_nothing_is_decoded() -> None:
    finding = first(*simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=1.0))
    assert finding.bottleneck is Bottleneck.CPU_DECODE
    assert "JPEG" not in fixes(finding)


@pytest.mark.parametrize(("by", "index"), [("headrace", 7), ("torch", -1)])
def test_our_loader_is_not_advised_to_who_has_it_nor_for_iterable_data(by: str, index: int) -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=1.0, by=by)
    for one in processes:
        one.events["value"][one.events["kind"] == int(EventKind.SAMPLE)] = index
    assert "from headrace import DataLoader" not in fixes(first(processes, end_s))
    torch = first(*simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=1.0))
    assert "from headrace import DataLoader" in fixes(torch)


def test_a_gain_is_never_told_nearer_than_runs_repeat() -> None:
    figures = first(*simulate(workers=2, task_s=[0.025] * 300, step_s=0.01, cpu=1.0)).figures
    gains = {name: gain for name, gain in figures.items() if name.endswith("_gain")}
    assert gains
    assert all(figures[f"{name}_error"] >= 0.05 * gain for name, gain in gains.items())
