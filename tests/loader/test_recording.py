"""A loader of ours leaves its events where somebody records, and delivers the same where nobody does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import headrace
from headrace.model import EventKind
from headrace.signals.recording import Recorder, Recording, close_lane, read_run

NUM_SAMPLES, BATCH = 24, 4


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take a named stage; some fail, and one kills its worker the first time."""

    def __init__(self, folder: Path, *, bad: int = -1, deadly: int = -1) -> None:
        self.folder, self.bad, self.deadly = folder, bad, deadly

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        with headrace.stage("npz decode", nbytes=8), headrace.stage("inner part"):
            sample = torch.full((1000,), index)
            for _ in range(20):  # long enough that samples are timed one by one
                sample = sample + 0
        if index == self.bad:
            raise ValueError("a bad sample")
        if index == self.deadly and not (self.folder / "died").exists():
            (self.folder / "died").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with Recorder(tmp_path / "run") as recorder:
        monkeypatch.setenv("HEADRACE_RECORDING", recorder.area.place)
        yield recorder
        close_lane()


def deliver(dataset: Numbers, **settings: object) -> list[int]:
    loader = headrace.DataLoader(dataset, batch_size=BATCH, num_workers=2, **settings)  # type: ignore[arg-type]
    return [int(number) for batch in loader for number in batch[:, 0]]


def finish(recorder: Recorder) -> Recording:
    close_lane()
    recorder.close()
    return read_run(recorder.directory)


@pytest.mark.parametrize(
    ("backend", "start_method"),
    [
        ("process", "fork"),
        ("thread", "fork"),
        ("process", "spawn"),
        pytest.param("thread", "spawn", marks=pytest.mark.slow),
    ],
)
def test_what_workers_and_the_loop_leave(recorder: Recorder, tmp_path: Path, backend: str, start_method: str) -> None:
    settings = {"backend": backend, "multiprocessing_context": start_method}
    assert deliver(Numbers(tmp_path), **settings) == list(range(NUM_SAMPLES))
    run = finish(recorder)
    roles = {process.pid: process.role for process in run.processes}
    assert roles.pop(os.getpid()) == "trainer"
    assert set(roles.values()) == {"worker"}
    workers = run.events[run.events["pid"] != os.getpid()]
    tasks = run.events_of(EventKind.FETCH)
    assert tasks["value"].sum() == NUM_SAMPLES
    assert set(tasks["pid"].tolist()) <= roles.keys()
    assert len(run.events_of(EventKind.IDLE)) > 0
    # samples of a few microseconds are not timed one by one: they are in their task alone
    samples = run.events_of(EventKind.SAMPLE)["value"].tolist()
    assert set(samples) <= set(range(NUM_SAMPLES))
    assert len(set(samples)) == len(samples)
    decodes = run.events_of(EventKind.DECODE)
    assert len(decodes) == NUM_SAMPLES
    assert {run.name_of(one["pid"], one["arg"]) for one in decodes} == {"npz decode"}
    assert decodes["value"].tolist() == [8] * NUM_SAMPLES
    stages = run.events_of(EventKind.STAGE)
    assert {run.name_of(one["pid"], one["arg"]) for one in stages} == {"inner part"}
    gets = run.events_of(EventKind.QUEUE_GET, os.getpid())
    assert len(gets) == NUM_SAMPLES // BATCH
    assert (workers["start_ns"] + workers["duration_ns"] <= run.end_ns).all()
    assert run.lost_records == 0


def test_where_nobody_records_the_same_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_RECORDING", raising=False)
    assert deliver(Numbers(tmp_path)) == list(range(NUM_SAMPLES))


def test_a_recorder_that_is_gone_is_no_trouble(recorder: Recorder, tmp_path: Path) -> None:
    recorder.close()
    assert deliver(Numbers(tmp_path)) == list(range(NUM_SAMPLES))


def test_a_bad_sample_is_an_event(recorder: Recorder, tmp_path: Path) -> None:
    delivered = deliver(Numbers(tmp_path, bad=5), on_error="quarantine", max_bad=3, backend="process")
    assert set(range(NUM_SAMPLES)) - {5} == set(delivered)
    assert finish(recorder).events_of(EventKind.BAD_SAMPLE)["value"].tolist() == [5]


def test_a_lost_worker_is_an_event(recorder: Recorder, tmp_path: Path) -> None:
    # without a bad sample: one that is left out moves the others up, and who owed them then is missed by nobody
    assert deliver(Numbers(tmp_path, deadly=14), on_error="quarantine", backend="process") == list(range(NUM_SAMPLES))
    run = finish(recorder)
    lost = run.events_of(EventKind.WORKER_LOST)["value"].tolist()
    assert lost == [int((tmp_path / "died").read_text())]
    (dead,) = [process for process in run.processes if process.pid == lost[0]]
    assert dead.end_ns is not None
