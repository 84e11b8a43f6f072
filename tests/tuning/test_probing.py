"""Probes of real loaders over real data sets: one that hangs, dies or raises ends its probe, and nothing else."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import CannotLoadTarget, UnusableInput
from headrace.tuning import Candidate, ProbeHost, TuneSettings, tune
from headrace.tuning.search import Failure

DATA_SETS = """
import resource
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

class Waiting(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((16,), float(index))

class OnlyAlone(Waiting):
    what = "raise"
    def __getitem__(self, index):
        if get_worker_info() is not None:
            if self.what == "raise":
                raise KeyError("not here")
            if self.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "hang":
                time.sleep(3600)
            if self.what == "grow":
                self.kept = [torch.ones(1 << 20) for _ in range(100)]
        return super().__getitem__(index)

class Dying(OnlyAlone):
    what = "die"

class Hanging(OnlyAlone):
    what = "hang"

class Growing(OnlyAlone):
    what = "grow"

class Told(Waiting):
    count = 0
    def __getitem__(self, index):
        self.count += 1
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        b"x" * (64 << 20)  # more than malloc keeps by itself
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        if self.count > 2 and (faults > 1000) == (os.environ.get("OMP_NUM_THREADS") == "5"):
            raise ValueError("the gains were not set")  # either both, or none
        return index

class Broken(Waiting):
    def __getitem__(self, index):
        raise ValueError("no sample is left")

class Stuck(Waiting):
    def __getitem__(self, index):
        time.sleep(3600)

class Few(Waiting):
    def __len__(self):
        return 8

class Stream(IterableDataset):
    def __iter__(self):
        for index in range(4000):
            time.sleep(0.002)
            yield torch.full((16,), float(index))

def loader():
    return DataLoader(Waiting(), batch_size=4, num_workers=1, shuffle=True)

def none():
    return []

def fifteen():
    return list(range(15))

def few():
    return DataLoader(Few(), batch_size=4)
"""

WAITING = Candidate(num_workers=2, batch_size=4)
ALONE = Candidate(num_workers=0, batch_size=4)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tuned") / "tuned_data_sets.py"
    path.write_text(DATA_SETS)
    return path


def test_a_probe_measures_a_rate_and_what_it_takes(place: Path) -> None:
    with ProbeHost(f"{place}:Waiting") as host:
        assert (host.subject.dataset, host.subject.is_indexed, host.subject.baseline) == ("Waiting", True, None)
        alone, ours = host.run(ALONE, 0.2), host.run(WAITING, 0.3)
        threads, theirs = (
            host.run(Candidate(num_workers=2, backend="thread", batch_size=4), 0.3),
            host.run(Candidate(loader="torch", num_workers=2, batch_size=4), 0.3),
        )
    for one in (alone, ours, threads, theirs):
        assert one.failure is None, one.said
        assert 20 < one.samples_per_s < 500
        assert one.peak_bytes > 10 << 20
        assert 0 < one.first_batch_s < one.took_s
    assert host.service is not None
    assert host.service.sample_s >= 0.004
    assert host.service.cpu_s < 0.5 * host.service.sample_s
    assert ours.batches_ahead > 0
    assert theirs.threads >= 1


def test_what_run_can_set_for_a_script_is_set_in_torchs_workers(place: Path) -> None:
    with ProbeHost(f"{place}:Told") as host:
        plain = Candidate(loader="torch", num_workers=1, batch_size=1)
        seen = host.run(plain, 0.2)
        assert (seen.failure, seen.said) == (None, "")
        assert seen.faults_per_s > 1000
        kept = host.run(replace(plain, keeps_heap=True, threads=5), 0.2)
        assert (kept.failure, kept.said) == (None, "")
        assert kept.faults_per_s < seen.faults_per_s


def test_what_fails_ends_its_probe_alone(place: Path) -> None:
    expected = {"OnlyAlone": (Failure.ERROR, "not here"), "Dying": (Failure.ERROR, "")}
    for name, (failure, said) in expected.items():
        with ProbeHost(f"{place}:{name}") as host:
            assert host.run(ALONE, 0.2).failure is None
            found = host.run(WAITING, 0.2)
            assert (found.failure, said in found.said) == (failure, True), found
            assert host.run(ALONE, 0.2).failure is None  # it goes on


def test_what_hangs_or_takes_too_much_is_ended(place: Path) -> None:
    with ProbeHost(f"{place}:Hanging", patience_s=1.0) as host:
        found = host.run(WAITING, 0.2)
        assert (found.failure, found.took_s < 10) == (Failure.HUNG, True)
        assert host.run(ALONE, 0.2).failure is None
    with ProbeHost(f"{place}:Growing", memory_bytes=600 << 20) as host:
        found = host.run(WAITING, 5.0)
        assert found.failure is Failure.MEMORY
        assert found.peak_bytes > 600 << 20


def test_a_host_that_is_killed_is_told_at_once(place: Path) -> None:
    with ProbeHost(f"{place}:Waiting") as host:
        threading.Timer(0.5, os.kill, (host.child.pid, signal.SIGKILL)).start()
        with pytest.raises(UnusableInput, match="SIGKILL"):
            host.run(ALONE, 30.0)


def test_a_target_that_cannot_be_had_is_refused(place: Path) -> None:
    with pytest.raises(CannotLoadTarget, match="no 'Nothing'"), ProbeHost(f"{place}:Nothing"):
        pass
    with pytest.raises(UnusableInput, match="it raised") as caught:
        tune(TuneSettings(target=f"{place}:Broken", seconds=3))
    assert "no sample is left" in str(caught.value)


def test_a_short_data_set_is_gone_through_again_and_one_batch_is_too_few(place: Path) -> None:
    with ProbeHost(f"{place}:few") as host:
        assert host.subject.batch_size == 4
        assert host.run(ALONE, 0.2).failure is None
        found = host.run(Candidate(num_workers=0, batch_size=8), 0.2)
        assert found.failure is Failure.ERROR
        assert "1 batch in a pass" in found.said


@pytest.mark.parametrize(("name", "has"), [("none", "0 samples"), ("fifteen", "15 samples")])
def test_from_less_than_two_batches_nothing_is_advised(place: Path, name: str, has: str) -> None:
    with pytest.raises(UnusableInput, match=f"it has {has}, fewer than two batches"):
        tune(TuneSettings(target=f"{place}:{name}", seconds=3))


def test_samples_that_hang_do_not_outlast_the_time(place: Path) -> None:
    began = time.monotonic()
    with pytest.raises(UnusableInput, match="hung"):
        tune(TuneSettings(target=f"{place}:Stuck", seconds=3))
    assert time.monotonic() - began < 18


def test_a_whole_search_beats_one_worker(place: Path) -> None:
    report = tune(TuneSettings(target=f"{place}:loader", seconds=25, most_workers=8, backends=("process",)))
    chosen = report.answer.candidate
    assert chosen is not None
    assert chosen.num_workers >= 2  # 4 ms of sleep each
    assert report.answer.gain is not None
    assert report.answer.is_better
    assert report.subject.baseline == Candidate(loader="torch", num_workers=1, batch_size=4)
    ours = f"DataLoader(dataset, batch_size=4, num_workers={chosen.num_workers}"
    assert report.arguments()["headrace.DataLoader"].startswith(ours)
    assert "prefetch_factor=" in report.arguments()["torch.utils.data.DataLoader"]
    said = [text.en for text in report.reasons()]
    assert "times what is there now" in said[0]
    assert all(text.zh for text in report.reasons())


def test_what_does_not_fit_is_not_tried_and_the_rest_is_bounded(place: Path) -> None:
    settings = TuneSettings(target=f"{place}:Waiting", seconds=15, memory_bytes=400 << 20, step_s=0.02)
    report = tune(settings)
    chosen = report.answer.candidate
    assert chosen is not None
    assert all(one.failure is None for one in report.results)
    assert max(one.peak_bytes for one in report.results) < 400 << 20
    if chosen.num_workers:
        assert chosen.memory_bytes is not None
        assert report.profile_settings()["memory"] == f"{chosen.memory_bytes >> 20}MiB"
    with pytest.raises(UnusableInput, match="more memory than allowed"):
        tune(replace(settings, memory_bytes=20 << 20))


def test_an_iterable_is_warned_of(place: Path) -> None:
    report = tune(TuneSettings(target=f"{place}:Stream", seconds=5, most_workers=2, step_s=0.006))
    assert report.answer.meets_demand is not None
    if report.answer.candidate is not None and report.answer.candidate.num_workers > 1:
        assert any("get_worker_info" in text.en for text in report.reasons())


def test_a_sweep_measures_just_what_was_asked_for(place: Path) -> None:
    report = tune(TuneSettings(target=f"{place}:Waiting", seconds=4, sweep=(0, 1, 2), loader="torch"))
    tried = {one.candidate for one in report.results}
    assert tried == {Candidate(loader="torch", num_workers=count, batch_size=8) for count in (0, 1, 2)}
