"""The process under test: runs a loader through rounds of faults, and tells what came out of it.

It is started by the referee, with its settings on stdin and a pipe for what it has to tell, one JSON line an event.
Whatever happens to it is a result: the referee watches it, dumps its stacks and ends it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import logging
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import torch
import torch.utils.data as torch_data
from torch.utils.data import default_collate

from headrace.errors import CannotLoadTarget, HeadraceError
from headrace.loader import DataLoader
from headrace.model import describe_error
from headrace.signals.system import read_text, walk_tree

from .fault_acts import few_fds, full_shm, get_small_shm
from .fault_plan import OF_THE_MACHINE, ChaosSettings, Fault, FaultKind, Subject, plan_round
from .faulty_dataset import FaultLog, MarkedCollation, take_apart, wrap

_log = logging.getLogger(__name__)

_TIGHT_FOR_BATCHES = 6
# helpers of multiprocessing that live as long as the interpreter, started by whoever needs them first
_STAYING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_STAYING_FDS = 4  # and their pipes
# a training step: an epoch of quick samples would else be over before anything from outside can strike
_STEPS_S, _LONGEST_STEP_S = 2.0, 0.02


class Voice:
    """Tells the referee what happens."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def say(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, **facts}).encode() + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]


class Target:
    """What the user named: a data set, a function that makes one, or a loader whose settings are taken over."""

    def __init__(self, settings: ChaosSettings) -> None:
        found = load_target(settings.target)
        if isinstance(found, type) or (callable(found) and not hasattr(found, "__getitem__")):
            try:
                found = found()
            except Exception as error:
                raise CannotLoadTarget(f"calling {settings.target} failed: {describe_error(error)}") from error
        loader = found if isinstance(found, torch_data.DataLoader) else None
        self.dataset: Any = loader.dataset if loader is not None else found
        if not hasattr(self.dataset, "__getitem__") or not hasattr(self.dataset, "__len__"):
            raise CannotLoadTarget(
                f"{settings.target} is a {type(self.dataset).__name__}, without a length or without an index",
                next_step="give it a map-style data set; the samples of an IterableDataset cannot be given out again",
            )
        collate = loader.collate_fn if loader is not None else default_collate
        self.is_default = collate is default_collate
        self.collate = None if self.is_default else collate
        self.batch_size = settings.batch_size or (loader.batch_size if loader is not None else None) or 8
        own_workers = loader.num_workers if loader is not None else 0
        self.num_workers = settings.num_workers or own_workers or 4
        self.init_fn = loader.worker_init_fn if loader is not None else None
        context = loader.multiprocessing_context if loader is not None else None
        self.start_method = settings.start_method or (context.get_start_method() if context is not None else None)
        self.num_samples = len(cast("Any", self.dataset))
        if self.num_samples < 2 * self.batch_size:
            raise CannotLoadTarget(
                f"{settings.target} has {self.num_samples} samples, fewer than two batches of {self.batch_size}",
                next_step="a smaller --batch-size",
            )


def load_target(text: str) -> Any:
    """Return the object that `module:attribute` or `file.py:attribute` names; raise `CannotLoadTarget` that says why.

    Its folder (for a module: the current one) joins `sys.path`, so that workers which start anew find it as well.
    """
    place, separator, attribute = text.rpartition(":")
    if not separator or not place or not attribute:
        raise CannotLoadTarget(
            f"{text!r} names no data set", next_step="write it as module:attribute or path/to/file.py:attribute"
        )
    path = Path(place) if place.endswith(".py") else None
    if path is not None and not path.is_file():
        raise CannotLoadTarget(f"there is no file {place!r}", current_folder=Path.cwd())
    sys.path.insert(0, str(Path.cwd() if path is None else path.resolve().parent))
    name = place if path is None else path.stem
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise CannotLoadTarget(f"importing {name!r} failed: {describe_error(error)}", python=sys.executable) from error
    if path is not None and Path(module.__file__ or "").resolve() != path.resolve():
        raise CannotLoadTarget(
            f"{path.name} has the name of another module, {name}", next_step="give the file a name of its own"
        )
    value = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [n for n in vars(module) if not n.startswith("_")]
            raise CannotLoadTarget(f"{place} has no {attribute!r}", it_has=", ".join(public[:12]) or "nothing public")
        value = getattr(value, part)
    return value


def main() -> int:
    """Read the settings, find the target, and run rounds until the referee says that it is enough."""
    start = json.loads(sys.stdin.readline())
    settings, voice = ChaosSettings(**start["settings"]), Voice(start["fd"])
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are what is wanted, not their images
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    torch.set_num_threads(1)
    try:
        target = Target(settings)
    except HeadraceError as error:
        voice.say(
            "refused",
            what=error.what,
            next_step=error.next_step,
            evidence={k: str(v) for k, v in error.evidence.items()},
        )
        return 0
    skipped = {}
    if FaultKind.SHM_FULL in settings.kinds and (reason := get_small_shm()) is not None:
        skipped[FaultKind.SHM_FULL.value] = reason
    subject = Subject(
        num_samples=target.num_samples,
        batch_size=target.batch_size,
        num_workers=target.num_workers,
        is_default=target.is_default,
        start_method=target.start_method or torch.multiprocessing.get_start_method(),
        dataset=type(target.dataset).__name__,
        skipped=skipped,
    )
    voice.say("ready", subject=vars(subject))
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        for order in iter(sys.stdin.readline, ""):
            number, most = json.loads(order)
            log = FaultLog(f"{folder}/{number}")
            positions, faults = plan_round(settings, subject, number, most)
            _run_round(settings, target, positions, faults, log, voice)
    return 0


