"""Attached to real trainings: what they wait for, workers that hang or die, and that nothing is disturbed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from headrace.model import Cause, Verdict
from headrace.signals import find_py_spy
from headrace.watch import AlarmSettings, History, Look, WatchSession, WatchSettings, judge
from headrace.watch.reading import TrainerActivity, WorkerActivity

from .live import WITHIN_S, children_of, kill, training, wait_until

pytestmark = pytest.mark.skipif(find_py_spy() is None, reason="py-spy is missing")


def watch_until(session: WatchSession, is_enough: Callable[[History, Look], bool]) -> History:
    """Watch until it has been seen, at most for a time that no machine needs."""
    history = History()
    deadline = time.monotonic() + WITHIN_S
    for look in session.looks():
        history.add(look)
        if is_enough(history, look):
            return history
        assert time.monotonic() < deadline, look.as_json()
    return history


def has_samples(history: History, _look: Look, *, count: int = 50) -> bool:
    return any(trainer.num_samples >= count for trainer in history.trainers.values())


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A training whose workers take 200 ms a sample, asleep: on any machine it waits for data nearly always."""
    with training("sleep", tmp_path_factory.mktemp("slow")) as process:
        yield process.pid


def test_a_training_that_waits_for_slow_workers(slow: int) -> None:
    with WatchSession(slow, WatchSettings(interval_s=1)) as session:
        history = watch_until(session, has_samples)
        assert not children_of(os.getpid()) or slow in children_of(os.getpid())
    (trainer,) = history.trainers.values()
    assert trainer.pid == slow
    assert not trainer.problem
    assert trainer.wait.value > 0.7
    assert trainer.wait.low < trainer.wait.value <= trainer.wait.high
    assert {worker.trainer_pid for worker in history.workers.values()} == {slow}
    assert sorted(worker.name for worker in history.workers.values()) == ["worker 0", "worker 1"]
    assert all(
        worker.at is not None and worker.at.function.endswith("__getitem__") for worker in history.workers.values()
    )
    assert all(worker.rates.rss_bytes > 1 << 20 for worker in history.workers.values())
    findings = judge(history)
    assert findings.verdict is Verdict.DATA_BOUND
    assert findings.findings[0].cause is Cause.LOADER_THROUGHPUT
    for language in ("en", "zh"):
        assert findings.as_json(language)


def test_a_worker_is_taken_for_its_trainer_and_a_parent_too(slow: int) -> None:
    worker = next(pid for pid in children_of(slow) if psutil.Process(pid).name().startswith("pt_data_worker"))
    with WatchSession(worker, WatchSettings(interval_s=1)) as session:
        assert session.roots == (slow,)
    words = " ".join(psutil.Process(slow).cmdline()[1:])  # to the end: another test may have such a training, too
    with WatchSession(words, WatchSettings(interval_s=1)) as session:
        assert session.roots == (slow,)


def test_without_stacks_the_workers_pipe_tells(slow: int) -> None:
    with WatchSession(slow, WatchSettings(interval_s=1, use_stacks=False)) as session:
        history = watch_until(session, lambda h, look: has_samples(h, look, count=10))
    (trainer,) = history.trainers.values()
    assert "switched off" in trainer.problem
    assert trainer.wait.value > 0.5
    assert len(history.workers) == 2
    assert judge(history).limits


@pytest.mark.slow
def test_a_compute_bound_training(tmp_path: Path) -> None:
    with training("compute", tmp_path) as process, WatchSession(process.pid, WatchSettings(interval_s=1)) as session:
        history = watch_until(session, has_samples)
    (trainer,) = history.trainers.values()
    assert trainer.shares[TrainerActivity.COMPUTE].value > 0.7
    assert trainer.wait.num_samples == trainer.shares[TrainerActivity.COMPUTE].num_samples
    findings = judge(history)
    assert [finding.cause for finding in findings.findings if finding.cause is Cause.LOADER_THROUGHPUT] == []
    assert all(worker.shares.get(WorkerActivity.IDLE, 0) > 0.5 for worker in history.workers.values())


def test_workers_that_hang_are_named_with_what_holds_them(tmp_path: Path) -> None:
    """One waits for a lock, one for a FIFO, one was stopped."""
    settings = WatchSettings(interval_s=1, alarms=AlarmSettings(memory=None, stuck_s=2.0))
    with training("hang", tmp_path) as process:
        with WatchSession(process.pid, settings) as session:
            wait_until(lambda: (tmp_path / "ready.quick").exists() and (tmp_path / "ready.quick").read_text())
            stopped = int((tmp_path / "ready.quick").read_text())
            os.kill(stopped, signal.SIGSTOP)
            workers = set(children_of(process.pid))
            history = watch_until(session, lambda h, _: workers <= {a.pid for a in h.alarms if a.kind == "stuck"})
        os.kill(stopped, signal.SIGCONT)
        assert process.poll() is None
    told = {alarm.pid: alarm.what.en for alarm in history.alarms}
    assert "kill -CONT" in told[stopped]
    assert any("wait_for_lock" in text for text in told.values())
    assert any("read_fifo" in text and "ready.fifo" in text for text in told.values())
    findings = judge(history)
    assert [one.cause for one in findings.findings].count(Cause.WORKER_HANG) == 3


def test_a_worker_that_is_killed_and_a_trainer_that_ends(tmp_path: Path) -> None:
    settings = WatchSettings(interval_s=1, alarms=AlarmSettings(memory=None))
    with training("goes_on", tmp_path) as process, WatchSession(process.pid, settings) as session:
        victim = children_of(process.pid)[0]
        kill(victim, signal.SIGKILL)
        history = watch_until(session, lambda h, _: any(a.kind == "worker_gone" for a in h.alarms))
        assert [alarm.pid for alarm in history.alarms if alarm.kind == "worker_gone"] == [victim]
        assert process.poll() is None
        kill(process.pid, signal.SIGKILL)
        history = watch_until(session, lambda h, _: any(a.kind == "trainer_gone" for a in h.alarms))
        assert session.has_ended
    assert judge(history).findings[0].cause is Cause.UNKNOWN
    assert "SIGKILL" in judge(history).findings[0].evidence[0].en
