"""The faults of `survives_faults.py`: what each does to a training, and how a loader is run through it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.doctor.chaos.faulty_dataset import strike
from headrace.doctor.chaos.subject import full_shm, get_small_shm
from headrace.model import FaultKind

NUM_SAMPLES, BATCH_SIZE, WORKERS, VICTIM = 400, 8, 4, 137
SAMPLE_BYTES = 40_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault: what happens, in words, and how."""

    name: str
    title: str
    kind: FaultKind | None = None  # what fetching the victim does
    always: bool = False
    timeout_s: float = 0.0
    outside: int = 0  # a signal that a worker gets from outside after the third batch
    in_small_shm: bool = False
    deadline_s: float = 30.0  # a loader that is not done by then hangs
    num_fds: int = 0  # limit of open files; the loop keeps its batches


CASES = (
    Case(name="kill_outside", title="a worker is killed from outside (SIGKILL)", outside=signal.SIGKILL),
    Case(name="kill", title="a sample kills its worker, once (SIGKILL)", kind=FaultKind.KILL),
    Case(name="segv", title="a crash in native code, once (SIGSEGV)", kind=FaultKind.SEGV),
    Case(name="bus", title="a mapped file was truncated, once (SIGBUS)", kind=FaultKind.BUS),
    Case(name="exit", title="a library calls `exit`, once", kind=FaultKind.EXIT),
    Case(name="abort", title="a library aborts, once (SIGABRT)", kind=FaultKind.ABORT),
    Case(name="segv_always", title="a sample that crashes each time", kind=FaultKind.SEGV, always=True),
    Case(name="exception", title="a sample that raises each time", kind=FaultKind.EXCEPTION, always=True),
    Case(name="eio", title="an input/output error that passes", kind=FaultKind.EXCEPTION),
    Case(
        name="hang", title="a sample that hangs each time, `timeout=3`", kind=FaultKind.HANG, always=True, timeout_s=3
    ),
    Case(name="hang_once", title="a sample that hangs once, `timeout=3`", kind=FaultKind.HANG, timeout_s=3),
    Case(name="hang_no_timeout", title="a sample that hangs once, no `timeout=`", kind=FaultKind.HANG, deadline_s=90),
    Case(name="stop", title="a worker is stopped (SIGSTOP), `timeout=3`", outside=signal.SIGSTOP, timeout_s=3),
    Case(name="slow", title="a sample takes a second", kind=FaultKind.SLOW),
    Case(name="hog", title="a sample takes 256 MiB for a moment", kind=FaultKind.HOG),
    Case(name="shm_full", title="`/dev/shm` is full", in_small_shm=True),
    Case(name="fd_limit", title="64 open files, the loop keeps its batches", num_fds=64),
)


class Samples:
    """Arrays that hold their index; the victim does what the case says."""

    def __init__(self, case: Case, folder: str) -> None:
        self._case, self._folder = case, folder

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        case = self._case
        if index == VICTIM and case.kind is not None and self._is_due():
            strike(case.kind, index=index, always=case.always, slow_s=1.0)
        time.sleep(0.002)
        return np.full(SAMPLE_BYTES // 8, index, np.int64)

    def _is_due(self) -> bool:
        with contextlib.suppress(FileExistsError):
            Path(self._folder, "struck").touch(exist_ok=False)
            return True
        return self._case.always


def make_loader(name: str, case: Case, folder: str) -> Any:
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "num_workers": WORKERS, "timeout": case.timeout_s}
    if name == "torch":
        from torch.utils.data import DataLoader

        return DataLoader(Samples(case, folder), **options)  # type: ignore[arg-type]
    import headrace

    return headrace.DataLoader(Samples(case, folder), on_error="quarantine", **options)  # type: ignore[arg-type]


def run_case(name: str, case: Case, out: Path) -> None:
    """Run one epoch in this process, and write down how it went after each batch: the last line is what is known."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack, out.open("a") as file:
        if case.in_small_shm:
            if (reason := get_small_shm()) is not None:
                _write(file, skipped=reason)
                return
            stack.enter_context(full_shm())
        if case.num_fds:
            resource.setrlimit(resource.RLIMIT_NOFILE, (case.num_fds, case.num_fds))
        loader = make_loader(name, case, folder)
        delivered: list[int] = []
        kept, waits = [], []
        try:
            batches = iter(loader)
            while True:
                started = time.perf_counter()
                batch = next(batches, None)
                if batch is None:
                    break
                waits.append(time.perf_counter() - started)
                delivered += batch[:, 0].tolist()
                if case.num_fds:
                    kept.append(batch)
                if case.outside and len(waits) == 3:
                    os.kill(_a_worker(name, loader, batches), case.outside)
        except Exception as error:
            _write(file, error=f"{type(error).__name__}: {error}", delivered=len(delivered))
            os._exit(0)  # what torch's loader does at exit is not the question here
        named = [failure.key for failure in getattr(loader, "quarantine", ())]
        good = [index for index in range(NUM_SAMPLES) if index not in named]
        is_right = delivered == good + good[: NUM_SAMPLES - len(good)]
        _write(file, delivered=len(delivered), is_right=is_right, named=named, worst_wait_s=max(waits[1:]))


def _a_worker(name: str, loader: Any, batches: Any) -> int:
    if name == "torch":
        return int(batches._workers[0].pid)
    return int(loader.stats().workers[0].pid)


def _write(file: Any, **facts: Any) -> None:
    file.write(json.dumps(facts) + "\n")
    file.flush()


def find_case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)
