"""Where torch's loader works, ours does: pickled, under limits on addresses and files, with odd values."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader
from headrace.engine.memory import ArenaPlan
from headrace.errors import NotSupported


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return index


@pytest.mark.parametrize(
    "travel", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(ForkingPickler.dumps(loader))]
)
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"backend": "thread"}])
def test_a_loader_can_be_copied_and_pickled_while_it_runs(travel: Any, options: dict[str, Any]) -> None:
    loader = DataLoader(Numbers(), batch_size=8, num_workers=1, on_error="quarantine", **options)
    next(iter(loader))
    there = travel(loader)
    assert torch.cat(list(there)).tolist() == list(range(40))
    assert there.stats().account.delivered == 40


LIMITED = """
import os, resource, sys
import torch
from headrace import DataLoader

def feed(limit, size):
    resource.setrlimit(getattr(resource, limit), (int(size), int(size)))
    for backend in ("process", "thread"):
        print(sum(int(batch.sum()) for batch in DataLoader(list(range(100)), 10, num_workers=2, backend=backend)))

for case in sys.argv[1:]:  # each in a process of its own, which need not import torch again
    if os.fork() == 0:
        for fd, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(f"{case}.{name}", os.O_CREAT | os.O_WRONLY)
            os.dup2(file, fd)
            os.close(file)
        feed(*case.split("="))
        break
    os.wait()
"""
ROOM = [("RLIMIT_AS", 4 << 30), ("RLIMIT_AS", 1 << 40), ("RLIMIT_FSIZE", 200 << 20)]
DESCRIPTORS = [8, 12, 16]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a loader said what it did under each limit, in files named after it."""
    folder = tmp_path_factory.mktemp("limited")
    cases = [f"{limit}={size}" for limit, size in [*ROOM, *(("RLIMIT_NOFILE", size) for size in DESCRIPTORS)]]
    subprocess.run([sys.executable, "-c", LIMITED, *cases], timeout=100, check=True, cwd=folder)
    return folder


@pytest.mark.parametrize(("limit", "size"), ROOM)
def test_limits_on_addresses_and_files_are_kept_and_told(limit: str, size: int, limited: Path) -> None:
    stdout, stderr = ((limited / f"{limit}={size}.{name}").read_text() for name in ("stdout", "stderr"))
    assert stdout.split() == ["4950"] * 2, stderr
    assert ("leaves no more room" in stderr) == (size < 1 << 40)


CROWDED = """
import gc, mmap, sys
from headrace import DataLoader

class Held:
    def __init__(self, size):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # no pages, and none promised
        self.map, self.me = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ), self

gc.disable()
held = []
for size in (1 << 40, 1 << 34):
    try:
        while True:
            held.append(Held(size))
    except OSError:
        pass
if sys.argv[1] == "garbage":
    held.clear()
else:
    held.pop(0).map.close()
print(sum(int(batch.sum()) for batch in DataLoader(list(range(100)), 10, num_workers=2, memory="1GiB")))
"""


@pytest.mark.parametrize("left", ["room for one", "garbage"])
def test_a_process_that_is_full_of_mappings_still_feeds(left: str) -> None:
    """As one is whose loops ended with errors: until garbage is collected, a traceback may hold each loop's loader."""
    command = [sys.executable, "-c", CROWDED, left]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ})
    assert done.stdout.split() == ["4950"], done.stderr


@pytest.mark.parametrize("size", DESCRIPTORS)
def test_too_few_descriptors_for_workers_are_told_with_what_helps(size: int, limited: Path) -> None:
    stderr = (limited / f"RLIMIT_NOFILE={size}.stderr").read_text()
    assert "NotSupported: the limit on open files leaves no room for the workers' pipes" in stderr
    assert f"  limit: {size}" in stderr
    assert "try: a larger `ulimit -n`, fewer workers, or num_workers=0" in stderr


def test_a_layout_keeps_within_its_room_or_says_that_there_is_none() -> None:
    for room in (200 << 20, 4 << 30, 1 << 40):
        plan = ArenaPlan.for_budget(room // 4, room_bytes=room, num_workers=3)
        assert plan.total <= room
        assert plan.num_regions >= 6
    assert ArenaPlan.for_budget(1 << 30).num_regions == 256
    with pytest.raises(NotSupported, match="too little room"):
        ArenaPlan.for_budget(1 << 20, room_bytes=1 << 20, num_workers=3)


WITHOUT_MEMFD = """
import errno, os
def refuse(*_): raise OSError(errno.ENOSYS, "Function not implemented")
os.memfd_create = refuse
from headrace import DataLoader
before = set(os.listdir("/dev/shm"))
loader = DataLoader(list(range(100)), batch_size=10, num_workers=2, multiprocessing_context="fork")
print(sum(int(batch.sum()) for batch in loader), "/dev/shm" in loader.stats().budget_reason)
print(sorted(set(os.listdir("/dev/shm")) - before))
"""


def test_without_memory_files_batches_lie_in_dev_shm() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMFD], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout.splitlines()[0].split()[0] == "4950", done.stderr
    assert done.stdout.splitlines()[1] == "[]"


class Empty(Numbers):
    def __getitem__(self, index: int) -> Any:
        return np.zeros((0, 3))


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_batches_of_empty_arrays_do_not_wait(backend: str) -> None:
    started = time.perf_counter()
    batches = list(DataLoader(Empty(), batch_size=4, num_workers=2, backend=backend))
    assert [batch.shape for batch in batches] == [(4, 0, 3)] * 10
    assert time.perf_counter() - started < 5  # two seconds a batch when there was no slot for it


def _nested(samples: list[int]) -> Any:
    return torch.nested.nested_tensor([torch.full((i % 5 + 1,), float(i)) for i in samples])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_strided_nested_tensors(num_workers: int) -> None:
    batches = list(DataLoader(Numbers(), batch_size=8, num_workers=num_workers, collate_fn=_nested))
    assert all(batch.is_nested for batch in batches)
    assert [int(t[0]) for batch in batches for t in batch.unbind()] == list(range(40))


class Nested(Numbers):
    def __getitem__(self, index: int) -> Any:
        return _nested([index, 3])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_samples_are_told_apart_from_plain_tensors() -> None:
    for num_workers in (0, 1):  # torch does not stack them, and says so
        with pytest.raises(RuntimeError, match="not currently supported by the default collate_fn"):
            next(iter(DataLoader(Nested(), batch_size=2, num_workers=num_workers)))
    (first, _), *_ = DataLoader(Nested(), batch_size=2, num_workers=1, collate_fn=list)
    assert first.is_nested


class Opaque:
    """Pickle cannot take it; whoever made it has told multiprocessing how."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        raise TypeError("not by pickle")


def _take_apart(opaque: Opaque) -> Any:
    return Opaque, (opaque.number,)


class Opaques(Numbers):
    def __getitem__(self, index: int) -> Opaque:
        return Opaque(index)


@pytest.mark.parametrize("batch_size", [None, 8])
def test_reducers_that_multiprocessing_was_told(batch_size: int | None) -> None:
    ForkingPickler.register(Opaque, _take_apart)
    try:
        loader = DataLoader(
            Opaques(), batch_size=batch_size, num_workers=1, collate_fn=None if batch_size is None else list
        )
        found = [one for batch in loader for one in (batch if batch_size else [batch])]
    finally:
        ForkingPickler._extra_reducers.pop(Opaque)
    assert [one.number for one in found] == list(range(40))
