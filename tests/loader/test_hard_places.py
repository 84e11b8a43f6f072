"""Where machines are hard on a training: full disks, hidden processes, no home, green threads, clocks that jump."""

from __future__ import annotations

import contextlib
import errno
import logging
import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader
from headrace.errors import NotSupported

from ..hard_places import become_nobody, in_hard_place

BAD = 77
GOOD = [index for index in range(200) if index != BAD]
WAYS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2, "backend": "process"},
    {"num_workers": 2, "backend": "thread"},
]
IDS = ["in-process", "process", "thread"]


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> int:
        time.sleep(0.001)  # so that much is left to do when a worker is killed
        if index == BAD:
            raise ValueError("bad" * 2000)
        return index


def an_epoch(
    way: dict[str, Any], *, kills: bool = False, first: Callable[[], object] = int, **options: Any
) -> tuple[list[int], int, int, str]:
    """All samples in order, how many are in quarantine, how many workers were lost, and what was said."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("headrace").addHandler(handler)
    try:
        loader = DataLoader(Numbers(), 8, on_error="quarantine", **way, **options)
        first()
        got: list[int] = []
        for number, batch in enumerate(loader):
            got += batch.tolist()
            if number == 1 and kills:
                os.kill(loader.stats().workers[0].pid, signal.SIGKILL)
        return got, len(loader.quarantine), loader.stats().workers_lost, "\n".join(said)
    finally:
        logging.getLogger("headrace").removeHandler(handler)


# ------------------------------------------------------------------------------------------- disks


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_a_quarantine_on_a_full_disk_ends_no_training(way: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    got, quarantined, _, said = in_hard_place(lambda: an_epoch(way, quarantine_file=path), full=tmp_path)
    assert (got, quarantined) == ([*GOOD, 0], 1)
    assert f"{path} cannot be written (No space left on device): make room" in said
    assert f"It is in loader.quarantine and here alone: sample {BAD}: ValueError" in said
    assert f"left out: sample {BAD}" in said


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_a_quarantine_whose_folder_goes_ends_no_training(way: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "runs" / "bad.jsonl"
    path.parent.mkdir()
    got, quarantined, _, said = an_epoch(way, first=path.parent.rmdir, quarantine_file=path)
    assert (got, quarantined) == ([*GOOD, 0], 1)
    assert f"{path} cannot be written (No such file or directory): `mkdir -p {path.parent}`" in said
    assert "make room" not in said
    assert f"It is in loader.quarantine and here alone: sample {BAD}: ValueError" in said


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS[1:], ids=IDS[1:])
def test_no_home_and_no_temporary_folder(way: dict[str, Any], tmp_path: Path) -> None:
    def act() -> Any:
        del os.environ["HOME"]
        os.chdir("/proc")
        tempfile.tempdir = None
        with pytest.raises(FileNotFoundError):
            tempfile.gettempdir()
        return an_epoch(way, kills=True)

    got, quarantined, lost, _ = in_hard_place(act, read_only=(Path("/tmp"), Path("/var/tmp")))
    assert (got, quarantined, lost) == ([*GOOD, 0], 1, 1)


# ------------------------------------------------------------------------------------------- processes


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS[1:], ids=IDS[1:])
def test_where_proc_hides_other_users_processes(way: dict[str, Any]) -> None:
    def act() -> Any:
        an_epoch(way, kills=True)
        become_nobody()
        return an_epoch(way, kills=True)

    got, quarantined, lost, said = in_hard_place(act, hides_pids=True)
    assert (got, quarantined, lost) == ([*GOOD, 0], 1, 1)
    assert "somebody sent SIGKILL" in said


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS[1:], ids=IDS[1:])
def test_where_there_is_no_proc_and_an_old_kernel(way: dict[str, Any]) -> None:
    """Workers ask in another way whether their training is there: no file descriptor of it can be had."""

    def act() -> Any:
        del os.pidfd_open
        return an_epoch(way)[:3]

    assert in_hard_place(act, has_proc=False) == ([*GOOD, 0], 1, 0)


@pytest.mark.root
def test_where_no_more_processes_may_be_started() -> None:
    """A control group of a pod: `pids.max`."""
    tops = [top for top in map(Path, ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")) if (top / "cgroup.procs").exists()]
    group = tops[0] / f"headrace-pids-{os.getpid()}" if tops else Path("/nowhere/at/all")
    with contextlib.suppress(OSError):
        group.mkdir()
    if not (group / "pids.max").exists():
        pytest.skip("needs a control group that limits processes")

    def act() -> tuple[str, str]:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        (group / "pids.max").write_text("1")
        with pytest.raises(NotSupported) as caught:
            an_epoch({"num_workers": 2})
        (group / "pids.max").write_text("max")
        return caught.value.what, caught.value.next_step, (group / "cgroup.procs").read_text().split()

    try:
        what, next_step, left = in_hard_place(act)
    finally:
        group.rmdir()
    assert "no process could be started" in what
    assert "num_workers=" in next_step
    assert "pids.max" in next_step
    assert len(left) == 1


@pytest.mark.parametrize(("num_workers", "goes_home"), [(2, 0), (1, 0), (2, 1)])
def test_where_a_lost_worker_cannot_be_replaced(
    num_workers: int, goes_home: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pids.max` is reached in the middle of an epoch: the others go on, but for one that was sent home."""
    loader = DataLoader(Numbers(), 4, num_workers=num_workers, prefetch_factor=1, on_error="quarantine")
    iterator, refused = iter(loader), list[int]()
    got = [*next(iterator)]

    def refuse() -> int:
        refused.append(1)
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    if goes_home:
        loader.resize(num_workers=1)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    if num_workers - goes_home == 1:
        with pytest.raises(NotSupported, match="no process could be started") as caught:
            list(iterator)
        assert "pids.max" in caught.value.next_step
        return
    while not refused:
        got += next(iterator)
    got += next(iterator)
    assert loader.stats().num_workers == 1
    assert [*map(int, got), *(int(number) for batch in iterator for number in batch)] == [*GOOD, 0]


