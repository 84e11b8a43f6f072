"""Whose cores they were: other ranks and other people's processes are told, and more workers are not advised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.causes.recorded import ProcessEvents, explain_processes
from headrace.causes.recorded.surroundings import CoreAccount, find_contention, read_cores
from headrace.model import Bottleneck, Cause, EventKind, Findings, Verdict
from headrace.signals.system import GpuSample, SystemSample

from .test_recorded import causes, simulate
from .test_surroundings import SECOND, data_finding, machine, process

_TRAINER, _WORKERS, _OTHER_RANK = 100, (200, 201), 300


def system(
    seconds: float,
    *,
    trainer: float = 0.2,
    worker: float = 0.4,
    rank: float = 0.0,
    others: float = 0.0,
    cores: int = 2,
    no_core: float = 0.0,
    looks: int = 5,
) -> list[SystemSample]:
    """A run in which each of them uses so much of a core."""
    used = trainer + 2 * worker + rank
    return [
        SystemSample(
            at_ns=round(at * SECOND),
            machine=machine(cpu_user_s=int((used + others) * at), cpu_idle_s=int(max(0.0, cores - used - others) * at)),
            processes=(
                process(_TRAINER, trainer * at, parent=1, run_delay_s=no_core * at),
                *(process(pid, worker * at, parent=_TRAINER) for pid in _WORKERS),
                process(_OTHER_RANK, rank * at, parent=1),
            ),
        )
        for at in np.linspace(0, seconds, looks)
    ]


def waits_for_cores(processes: list[ProcessEvents], share: float) -> None:
    """Let each task be ready and without a core for a share of its time."""
    for one in processes:
        tasks = one.events["kind"] == int(EventKind.CPU)
        one.events["arg"][tasks] = one.events["duration_ns"][tasks] * share / 1000


def explain(step_s: float = 0.05, task_s: float = 0.4, no_core: float = 0.55, **used: float) -> Findings:
    processes, end_s = simulate(workers=2, task_s=[task_s] * 60, step_s=step_s, cpu=0.4)
    waits_for_cores(processes, no_core)
    samples = system(end_s, **used)  # type: ignore[arg-type]
    return explain_processes(processes, start_ns=0, end_ns=round(end_s * SECOND), cores=2, system=samples)


def said(found: Findings) -> str:
    return " ".join(text.en for one in found.findings for text in (*one.evidence, *one.fix))


def test_on_full_cores_nobody_is_sent_for_more_workers() -> None:
    """Two ranks on two cores, whose workers wait for a free one for half of their time."""
    found = explain(rank=1.0)
    assert causes(found)[0] == "cpu_contended"
    assert found.findings[0].share == pytest.approx(0.5, abs=0.05)
    assert found.verdict is Verdict.DATA_BOUND
    assert "other processes of this run 1.00" in said(found)
    assert "times as fast by estimate (demand" not in said(found)
    assert "top" not in said(found)  # it is the run's own ranks


def test_processes_of_others_are_told_with_their_share() -> None:
    found = explain(others=1.0)
    assert causes(found)[0] == "cpu_contended"
    assert "processes outside it 1.00 (50 %)" in said(found)
    assert "`top`" in found.findings[0].fix[0].en


def test_a_busy_machine_is_not_unknown() -> None:
    processes, end_s = simulate(
        workers=2, task_s=[0.01] * 60, step_s=0.05, interruptions=dict.fromkeys(range(5, 60, 6), (EventKind.NAME, 0.4))
    )
    quiet = explain_processes(
        processes, start_ns=0, end_ns=round(end_s * SECOND), cores=2, system=system(end_s, worker=0.1)
    )
    assert causes(quiet) == ["unknown"]
    crowd = system(end_s, trainer=0.5, worker=0.1, others=1.3, no_core=0.4)
    busy = explain_processes(processes, start_ns=0, end_ns=round(end_s * SECOND), cores=2, system=crowd)
    assert causes(busy) == ["cpu_contended"]
    assert (quiet.verdict, busy.verdict) == (Verdict.STUTTERING, Verdict.ELSEWHERE)  # the machine makes every step slow
    assert busy.findings[0].share == pytest.approx(0.4, abs=0.05)


def test_cores_that_the_training_fills_itself_are_a_slow_loader() -> None:
    found = explain(trainer=0.4, worker=0.8)
    assert causes(found)[0] == "loader_throughput"  # they are in step because they share the cores
    assert found.findings[0].bottleneck is Bottleneck.CPU_DECODE
    assert "times as fast by estimate (demand" not in said(found)


def test_on_full_cores_a_gain_is_less_sure() -> None:
    processes, end_s = simulate(workers=2, task_s=[0.4] * 60, step_s=0.05, cpu=0.9)
    found = explain_processes(
        processes, start_ns=0, end_ns=round(end_s * SECOND), cores=2, system=system(end_s, trainer=0.2, worker=0.9)
    )
    figures = found.findings[0].figures
    assert figures["faster_decode_gain_error"] >= 0.25 * figures["faster_decode_gain"]


def test_idle_cores_are_shared_with_other_ranks() -> None:
    """Room for four more: a rank of two is told of its half."""
    tasks = list(np.random.default_rng(1).uniform(0.38, 0.42, 80))
    processes, end_s = simulate(workers=2, task_s=tasks, step_s=0.02, cpu=1.0)
    other = ProcessEvents(_OTHER_RANK, 1, "trainer", processes[0].events, processes[0].names)
    for all_of_them, asked in (([*processes], "num_workers=7"), ([*processes, other], "num_workers=3")):
        samples = system(end_s, trainer=0.0, worker=1.0, cores=8)
        found = explain_processes(all_of_them, start_ns=0, end_ns=round(end_s * SECOND), cores=8, system=samples)
        assert asked in said(found)


def test_the_core_of_a_loop_that_waits_carries_a_worker_too() -> None:
    """Two workers on three cores: the third is idle as long as the loop waits, and then no core is."""
    processes, end_s = simulate(workers=2, task_s=[0.4] * 80, step_s=0.02, cpu=1.0)
    for trainer, asks in ((0.1, True), (1.0, False)):
        samples = system(end_s, trainer=trainer, worker=1.0, cores=3)
        found = explain_processes(processes, start_ns=0, end_ns=round(end_s * SECOND), cores=3, system=samples)
        assert ("num_workers=3: about" in said(found)) is asks
        if asks:
            figures = found.findings[0].figures
            assert figures["more_workers_gain"] == pytest.approx(3 / 2.1, rel=0.02)  # all of the cores, and no more
            assert figures["more_workers_gain_error"] >= 0.25 * figures["more_workers_gain"]


def test_processes_that_ended_are_their_parents() -> None:
    """Workers that are started anew, and programs that a data set calls, are the training's own."""
    samples = [
        SystemSample(
            at_ns=at * SECOND,
            machine=machine(cpu_user_s=2 * at),
            processes=(process(_TRAINER, 0.5 * at, parent=1, cpu_children_s=1.5 * at),),
        )
        for at in (0, 10)
    ]
    account = read_cores(samples, 2.0, _TRAINER, ())
    assert account is not None
    assert (account.trainer, account.workers, account.others) == pytest.approx((0.5, 1.5, 0.0))


