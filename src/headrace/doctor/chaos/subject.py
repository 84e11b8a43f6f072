"""The process under test: runs a loader through rounds of faults, some of which it does to itself, and tells of them.

It is started by the referee, with its settings on stdin and a pipe for what it has to tell, one JSON line an event.
Whatever happens to it is a result: the referee watches it, dumps its stacks and ends it.
"""

import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

from headrace.errors import CannotLoadTarget, HeadraceError, NotSupported
from headrace.loader import DataLoader, Orders, load_target
from headrace.model import FaultKind, describe_error
from headrace.signals.system import read_text, walk_tree

from ..contents import digest_of
from .fault_plan import OF_THE_MACHINE, ChaosSettings, Fault, Plan, Subject, plan_round
from .faulty_dataset import FaultLog, FaultyDataset, FaultyListDataset, MarkedCollation, take_apart

_log = logging.getLogger(__name__)

_TIGHT_FOR_BATCHES = 6
# helpers of multiprocessing that live as long as the interpreter, started by whoever needs them first
_STAYING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_STAYING_FDS = 4  # and their pipes
# Python loses the descriptors that a call has just returned, a pipe's two perhaps, when a signal handler raises then
_FDS_OF_INTERRUPT = 0.5
# a training step: an epoch of quick samples would else be over before anything from outside can strike
_STEPS_S, _LONGEST_STEP_S = 2.0, 0.02
_HELD_AFTER_FORK = 12  # batches: more than are ahead, so whatever memory a child had freed would be filled meanwhile
_INTERRUPT_S = -5, -2  # powers of ten: from before a batch that is ready has come to far into the start of workers


class UnderTest:
    """What the user named, as a round needs it: a data set, or that of a loader, whose settings are taken over."""

    def __init__(self, settings: ChaosSettings) -> None:
        target = load_target(settings.target)
        loader, self.dataset = target.loader, target.dataset
        if not target.is_indexed:
            raise CannotLoadTarget(
                f"{settings.target} is a {type(self.dataset).__name__}, without a length or without an index",
                next_step="give it a map-style data set; the samples of an IterableDataset cannot be given out again",
            )
        self.collate = target.collate_fn
        self.init_fn = getattr(loader, "worker_init_fn", None)
        num_samples = len(self.dataset)
        batch_size = settings.batch_size or getattr(loader, "batch_size", None) or 8
        if num_samples < 2 * batch_size:
            raise CannotLoadTarget(
                f"{settings.target} has {num_samples} samples, fewer than two batches of {batch_size}",
                next_step="a smaller --batch-size",
            )
        context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing
        why_not = get_small_shm() if FaultKind.SHM_FULL in settings.kinds else None
        self.subject = Subject(
            num_samples=num_samples,
            batch_size=batch_size,
            num_workers=settings.num_workers or getattr(loader, "num_workers", 0) or 4,
            is_default=self.collate is default_collate,
            start_method=settings.start_method or context.get_start_method(),
            dataset=type(self.dataset).__name__,
            skipped={"shm_full": why_not} if why_not is not None else {},
        )


def main() -> int:
    """Read the settings, find the target, and run rounds until the referee says that it is enough."""
    orders = Orders()
    settings, say = ChaosSettings(**orders.start["settings"]), orders.say
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are what is wanted, not their images
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    torch.set_num_threads(1)
    try:
        target = UnderTest(settings)
    except HeadraceError as error:
        orders.refuse(error)
        return 0
    say("ready", subject=vars(target.subject))
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        for number, most in orders:
            log = FaultLog(f"{folder}/{number}")
            before = _holdings()
            plan = plan_round(settings, target.subject, number, most)
            facts = _run_round(settings, target, plan, log, say)
            log.close()
            num_interrupts = sum(plan[1][fault].kind is FaultKind.INTERRUPT for fault, _ in facts["strikes"])
            say("end", facts={**facts, "left": _left_since(before, num_interrupts=num_interrupts)})
    return 0


