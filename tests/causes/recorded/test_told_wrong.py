"""What a hostile user was told wrong: one test for each, on a recording that is made up event by event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.causes.recorded import explain_processes
from headrace.causes.recorded.workers import SampleEnds
from headrace.model import Bottleneck, Cause, Confidence, EventKind, Finding, Findings, LoaderSettings, Verdict
from headrace.signals.system import SystemSample

from .test_cores import system
from .test_parts import play_in_process
from .test_recorded import IN_PROCESS, Tape, causes, explain, simulate
from .test_surroundings import machine, process


def fixes(finding: Finding) -> str:
    return " ".join(text.en for text in finding.fix)


def futile(finding: Finding) -> str:
    return " ".join(text.en for text in finding.futile)


def evidence(finding: Finding) -> str:
    return " ".join(text.en for text in finding.evidence)


@pytest.mark.parametrize("pauses", [{0: 7.0}, {0: 7.0, 40: 3.0, 80: 3.0}])
def test_workers_that_rest_with_a_full_queue_have_no_throughput_to_spare(pauses: dict[int, float]) -> None:
    """The first step compiles for 7 s, and the loop stands still now and then; the pool is too slow all the same."""
    interruptions = {at: (EventKind.SYNC, length_s) for at, length_s in pauses.items()}
    processes, end_s = simulate(workers=2, task_s=[0.05] * 160, step_s=0.007, cpu=0.9, interruptions=interruptions)
    finding = next(one for one in explain(processes, end_s, cores=16).findings if one.cause is not Cause.UNKNOWN)
    assert finding.cause is Cause.BATCH_LOCKSTEP
    assert finding.figures["busy_share"] > 0.9
    assert "more workers" not in futile(finding)
    assert len(pauses) > 1 or finding.figures["more_workers"] in range(6, 9)  # 25 ms of the pool for each 7 ms step


@pytest.mark.parametrize(("workers", "every"), [(2, 2), (3, 3), (4, 2), (4, 4)])
def test_heavy_batches_that_always_meet_the_same_worker_are_dealt_out_unevenly(workers: int, every: int) -> None:
    tasks = [0.16 if number % every == 0 else 0.004 for number in range(30 * workers)]
    finding = explain(*simulate(workers=workers, task_s=tasks, step_s=0.016)).findings[0]
    if workers == every:
        assert finding.title is not None
        assert "unevenly dealt out" in finding.title.en
        assert f"num_workers={workers + 1}" in fixes(finding)
        assert "--feed" in finding.fix[0].en
        assert "prefetch_factor" in futile(finding)
    assert "more prefetch does help" not in fixes(finding)
    assert "more workers" not in futile(finding)


def test_heavy_batches_that_go_round_are_single_late_ones() -> None:
    tasks = [0.6 if number % 15 == 7 else 0.004 for number in range(240)]
    finding = explain(*simulate(workers=2, task_s=tasks, step_s=0.016)).findings[0]
    assert (finding.cause, finding.title) == (Cause.STRAGGLER_SAMPLE, None)


def test_a_save_inside_next_is_a_wait_for_data() -> None:
    processes, end_s = play_in_process(0.08, 0.02)
    waits = processes[0].of(EventKind.WAIT)
    saves = waits[waits["value"] >= 0].copy()
    saves["kind"], saves["duration_ns"] = int(EventKind.CHECKPOINT), saves["duration_ns"] * 0.8
    saves["start_ns"] += 1000
    events = np.concatenate([processes[0].events, saves])
    events = events[np.argsort(events["start_ns"], kind="stable")]
    found = explain([replace(processes[0], events=events)], end_s)
    assert causes(found) == ["loader_throughput"]
    assert found.findings[0].share > 0.7


def test_own_code_between_epochs_comes_first() -> None:
    tape = Tape(100, "trainer", names={1: "Samples#1"}, loaders={1: IN_PROCESS})
    now = 1.0
    for epoch in range(5):
        tape.add(EventKind.EPOCH, now, 0.001, epoch, 1)
        for number in range(20):
            tape.add(EventKind.WAIT, now + 0.001, 0.01, number, 1)
            tape.add(EventKind.FORWARD, now + 0.011, 0.04)
            tape.add(EventKind.BACKWARD, now + 0.051, 0.004)
            now += 0.055
        tape.add(EventKind.WAIT, now + 0.001, 0.001, -1, 1)
        now += 1.0 if epoch < 4 else 0.0
    found = explain([tape.process()], now + 0.5)
    assert found.findings[0].cause is Cause.UNKNOWN
    assert found.findings[0].share == pytest.approx(4 / (4 + 5 * 20 * 0.055), abs=0.02)
    assert "between passes over loaders: 4 times" in evidence(found.findings[0])


def test_steps_from_one_evaluation_to_the_next_are_not_between_passes() -> None:
    """Evaluations inside of an epoch: the loss of every step, which nobody times, is no code between epochs."""
    tape = Tape(100, "trainer", names={1: "Samples#1", 2: "Samples#2"}, loaders={1: IN_PROCESS, 2: IN_PROCESS})
    tape.add(EventKind.EPOCH, 1.0, 0.001, 0, 1)
    now = 1.0
    for number in range(40):
        tape.add(EventKind.WAIT, now + 0.001, 0.001, number, 1)
        tape.add(EventKind.FORWARD, now + 0.002, 0.03)
        tape.add(EventKind.BACKWARD, now + 0.06, 0.02)  # between them the loss
        now += 0.08
        if number % 5 == 4:
            tape.add(EventKind.EPOCH, now, 0.001, number // 5, 2)
            tape.add(EventKind.WAIT, now + 0.001, 0.001, 0, 2)
            tape.add(EventKind.FORWARD, now + 0.002, 0.01)
            tape.add(EventKind.WAIT, now + 0.012, 0.001, -1, 2)
            now += 0.015
    assert "unknown" not in causes(explain([tape.process()], now + 0.5))


def test_collections_inside_next_are_told_once() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.2] * 60, step_s=0.01, cpu=0.9)
    collections = processes[0].of(EventKind.WAIT).copy()
    collections["kind"], collections["duration_ns"] = int(EventKind.GC), collections["duration_ns"] * 0.6
    events = np.concatenate([processes[0].events, collections])
    processes[0] = replace(processes[0], events=events[np.argsort(events["start_ns"], kind="stable")])
    assert sum(one.share for one in explain(processes, end_s).findings) <= 1


@pytest.mark.parametrize(("mean_s", "expected"), [(0.0137, False), (0.040, None), (0.0828, None)])
def test_samples_that_take_far_longer_than_alone_may_wait_for_each_other(mean_s: float, expected: bool | None) -> None:
    """10 ms side by side and 2.5 ms behind a lock, with 2, 16 and 30 workers."""
    gap_s = {0.0137: 0.0069, 0.040: 0.0025, 0.0828: 0.0027}[mean_s]
    ends = SampleEnds(gap_s=gap_s, least_gap_s=0.1 * gap_s, shortest_s=0.0126, mean_s=mean_s)
    assert ends.are_taken is expected


def test_no_gain_is_told_for_far_more_workers_than_ran() -> None:
    still = explain(*simulate(workers=2, task_s=[0.1] * 80, step_s=0.005, cpu=0.05), cores=64).findings[0]
    assert still.figures["more_workers"] == 4
    assert "look again" in still.fix[0].en
    busy = explain(*simulate(workers=2, task_s=[0.1] * 80, step_s=0.005, cpu=0.95), cores=64).findings[0]
    assert busy.figures["more_workers"] == 8


def taking(get_s: float, *, no_core: float = 0.0, late_s: float = 0.0, step_s: float = 0.01) -> Findings:
    """Batches that lie there: each `next` takes 20 ms, some of it in the queue; one in ten takes longer."""
    tape = Tape(100, "trainer", names={1: "Samples#1"}, loaders={1: LoaderSettings(by="torch", num_workers=2)})
    now = 1.0
    tape.add(EventKind.EPOCH, now, 0.001, 0, 1)
    for number in range(200):
        wait_s = (get_s if no_core else 0.02) + (late_s if number % 10 == 5 else 0.0)
        tape.add(EventKind.WAIT, now + 0.001, wait_s, number, 1)
        tape.add(EventKind.QUEUE_GET, now + 0.001, min(wait_s, get_s + late_s), 1, 1)
        tape.add(EventKind.FORWARD, now + 0.001 + wait_s, step_s)
        now += 0.001 + wait_s + step_s
    worker = Tape(200, "worker")
    for number in range(200):
        at = 1.0 + number * (now - 1.0) / 200
        worker.add(EventKind.FETCH, at, 0.001, number)
        worker.add(EventKind.CPU, at, 0.001, 100_000)
        worker.add(EventKind.IDLE, at + 0.001, (now - 1.0) / 200 - 0.001)
    samples = system(now, trainer=0.1, worker=0.05, others=1.8, no_core=no_core) if no_core else []
    processes, end_ns = [tape.process(), worker.process()], round(now * 1e9)
    return explain_processes(processes, start_ns=0, end_ns=end_ns, cores=2, system=samples)


def test_a_slow_sampler_is_no_copying_between_processes() -> None:
    finding = taking(0.001).findings[0]
    assert finding.bottleneck is Bottleneck.SAMPLER
    assert "`batch_sampler`" in evidence(finding)
    assert "uint8" not in fixes(finding)
    assert "num_workers=" not in fixes(finding)
    assert taking(0.019).findings[0].bottleneck is Bottleneck.IPC_COPY


def test_moments_without_a_core_are_no_copying() -> None:
    found = taking(0.001, no_core=0.25, late_s=0.03)
    assert causes(found) == ["cpu_contended"]
    steady = taking(0.01, no_core=0.15).findings
    assert not any(one.cause is not Cause.CPU_CONTENDED and one.confidence is Confidence.CERTAIN for one in steady)


def test_a_program_that_a_worker_waits_for_is_computing_and_no_storage() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.01, cpu=0.05, read_bytes=40_000_000)
    samples = [
        SystemSample(
            at_ns=round(at * 1e9),
            machine=machine(cpu_user_s=int(1.7 * at), cpu_idle_s=int(6.3 * at)),
            processes=(
                process(100, 0.1 * at),
                *(process(pid, 0.05 * at, parent=100)._replace(cpu_children_s=0.8 * at) for pid in (200, 201)),
            ),
        )
        for at in (0.0, end_s / 2, end_s)
    ]
    found = explain_processes(processes, start_ns=0, end_ns=round(end_s * 1e9), cores=8, system=samples)
    finding = found.findings[0]
    assert finding.bottleneck is Bottleneck.CPU_DECODE
    assert "a program that it starts computes (80 % of a core)" in evidence(finding)
    assert "warm_cache_gain" not in finding.figures


@pytest.mark.parametrize(("busy", "verdict"), [(0.2, Verdict.COMPUTE_BOUND), (0.9, Verdict.BALANCED)])
def test_a_loader_that_rests_is_not_balanced(busy: float, verdict: Verdict) -> None:
    """The loop waits for 7 % of its time in either case; what decides is what the workers could give."""
    processes, end_s = simulate(workers=2, task_s=[busy * 2 * 0.1] * 80, step_s=0.1, taking_s=0.0075)
    found = explain(processes, end_s)
    assert 0.05 < found.figures["wait_share"] < 0.1
    assert (found.verdict, found.findings) == (verdict, ())


def test_what_each_cost_is_told_as_what_it_is_typically() -> None:
    """A median times the count is not the sum."""
    interruptions = {10: (EventKind.CHECKPOINT, 0.2), 20: (EventKind.CHECKPOINT, 0.2), 30: (EventKind.CHECKPOINT, 2.0)}
    processes, end_s = simulate(workers=2, task_s=[0.01] * 40, step_s=0.1, interruptions=interruptions)
    (finding,) = explain(processes, end_s).findings
    assert "took 2.40 s in all, typically 200 ms each (2.00 s at worst)" in finding.evidence[0].en
    assert "共用 2.40 s，每次通常 200 ms（最长 2.00 s）" in finding.evidence[0].zh