def _run_round(
    settings: ChaosSettings,
    target: Target,
    order: list[int],
    faults: list[Fault],
    log: FaultLog,
    voice: Voice,
) -> None:
    """One epoch under faults. All that came out goes to the referee, which judges it."""
    before = ProcessHoldings.now()
    delivered: list[int] = []
    wrong: list[int] = []
    sizes: list[int] = []
    waits: list[tuple[float, float]] = []
    error = ""
    step_s = min(_LONGEST_STEP_S, _STEPS_S / len(order))
    dataset = wrap(target.dataset, faults, log, slow_s=settings.slow_s, is_default=target.is_default)
    extra: dict[str, Any] = {}
    if target.collate is not None:
        extra["collate_fn"] = MarkedCollation(target.collate, faults, log, slow_s=settings.slow_s)
    loader: Any = DataLoader(
        dataset,  # type: ignore[arg-type]  # a data set by its methods
        target.batch_size,
        sampler=order,
        num_workers=target.num_workers,
        timeout=settings.timeout_s,
        worker_init_fn=target.init_fn,
        multiprocessing_context=target.start_method,
        backend=settings.backend,
        on_error="quarantine",
        max_bad=len(order),
        **extra,
    )
    with contextlib.ExitStack() as tight:
        try:
            batches = iter(loader)
            for batch_number in count():
                started = time.monotonic()
                batch = next(batches, None)
                if batch is None:
                    break
                waits.append((started, time.monotonic()))
                indices, bad = take_apart(batch, is_default=target.is_default)
                delivered += indices
                wrong += bad
                sizes.append(len(indices))
                pids = sorted({worker.pid for worker in loader.stats().workers if worker.pid > 0})
                voice.say("batch", number=batch_number, pids=pids)
                _make_tight(faults, batch_number, pids, log, tight)
                del batch
                time.sleep(step_s)
        except Exception as failure:
            error = str(describe_error(failure))
            _log.exception("the loader raised")
            failure.__traceback__ = None
    batches = None
    quarantine = [
        {"index": f.key, "kind": f.kind.value, "exception": f.exception, "message": f.message[:300]}
        for f in loader.quarantine
    ]
    facts = {
        "delivered": delivered,
        "sizes": sizes,
        "wrong": wrong,
        "waits": waits,
        "quarantine": quarantine,
        "strikes": log.strikes(),
        "error": error,
    }
    del loader, dataset
    log.close()
    voice.say("end", facts={**facts, "left": before.left_since()})


def _make_tight(
    faults: Iterable[Fault], batch: int, pids: list[int], log: FaultLog, tight: contextlib.ExitStack
) -> None:
    """Fill /dev/shm or lower the limit of open files when it is time, and undo it some batches later."""
    if batch % _TIGHT_FOR_BATCHES == 0:
        tight.close()
    for fault in faults:
        if fault.batch == batch and fault.kind in OF_THE_MACHINE:
            log.add(fault.number)
            tight.enter_context(full_shm() if fault.kind is FaultKind.SHM_FULL else few_fds(pids))


# ---------------------------------------------------------------------------------------------- what it gives back


@dataclass(frozen=True)
class ProcessHoldings:
    """What this process has at one moment."""

    children: frozenset[int]
    shm: frozenset[str]
    fds: int

    @classmethod
    def now(cls) -> ProcessHoldings:
        return cls(_children(), _shm(), len(os.listdir("/proc/self/fd")))

    def left_since(self, *, patience_s: float = 5.0) -> list[str]:
        """Return what is there now and was not then, once it had some time to go, in words."""
        deadline = time.monotonic() + patience_s
        while True:
            gc.collect()
            left = self._left(ProcessHoldings.now())
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def _left(self, now: ProcessHoldings) -> list[str]:
        left = [f"process {pid}" for pid in sorted(now.children - self.children)]
        left += [f"/dev/shm/{name}" for name in sorted(now.shm - self.shm)]
        if now.fds > self.fds + _STAYING_FDS:
            left.append(f"{now.fds - self.fds} open files more than before")
        return left


def _children() -> frozenset[int]:
    children = {one.pid for one in walk_tree([os.getpid()]) if not one.has_ended} - {os.getpid()}
    commands = {pid: read_text(f"/proc/{pid}/cmdline") for pid in children}
    return frozenset(pid for pid, command in commands.items() if not any(name in command for name in _STAYING))


def _shm() -> frozenset[str]:
    """Entries of /dev/shm that may be ours: of this user, and not named after another process that lives."""
    entries = set()
    for path in Path("/dev/shm").glob("*"):
        owner = ""  # torch's segments, and what fills /dev/shm for another run of chaos, bear a process's number
        if path.name.startswith(("torch_", "headrace-chaos-")):
            owner = path.name.replace("headrace-chaos-", "chaos_").split("_")[1]
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid == os.geteuid() and not (owner.isdigit() and _is_others(int(owner))):
                entries.add(path.name)
    return frozenset(entries)


def _is_others(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid) != os.getsid(0)
    return False


if __name__ == "__main__":
    sys.exit(main())