def _run_round(
    settings: ChaosSettings, target: UnderTest, plan: Plan, log: FaultLog, say: Callable[..., None]
) -> dict[str, Any]:
    """One epoch under faults: all that came out of it, which the referee judges."""
    order, faults = plan
    facts: dict[str, Any] = {"delivered": [], "sizes": [], "wrong": [], "waits": [], "error": ""}
    subject = target.subject
    step_s = min(_LONGEST_STEP_S, _STEPS_S / len(order))
    kind = FaultyListDataset if hasattr(target.dataset, "__getitems__") else FaultyDataset
    dataset = kind(target.dataset, faults, log, slow_s=settings.slow_s, is_default=subject.is_default)
    extra: dict[str, Any] = {}
    if not subject.is_default:
        extra["collate_fn"] = MarkedCollation(target.collate, faults, log, slow_s=settings.slow_s)
    loader: Any = DataLoader(
        dataset,  # type: ignore[arg-type]  # a data set by its methods
        # a list goes on where a signal handler raised, which a sampler that is a generator does not
        batch_sampler=[order[at : at + subject.batch_size] for at in range(0, len(order), subject.batch_size)],
        num_workers=subject.num_workers,
        timeout=settings.timeout_s,
        worker_init_fn=target.init_fn,
        multiprocessing_context=subject.start_method,
        backend=settings.backend,
        on_error="quarantine",
        max_bad=len(order),
        **extra,
    )
    forks = [fault for fault in faults if fault.kind is FaultKind.FORK]
    held: list[_Held] = []
    due: list[Fault] = []  # interrupts
    draw = random.Random(str(plan))
    with contextlib.ExitStack() as tight:
        try:
            batches = iter(loader)
            for batch_number in count():
                started = time.monotonic()
                num_due = len(due)
                try:
                    got = _take(batches, due, log, draw)
                except NotSupported:
                    if len(due) == num_due:
                        raise
                    facts.update(delivered=[], sizes=[], waits=[])  # in the middle of the plan: the epoch begins anew
                    batches = iter(loader)
                    continue
                if not got:
                    break
                batch = got.pop()
                facts["waits"].append((started, time.monotonic()))
                indices, bad = take_apart(batch, is_default=subject.is_default)
                facts["delivered"] += indices
                facts["wrong"] += bad
                facts["sizes"].append(len(indices))
                pids = sorted({worker.pid for worker in loader.stats().workers if worker.pid > 0})
                say("batch", number=batch_number, pids=pids)
                if batch_number % _TIGHT_FOR_BATCHES == 0:
                    tight.close()
                until = [f.batch + _HELD_AFTER_FORK for f in forks if 0 <= f.batch - batch_number < f.num_held]
                if until:
                    held.append((max(until), indices, digest_of(batch), batch))
                del batch
                due += [f for f in faults if f.batch == batch_number and f.kind is FaultKind.INTERRUPT]
                for fault in faults:
                    if fault.batch == batch_number and fault.kind in OF_THE_MACHINE:
                        log.add(fault.number)
                        tight.enter_context(full_shm() if fault.kind is FaultKind.SHM_FULL else few_fds(pids))
                    elif fault.batch == batch_number and fault.kind is FaultKind.FORK:
                        log.add(fault.number)
                        drop_in_child(held)
                facts["wrong"] += _let_go(held, batch_number)
                time.sleep(step_s)
            facts["wrong"] += _let_go(held, sys.maxsize)
        except Exception as failure:
            facts["error"] = str(describe_error(failure))
            _log.exception("the loader raised")
            failure.__traceback__ = None
    facts["strikes"] = log.strikes()
    facts["quarantine"] = [
        {"index": f.key, "kind": f.kind.value, "exception": f.exception, "message": f.message[:300]}
        for f in loader.quarantine
    ]
    return facts


_Held = tuple[int, list[int], int, Any]  # until which batch, the indices, a digest, and the batch itself


def _let_go(held: list[_Held], number: int) -> list[int]:
    """Drop the batches that are held no longer; returns the samples of those that are not what they were."""
    over = [one for one in held if one[0] <= number]
    held[:] = [one for one in held if one[0] > number]
    return [index for _, indices, digest, batch in over if digest_of(batch) != digest for index in indices]


def _take(batches: Iterator[Any], due: list[Fault], log: FaultLog, draw: random.Random) -> list[Any]:
    """Return the next batch, or nothing at the end. What a signal handler raises is caught, and the loop goes on."""
    while due:
        got, was_interrupted = take_interrupted(batches, 10 ** draw.uniform(*_INTERRUPT_S))
        if not was_interrupted:
            return got  # it came before the signal: the next one, perhaps
        log.add(due.pop(0).number)
    return list(islice(batches, 1))


Holdings = tuple[frozenset[int], frozenset[str], int]  # child processes, entries of /dev/shm, number of open files


