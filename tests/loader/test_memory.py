"""Memory gets short while a loader runs, or a worker's heap grows without end: what the loader does, and says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader
from headrace.forensics import PressureLimits
from headrace.signals.system import memory_groups

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

DATA = Path(__file__).parents[1] / "data" / "guard"
MIB = 1 << 20
DEADLINE_S = 90.0


class Numbers(Dataset[Any]):
    """Tensors made from the index; more of them than any test takes."""

    def __len__(self) -> int:
        return 1 << 22

    def __getitem__(self, index: int) -> Any:
        return torch.full((64,), index)


class Leaking(Dataset[Any]):
    """Keeps a part of a MiB at each sample, in the process that fetches it."""

    kept: ClassVar[list[bytearray]] = []
    each_bytes = 512 << 10

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        time.sleep(0.002)
        self.kept.append(bytearray(b"x" * self.each_bytes))
        return index


def take_until(iterator: Iterator[Any], is_so: Callable[[], bool]) -> int:
    """Take batches until something is so; returns how many."""
    deadline, taken = time.monotonic() + DEADLINE_S, 0
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        next(iterator)
        taken += 1
        time.sleep(0.002)  # a loop that has a step to do, so that batches can be ahead of it
    return taken


def messages(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of recorded kernel files that the guard reads instead of the machine's, with short waits."""
    root = tmp_path / "recorded"
    shutil.copytree(DATA / "real-v2-before", root)
    monkeypatch.setattr("headrace.engine.guard.guard._ROOT", root)
    # a test moves in steps, and a step looks as if the group were full at once
    limits = PressureLimits(calm_s=0.5, tight_filling_s=0.0, critical_filling_s=0.0)
    monkeypatch.setattr("headrace.engine.guard.guard._PRESSURE_LIMITS", limits)
    monkeypatch.setattr("headrace.engine.guard.guard._STEP_EVERY_S", 0.05)
    return root


def job_of(root: Path) -> Path:
    (folder,) = (path.parent for path in root.rglob("memory.max") if path.read_text().strip() != "max")
    return folder


def fill(root: Path, share: float) -> None:
    """Let the group that has a limit hold this share of it, none of it cache."""
    folder = job_of(root)
    limit = int((folder / "memory.max").read_text())
    for name, text in (
        ("memory.stat", "anon 1\ninactive_file 0\nactive_file 0\n"),
        ("memory.current", f"{int(limit * share)}\n"),
        ("memory.high", "max\n"),
    ):
        new = folder / f".{name}"
        new.write_text(text)
        new.replace(folder / name)  # the guard reads it whole, the old or the new


def test_under_pressure_fewer_batches_then_fewer_workers_and_all_are_back_later(
    recorded: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(recorded, 0.3)
    loader = DataLoader(Numbers(), 8, num_workers=3, prefetch_factor=4)
    iterator = iter(loader)
    take_until(iterator, lambda: loader.stats().batches_in_flight >= 10)
    assert loader.stats().num_workers == 3
    fill(recorded, 0.93)  # a tenth of the limit is not left
    take_until(iterator, lambda: loader.stats().batches_in_flight <= 2)
    assert "memory gets short: cgroup v2" in messages(caplog)
    assert loader.stats().num_workers == 3  # fewer batches come before fewer workers
    fill(recorded, 0.985)
    take_until(iterator, lambda: loader.stats().num_workers == 1 and loader.stats().batches_in_flight <= 1)
    assert "memory is very short: cgroup v2" in messages(caplog)
    assert "a worker is sent home, 1 worker now" in messages(caplog)
    before = len(caplog.records)
    fill(recorded, 0.3)
    take_until(iterator, lambda: loader.stats().num_workers == 3 and loader.stats().batches_in_flight >= 10)
    later = "\n".join(record.getMessage() for record in caplog.records[before:])
    assert "memory is no longer short" in later
    assert later.count("a worker is back") == 2


def test_a_loop_under_pressure_loses_and_repeats_nothing(recorded: Path) -> None:
    fill(recorded, 0.99)
    loader = DataLoader(Numbers(), 8, num_workers=3, sampler=range(4000))
    got = []
    for number, batch in enumerate(loader):
        got += batch[:, 0].tolist()
        if number % 100 == 50:
            fill(recorded, 0.3 if number % 200 == 50 else 0.99)
    assert got == list(range(4000))


class Large(Dataset[Any]):
    """Samples of 4 MiB."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.full((1 << 20,), float(index))


@pytest.mark.parametrize("collate", [None, torch.stack], ids=["slots", "general"])
def test_large_samples_stay_within_the_budget(collate: Any) -> None:
    """Batches of 32 MiB, a budget for three, and many asked for: what was taken beyond it is soon given back."""
    budget = 100 * MIB
    loader = DataLoader(Large(1200), 8, num_workers=4, memory=budget, prefetch_factor=2, collate_fn=collate)
    iterator = iter(loader)
    for number in range(10):
        assert next(iterator)[:, 0].tolist() == list(range(8 * number, 8 * number + 8))
    # beside slots and blocks there is the board, and blocks are rounded up
    limit = budget * 1.3 + 3 * MIB if collate else budget + 3 * MIB
    take_until(iterator, lambda: loader.stats().slots.touched_bytes <= limit)
    for _ in range(10):
        next(iterator)
        assert loader.stats().slots.touched_bytes <= limit
    slots = loader.stats().slots
    if collate is None:  # with the 4 MiB that each worker has in hand
        assert slots.total * slots.slot_bytes + 4 * 4 * MIB <= budget


def test_a_budget_without_room_for_the_samples_in_hand_says_so(caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(Large(64), 8, num_workers=4, memory=36 * MIB)
    got = [int(number) for batch in loader for number in batch[:, 0]]
    assert got == list(range(64))
    (said,) = [record.getMessage() for record in caplog.records if "in hand" in record.getMessage()]
    assert "memory=36.0 MiB holds 1 x 32.0 MiB of batches, but not the 16.0 MiB of samples" in said
    assert "memory=48.0 MiB" in said


# A training in a group of its own: it fills the group up to the limit, and lets go again. One line of JSON each time
# that it has seen what it waited for.
_IN_A_GROUP = """
import json, logging, os, pathlib, sys, time
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
import headrace.engine.guard.guard as guard
from headrace import DataLoader
from headrace.forensics import PressureLimits
from headrace.signals.system import memory_groups, read_limits
from tests.loader.test_memory import Numbers, take_until
guard._PRESSURE_LIMITS = PressureLimits(calm_s=0.5)
guard._STEP_EVERY_S = 0.05
said = []
class Keep(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("headrace").addHandler(Keep())
(limit,) = [m for m in read_limits(memory_groups()) if str(m.group.folder) == sys.argv[1]]
def room():
    (now,) = [m for m in read_limits(memory_groups()) if m.group == limit.group]
    return now.limit_bytes - now.hard_bytes
loader = DataLoader(Numbers(), 8, num_workers=3, prefetch_factor=4)
iterator = iter(loader)
take_until(iterator, lambda: loader.stats().batches_in_flight >= 10)
ballast = []
while room() > 0.035 * limit.limit_bytes:
    ballast.append(bytearray(b"x" * (2 << 20)))
take_until(iterator, lambda: loader.stats().num_workers == 1 and loader.stats().batches_in_flight <= 1)
held = len(ballast)
ballast.clear()
take_until(iterator, lambda: loader.stats().num_workers == 3 and loader.stats().batches_in_flight >= 10)
print(json.dumps([held, loader.stats().workers_lost, said]))
"""


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group with a limit, v1 or v2; removed at the end."""
    groups = memory_groups()
    top = groups[-1].folder if groups else Path("/sys/fs/cgroup")
    if groups and groups[0].version == 2:
        top = Path("/sys/fs/cgroup")  # in v2 a group with processes has no groups below it, but for the root
    folder = top / f"headrace-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs a memory control group that can be written")
    try:
        names = [name for name in ("memory.limit_in_bytes", "memory.max") if (folder / name).exists()]
        if not names:
            pytest.skip("there is no memory accounting in a new group here")
        (folder / names[0]).write_text(str(limit_bytes))
        yield folder
    finally:
        deadline = time.monotonic() + 60
        while folder.exists():
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):  # until the kernel has taken the last process out of it
                folder.rmdir()
            assert time.monotonic() < deadline, f"{folder} cannot be removed"
            time.sleep(0.02)


