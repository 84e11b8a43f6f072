"""`headrace watch` on live loops over our own loader: what its workers do, and advice for those who have it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.model import Bottleneck, Cause, Finding
from headrace.signals import find_py_spy
from headrace.watch import History, WatchSession, WatchSettings, judge
from headrace.watch.findings import mean_shares
from headrace.watch.reading import WorkerActivity

from .live import WITHIN_S, wait_until

pytestmark = pytest.mark.skipif(find_py_spy() is None, reason="py-spy is missing")

SCRIPT = Path(__file__).parent.parent / "own_loader.py"
NUM_SAMPLES = 40  # of the trainer's stack


@contextmanager
def loop(case: str, backend: str, folder: Path) -> Iterator[int]:
    """The pid of a loop whose workers do one thing."""
    ready = folder / "ready"
    process = subprocess.Popen([sys.executable, str(SCRIPT), case, backend, str(ready)], start_new_session=True)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def watch(pid: int) -> History:
    history = History()
    deadline = time.monotonic() + WITHIN_S
    with WatchSession(pid, WatchSettings(interval_s=1)) as session:
        for look in session.looks():
            history.add(look)
            if any(one.num_samples >= NUM_SAMPLES for one in history.trainers.values()):
                return history
            assert time.monotonic() < deadline, look.as_json()
    return history


def mean_share(history: History, activity: WorkerActivity) -> float:
    return mean_shares(history.workers.values()).get(activity, 0.0)


CASES = [
    ("decode", "process", WorkerActivity.DECODING, Bottleneck.CPU_DECODE, "cheaper decoding: smaller pictures"),
    ("decode", "thread", WorkerActivity.DECODING, Bottleneck.CPU_DECODE, "cheaper decoding: smaller pictures"),
]
MORE_CASES = [
    ("read", "process", WorkerActivity.READING, None, "`io_depth=`"),
    ("read", "thread", WorkerActivity.READING, None, "`io_depth=`"),
    ("collate", "process", WorkerActivity.COLLATING, None, "a cheaper `collate_fn`"),
    ("collate", "thread", WorkerActivity.COLLATING, None, "a cheaper `collate_fn`"),
    ("rows", "process", WorkerActivity.SENDING, Bottleneck.IPC_COPY, "smaller samples in bytes"),
    ("rows", "thread", WorkerActivity.SENDING, Bottleneck.IPC_COPY, "smaller samples in bytes"),
]


@pytest.mark.parametrize(
    ("case", "backend", "activity", "bottleneck", "advice"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES)],
)
def test_what_busy_workers_do(
    case: str, backend: str, activity: WorkerActivity, bottleneck: Bottleneck | None, advice: str, tmp_path: Path
) -> None:
    with loop(case, backend, tmp_path) as pid:
        history = watch(pid)
    assert {worker.trainer_pid for worker in history.workers.values()} == {pid}
    assert all(worker.is_ours for worker in history.workers.values())
    assert sum(worker.num_workers for worker in history.workers.values()) == 2
    assert mean_share(history, activity) > 0.6, history.workers
    (finding,) = [one for one in judge(history).findings if one.cause is Cause.LOADER_THROUGHPUT]
    assert finding.bottleneck is bottleneck
    assert advice in " ".join(text.en for text in finding.fix)
    check_for_somebody_who_has_it(finding)
    if activity is WorkerActivity.DECODING:
        assert "in bytes" not in " ".join(text.en for text in finding.fix)


@pytest.mark.parametrize("backend", ["process", pytest.param("thread", marks=pytest.mark.slow)])
def test_workers_that_wait_for_a_task_are_idle(backend: str, tmp_path: Path) -> None:
    with loop("idle", backend, tmp_path) as pid:
        history = watch(pid)
    assert mean_share(history, WorkerActivity.IDLE) > 0.9, history.workers
    assert all(worker.busy.value < 0.1 for worker in history.workers.values())
    for finding in judge(history).findings:
        assert finding.cause is not Cause.LOADER_THROUGHPUT
        check_for_somebody_who_has_it(finding)


def check_for_somebody_who_has_it(finding: Finding) -> None:
    for text in finding.fix:
        assert "import DataLoader" not in text.en
        assert "import DataLoader" not in text.zh