def _holdings() -> Holdings:
    return _children(), _shm(), len(os.listdir("/proc/self/fd"))


def _left_since(before: Holdings, *, num_interrupts: int, patience_s: float = 5.0) -> list[str]:
    """Return what is there now and was not before, once it had some time to go, in words."""
    deadline = time.monotonic() + patience_s
    while True:
        gc.collect()
        children, shm, fds = _holdings()
        left = [f"process {pid}" for pid in sorted(children - before[0])]
        left += [f"/dev/shm/{name}" for name in sorted(shm - before[1])]
        if fds > before[2] + _STAYING_FDS + _FDS_OF_INTERRUPT * num_interrupts:
            left.append(f"{fds - before[2]} open files more than before")
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _children() -> frozenset[int]:
    children = {one.pid for one in walk_tree([os.getpid()]) if not one.has_ended} - {os.getpid()}
    commands = {pid: read_text(f"/proc/{pid}/cmdline") for pid in children}
    return frozenset(pid for pid, command in commands.items() if not any(name in command for name in _STAYING))


def _shm() -> frozenset[str]:
    """Entries of /dev/shm that may be ours: of this user, and not named after another process that lives."""
    entries = set()
    for path in _SHM.glob("*"):
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


# ------------------------------------------------------------------ faults of the machine, and of the training process

_SHM = Path("/dev/shm")
_LARGEST_TO_FILL = 64 << 20  # Docker's default; a larger one is not filled, for it is the machine's memory
_OWN_SIZE = 8 << 20
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_SPARE_FDS = 24  # a worker is started with about ten


class Interruption(Exception):
    """What a signal handler raises on purpose."""


def get_small_shm() -> str | None:
    """Give this process and its children a /dev/shm that may be filled; returns why that is not possible, or None.

    One that is small is used as it is. Else a small one is laid over it in a mount namespace of our own, which needs
    to be root, or a kernel that lets anybody have a user namespace.
    """
    if not _SHM.is_dir():
        return "there is no /dev/shm"
    if _free_bytes() <= _LARGEST_TO_FILL:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_NEWNS if uid == 0 else _CLONE_NEWNS | _CLONE_NEWUSER
    if libc.unshare(flags):
        return f"/dev/shm is too large to fill, and a mount namespace is refused ({os.strerror(ctypes.get_errno())})"
    if flags & _CLONE_NEWUSER:
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)
    if libc.mount(b"tmpfs", bytes(_SHM), b"tmpfs", ctypes.c_ulong(0), f"size={_OWN_SIZE}".encode()):
        return f"/dev/shm is too large to fill, and a mount is refused ({os.strerror(ctypes.get_errno())})"
    return None


def _free_bytes() -> int:
    found = os.statvfs(_SHM)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def full_shm() -> Iterator[None]:
    """Fill /dev/shm until not a byte more goes in; never a large one."""
    path = _SHM / f"headrace-chaos-{os.getpid()}"
    if _free_bytes() > _LARGEST_TO_FILL:
        raise ValueError(f"/dev/shm has {_free_bytes()} bytes free: too many to fill")
    try:
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def few_fds(pids: list[int]) -> Iterator[None]:
    """Lower the soft limit of open files to little more than what is open now, here and in some other processes."""
    before: dict[int, tuple[int, int]] = {}
    for pid in (os.getpid(), *pids):
        with contextlib.suppress(OSError):
            used = len(os.listdir(f"/proc/{pid}/fd"))
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, used + _SPARE_FDS), hard))
            before[pid] = soft, hard
    try:
        yield
    finally:
        for pid, limits in before.items():
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def drop_in_child(held: list[Any]) -> None:
    """Fork a child that drops its copies of what is held, and wait for its end."""
    pid = os.fork()
    if pid == 0:
        held.clear()
        gc.collect()
        os._exit(0)
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise ChildProcessError(f"a forked child that dropped its batches ended with code {code}")


def take_interrupted(batches: Iterator[Any], after_s: float) -> tuple[list[Any], bool]:
    """Return the next batch, if one came, and whether what a signal handler raised came out of `next` instead."""
    got, is_asking, was_interrupted = list[Any](), True, False

    def ring(*_: object) -> None:
        if is_asking:
            raise Interruption

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        got.extend(islice(batches, 1))  # in one step: no signal is handled between `next` and the list
        is_asking = False
    except Interruption:
        was_interrupted = not got
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return got, was_interrupted


if __name__ == "__main__":
    sys.exit(main())