def run_in(folder: Path, program: str) -> Any:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=115,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.root
def test_in_a_real_group_that_fills_up_and_empties() -> None:
    with memory_group(1200 * MIB) as folder:
        held, lost, said = run_in(folder, _IN_A_GROUP)
    assert held > 50  # of 2 MiB: the group was filled by the training itself
    assert lost == 0  # nobody had to be killed
    text = "\n".join(said)
    assert "memory is very short: cgroup v" in text
    assert "left below the limit" in text
    assert "a worker is sent home, 1 worker now" in text
    assert "a worker is back, 3 workers now" in text


def test_a_heap_that_grows_epoch_after_epoch_is_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a worker keeps by mistake is the kernel's again when it is started anew, between two chunks."""
    monkeypatch.setattr("headrace.engine.guard.guard._HOLDINGS_EVERY_S", 0.05)
    monkeypatch.setattr("headrace.engine.guard.guard._WARM_UP_S", 0.0)
    monkeypatch.setattr("headrace.engine.guard.guard._RECYCLE_BYTES", 96 * MIB)
    loader = DataLoader(Leaking(40), 4, num_workers=1, persistent_workers=True)
    pids: set[int] = set()
    leaked = most = 0
    deadline = time.monotonic() + DEADLINE_S
    while len(pids) < 4:
        assert time.monotonic() < deadline, f"it was started anew only {len(pids) - 1} times"
        assert [index for batch in loader for index in batch.tolist()] == list(range(40))
        leaked += 40 * Leaking.each_bytes
        (worker,) = loader.stats().workers
        pids.add(worker.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            most = max(most, psutil.Process(worker.pid).memory_full_info().uss)
    assert loader.stats().workers_lost == 0
    assert most < leaked - 2 * 64 * MIB  # each new start gave back at least what was seen to grow
    assert "keeps growing: heap by" in messages(caplog)
    assert "it is started anew between chunks" in messages(caplog)
    del loader


class DiesInTheGroup(Dataset[Any]):
    """At one sample, its group has counted a kill, and its process is gone by SIGKILL: as the kernel does it."""

    def __init__(self, tree: Path, after: Path) -> None:
        self.tree, self.after = tree, after

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        mark = self.tree / "killed"
        if index == 21 and not mark.exists():
            mark.touch()
            shutil.copytree(self.after, self.tree, dirs_exist_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_a_kill_in_a_v2_group_is_told_from_its_files(recorded: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files of a real tree, before and after a real kill, through the loader's guard to its sentence."""
    loader = DataLoader(DiesInTheGroup(recorded, DATA / "real-v2-after"), 4, num_workers=2)
    assert [index for batch in loader for index in batch.tolist()] == list(range(64))
    (said,) = [record.getMessage() for record in caplog.records if "it was replaced" in record.getMessage()]
    assert "was killed by the kernel for memory (cgroup v2 limit 256 MiB" in said
    assert "while working on sample 21" in said
    assert "memory kills: 0 → 1" in said