def test_a_fork_server_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/nowhere']")

    monkeypatch.setattr(forkserver, "connect_to_new_process", forkserver.ForkServer().connect_to_new_process)
    monkeypatch.setattr(multiprocessing.util, "get_temp_dir", refuse)
    with pytest.raises(NotSupported, match="temporary folder") as caught:
        iter(DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="forkserver"))
    assert "TMPDIR" in caught.value.next_step
    assert "No usable" in str(caught.value)


class Unreadable(Numbers):
    def __getstate__(self) -> object:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/no/such/index.json")


def test_an_error_of_the_data_set_s_own_is_not_the_fork_server_s() -> None:
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        iter(DataLoader(Unreadable(), 4, num_workers=1, multiprocessing_context="forkserver"))


# ------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_a_clock_of_the_day_that_jumps(way: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = time.time, [0]

    def jumping() -> float:
        calls[0] += 1
        return real() + (-1) ** calls[0] * 3e8

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(time, "time_ns", lambda: int(jumping() * 1e9))
    got, quarantined, lost, _ = an_epoch(way, timeout=20 if way["num_workers"] else 0)
    assert (got, quarantined, lost) == ([*GOOD, 0], 1, 0)


@pytest.mark.root
@pytest.mark.parametrize("monotonic_s", [10**8, -100], ids=["up-for-years", "just-started"])
def test_a_machine_that_is_up_for_years_or_for_no_time(monotonic_s: int) -> None:
    got, quarantined, lost, _ = in_hard_place(
        lambda: an_epoch(WAYS[1], kills=True, timeout=20), monotonic_s=monotonic_s
    )
    assert (got, quarantined, lost) == ([*GOOD, 0], 1, 1)


# ------------------------------------------------------------------------------------------- green threads

GREEN = """
import select
from tests import green_threads
green_threads.patch_all()
from tests.loader.test_hard_places import *
def refused(way):
    try:
        an_epoch(way)
    except NotSupported as error:
        return error.next_step
print(refused(WAYS[2]))
print(an_epoch(WAYS[1], kills=True)[:3] == ([*GOOD, 0], 1, 1))
loader = DataLoader(Numbers(), 8, num_workers=2, on_error="quarantine")
iterator = iter(loader)
next(iterator)
del select.poll  # as eventlet does
print(refused(WAYS[1]))
print(*(worker.pid for worker in loader.stats().workers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_under_green_threads_processes_work_and_end_with_the_training() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GREEN],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])},
        timeout=60,  # its workers hold the pipe too: that it is closed says that they have ended
    )
    in_threads, is_whole, without_poll, pids = done.stdout.splitlines()
    assert "backend='process'" in in_threads
    assert is_whole == "True"
    assert "num_workers=0" in without_poll
    assert len(pids.split()) == 2


# ------------------------------------------------------------------------------------------- threads that draw


class Drawing(Dataset[Any]):
    def __init__(self, generator: np.random.Generator | None = None) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return self.generator.random() if self.generator is not None else (np.random.rand(), torch.rand(()).double())


@pytest.mark.parametrize("make", [Drawing, lambda: Drawing(np.random.default_rng(3))], ids=["global", "own"])
def test_threads_draw_other_numbers_in_each_epoch(make: Callable[[], Any]) -> None:
    loader = DataLoader(make(), 8, num_workers=2, backend="thread", collate_fn=torch.tensor)
    first, second = ({*torch.cat(list(loader)).flatten().tolist()} for _ in range(2))
    assert not first & second
