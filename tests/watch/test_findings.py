"""Findings from what was watched: made-up looks in, causes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.model import Bottleneck, Cause, Confidence, Severity, Text, Verdict
from headrace.reports import headline_of
from headrace.watch.findings import History, judge
from headrace.watch.look import Alarm, Look, MachineLook, Rates, TrainerLook, WorkerLook
from headrace.watch.processes import End
from headrace.watch.reading import Detail, TrainerActivity, WorkerActivity
from headrace.watch.shares import share_of


def seen(
    activities: dict[TrainerActivity, int],
    *,
    busy: list[float] | None = None,
    doing: dict[WorkerActivity, float] | None = None,
    machine: MachineLook | None = None,
    details: dict[Detail, float] | None = None,
    alarms: tuple[Alarm, ...] = (),
) -> History:
    """A history of one look: a trainer that did so many samples of each, and workers."""
    track = [activity for activity, count in activities.items() for _ in range(count)]
    mixed = [track[(i * 7) % len(track)] for i in range(len(track))] if len(track) % 7 else track
    shares = {activity: share_of([one is activity for one in mixed]) for activity in activities}
    trainer = TrainerLook(
        pid=10,
        started=1,
        rank=0,
        command="python t.py",
        activity=mixed[0],
        shares=shares,
        details=details or {},
        num_samples=len(track),
    )
    workers = tuple(
        WorkerLook(
            pid=20 + number,
            started=2,
            trainer_pid=10,
            name=f"worker {number}",
            activity=WorkerActivity.DECODING,
            rates=Rates(),
            shares=doing or {},
            busy=share_of([i < 100 * value for i in range(100)]),
        )
        for number, value in enumerate(busy or [])
    )
    history = History()
    look = Look(
        at="now", watched_s=10.0, trainers=(trainer,), workers=workers, machine=machine or MachineLook(), alarms=alarms
    )
    history.add(look)
    return history


WAIT = {TrainerActivity.DATA_WAIT: 60, TrainerActivity.COMPUTE: 40}


@pytest.mark.parametrize(
    ("doing", "bottleneck"),
    [
        ({WorkerActivity.DECODING: 0.9}, Bottleneck.CPU_DECODE),
        ({WorkerActivity.READING: 0.8, WorkerActivity.DECODING: 0.1}, None),
        (
            {WorkerActivity.SENDING: 0.5, WorkerActivity.COLLATING: 0.2, WorkerActivity.DECODING: 0.3},
            Bottleneck.IPC_COPY,
        ),
    ],
)
def test_busy_workers_are_a_slow_pool_and_what_they_do_is_the_bottleneck(
    doing: dict[WorkerActivity, float], bottleneck: Bottleneck | None
) -> None:
    findings = judge(seen(WAIT, busy=[0.98, 0.97, 0.99], doing=doing))
    assert findings.verdict is Verdict.DATA_BOUND
    (finding,) = findings.findings
    assert (finding.cause, finding.bottleneck) == (Cause.LOADER_THROUGHPUT, bottleneck)
    assert finding.share == pytest.approx(0.6)
    assert "prefetch_factor" in finding.futile[0].en
    assert "60 %" in finding.evidence[0].en


def test_one_busy_worker_among_idle_ones_is_a_straggler() -> None:
    (finding,) = judge(seen(WAIT, busy=[0.95, 0.2, 0.1, 0.3])).findings
    assert finding.cause is Cause.STRAGGLER_SAMPLE
    assert "worker 0" in finding.evidence[-1].en


def test_waits_although_nobody_is_busy_are_not_explained_away() -> None:
    (finding,) = judge(seen(WAIT, busy=[0.4, 0.5, 0.45])).findings
    assert finding.cause is Cause.UNKNOWN


def test_a_full_cpu_makes_more_workers_futile() -> None:
    free = judge(seen(WAIT, busy=[0.98], doing={WorkerActivity.DECODING: 0.98}, machine=MachineLook(cpu_share=0.3)))
    full = judge(seen(WAIT, busy=[0.98], doing={WorkerActivity.DECODING: 0.98}, machine=MachineLook(cpu_share=0.99)))
    assert "more workers while cores are free" in free.findings[0].fix[0].en
    assert "more workers" not in " ".join(text.en for text in full.findings[0].fix)


def test_loading_in_the_training_process() -> None:
    (finding,) = judge(seen(WAIT, details={Detail.IN_PROCESS: 0.6})).findings
    assert "num_workers" in finding.fix[0].en


def test_a_healthy_run_has_no_findings() -> None:
    findings = judge(
        seen(
            {TrainerActivity.DATA_WAIT: 2, TrainerActivity.COMPUTE: 180, TrainerActivity.SYNCHRONISATION: 20},
            busy=[0.1, 0.2],
        )
    )
    assert findings.findings == ()
    assert findings.verdict is Verdict.COMPUTE_BOUND


@pytest.mark.parametrize(("busy", "verdict"), [(0.16, Verdict.COMPUTE_BOUND), (0.7, Verdict.BALANCED)])
def test_workers_that_rest_make_no_balance(busy: float, verdict: Verdict) -> None:
    activities = {TrainerActivity.DATA_WAIT: 28, TrainerActivity.COMPUTE: 372}
    assert judge(seen(activities, busy=[busy, busy])).verdict is verdict


def test_a_loop_without_a_loader_is_told_how_to_see_its_data() -> None:
    (said,) = judge(seen({TrainerActivity.COMPUTE: 100})).limits
    assert 'headrace.phase("data")' in said.en
    assert "headrace.monitor" in said.zh
    assert judge(seen({TrainerActivity.COMPUTE: 100}, busy=[0.1])).limits == ()
    assert judge(seen(WAIT)).limits == ()


def test_too_few_samples_decide_nothing() -> None:
    findings = judge(seen({TrainerActivity.DATA_WAIT: 10}, busy=[0.9]))
    assert findings.verdict is Verdict.UNKNOWN
    assert findings.findings == ()
    assert "watch for longer" in findings.measure[0].en
    assert judge(History()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("activity", "cause"),
    [
        (TrainerActivity.CHECKPOINT, Cause.CHECKPOINT),
        (TrainerActivity.EVALUATION, Cause.EVALUATION),
        (TrainerActivity.LOGGING, Cause.LOGGING),
        (TrainerActivity.GC, Cause.GC),
        (TrainerActivity.H2D_COPY, Cause.H2D_COPY),
    ],
)
def test_phases_have_their_causes(activity: TrainerActivity, cause: Cause) -> None:
    (finding,) = judge(seen({activity: 40, TrainerActivity.COMPUTE: 160})).findings
    assert finding.cause is cause
    assert finding.share == pytest.approx(0.2)


def test_an_evaluation_known_by_a_name_is_possible_and_none_where_it_trains() -> None:
    looks = {TrainerActivity.EVALUATION: 40, TrainerActivity.COMPUTE: 160}
    (finding,) = judge(seen(looks)).findings
    assert finding.confidence is Confidence.POSSIBLE
    assert judge(seen(looks, details={Detail.TRAINING: 0.1})).findings == ()


def test_time_in_code_that_neither_computes_nor_waits_for_a_loader_is_not_explained_and_its_place_is_told() -> None:
    history = seen({TrainerActivity.OTHER: 150, TrainerActivity.COMPUTE: 50})
    ((key, trainer),) = history.trainers.items()
    history.trainers[key] = replace(trainer, other_at="train.py:8 in get_batch")
    findings = judge(history)
    (finding,) = findings.findings
    assert (findings.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.UNKNOWN)
    assert finding.title is not None
    assert "train.py:8 in get_batch" in finding.title.en
    assert "headrace.phase" in findings.measure[0].en


def test_a_stuck_worker_explains_the_waits() -> None:
    told = Alarm(kind="stuck", pid=20, what=Text("it stands", "停住"))
    (finding,) = judge(seen({TrainerActivity.DATA_WAIT: 100}, busy=[1.0, 0.0], alarms=(told, told))).findings
    assert finding.cause is Cause.WORKER_HANG
    assert finding.evidence[0] is told.what
    assert "--dump" in finding.fix[0].en


def test_what_was_alarming_is_found() -> None:
    shares = {TrainerActivity.COMPUTE: 100}
    for kind, cause in (("memory", Cause.MEMORY_PRESSURE), ("swap_in", Cause.SWAP), ("worker_gone", Cause.WORKER_LOST)):
        alarm = Alarm(kind=kind, pid=None, what=Text("it is so", "如此"))
        (finding,) = judge(seen(shares, alarms=(alarm, alarm))).findings  # told again is not found again
        assert finding.cause is cause
        assert finding.fix


def test_a_lost_trainer_is_fatal() -> None:
    end = End(pid=10, status=9)
    alarm = Alarm(kind="trainer_gone", pid=10, what=end.text(), evidence={"signal": 9})
    findings = judge(seen({TrainerActivity.COMPUTE: 100}, alarms=(alarm,)))
    (finding,) = findings.findings
    assert (finding.severity, finding.share) == (Severity.FATAL, 1.0)
    assert headline_of(findings, "en").startswith("the run was ended: SIGKILL, a signal that was sent to it")
    assert finding.fix[0].en.startswith("find out who sent it")