@given(
    ranks=st.floats(0, 2),
    others=st.floats(0, 2),
    no_core=st.floats(0, 1),
    task=st.floats(0, 1),
    waits=st.floats(0, 1),
    workers=st.sampled_from([0.0, 2.0]),
)
def test_no_more_is_told_than_was_lost_and_than_others_took(
    ranks: float, others: float, no_core: float, task: float, waits: float, workers: float
) -> None:
    account = CoreAccount(
        cores=2.0,
        trainer=0.2,
        workers=0.2,
        ranks=ranks,
        others=others,
        idle=max(0.0, 1.6 - ranks - others),
        no_core=no_core,
    )
    data = data_finding(waits, task_no_core_share=task, num_workers=workers)
    found = find_contention(account, data, wait_share=waits)
    if found is None:
        return
    finding, of_waits, of_rest = found
    assert finding.cause is Cause.CPU_CONTENDED
    assert 0 <= of_waits <= 1
    assert 0 <= of_rest <= 1 + 1e-9
    assert finding.share == pytest.approx(of_waits * waits + of_rest * (1 - waits), abs=1e-6)
    assert finding.share <= 2 * account.taken


def test_on_a_device_a_gain_may_be_more_for_a_host_that_is_fed_runs_ahead_of_it() -> None:
    """Half of a step is the device's work, which the host waits for: fed, a step takes between that and all of it."""
    processes, end_s = simulate(workers=2, task_s=[0.4] * 80, step_s=0.1, cpu=1.0)
    events = processes[0].events
    steps = [events[events["kind"] == int(EventKind.WAIT)].copy() for _ in range(3)]
    for these, kind in zip(steps, (EventKind.H2D, EventKind.OPTIMIZER, EventKind.SYNC), strict=True):
        these["start_ns"] += these["duration_ns"]
        these["kind"], these["duration_ns"] = int(kind), 1000
    steps[2]["duration_ns"] = 60_000_000  # of 100 ms, it stands for the device
    first = replace(processes[0], events=np.concatenate([events, *steps]))
    gpu = GpuSample(**dict.fromkeys(GpuSample._fields, None) | {"number": 0, "utilisation": 0.25})
    samples = [replace(one, gpus=(gpu,)) for one in system(end_s, trainer=0.5, worker=1.0, cores=16, looks=20)]
    gains = []
    for these in ([first, *processes[1:]], [*processes]):
        found = explain_processes(these, start_ns=0, end_ns=round(end_s * SECOND), cores=16, system=samples)
        figures = found.findings[0].figures
        gains.append((figures["more_workers_gain"], figures["more_workers_gain_error"]))
    (gain, error), (least, _) = gains
    assert least == pytest.approx(1.9, rel=0.05)  # a step takes 0.1 s, and a batch comes every 0.2
    assert gain > least
    assert gain - error <= 1.05 * least
    assert gain + error >= 2.8
