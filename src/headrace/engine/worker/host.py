"""A process of the loader: one worker in its main thread, or several in threads."""

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

from headrace.model import WORKER_THREAD, record_stages
from headrace.signals import StackFile
from headrace.signals.system import keep_heap_pages, name_thread

from ..memory import Arena, BoardLock
from .fetch import SampleSeeds, seed_worker
from .staging import worker_table
from .workbench import PoolPlan, Workbench, WorkerPlan, kept_heap_bytes
from .worker import Worker

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class HostPlan:
    """All that a new process of the loader gets."""

    pool: PoolPlan  # without its context
    arena: Arena
    stacks: StackFile
    workers: tuple[WorkerPlan, ...]
    num_workers: int
    parent_pid: int


def run_host(plan: HostPlan) -> None:
    """The target of a loader process."""
    # Ctrl-C reaches the whole process group: the training process decides what ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # what came along the fork stays out of garbage collections: they would copy its pages, one by one
    gc.freeze()
    if plan.pool.cpus is not None:
        with contextlib.suppress(OSError):  # a cpuset that was made smaller meanwhile: where it lets us
            os.sched_setaffinity(0, plan.pool.cpus)
    _follow_parent(plan.parent_pid)
    plan.stacks.register(tracer_pid=plan.parent_pid)
    keep_heap_pages(threads=len(plan.workers), most_bytes=kept_heap_bytes(plan.pool.budget_bytes, plan.num_workers))
    plan.arena.attach()
    lock = BoardLock(plan.arena.fd.fileno())
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        # one thread a worker, as in torch's own
        torch.set_num_threads(1)
        _stack_in_own_memory(torch)
    if not plan.pool.in_threads:
        (only,) = plan.workers
        _run_worker(plan, only, lock)
        return
    # once: threads share the generators, and a fork has those of the last epoch's
    seeds = SampleSeeds(plan.pool.dataset)
    seeds.begin_chunk()
    seeds.begin_sample(plan.pool.base_seed, plan.workers[0].worker)
    infos = _thread_worker_infos()
    threads = [
        threading.Thread(target=_run_worker, args=(plan, w, lock, infos), name=f"headrace-worker-{w.worker}")
        for w in plan.workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _stack_in_own_memory(torch: Any) -> None:
    """Keep collation out of /dev/shm: in a worker, torch's own stacks each tensor into a fresh segment of it.

    Batches travel in the arena anyway, and a container may have 64 MiB of /dev/shm, where writing more is a crash.
    """

    def new_storage(size: int, *, device: Any = "cpu") -> Any:
        return torch.UntypedStorage(size, device=device)

    torch.UntypedStorage._new_shared = staticmethod(new_storage)


def _run_worker(plan: HostPlan, worker_plan: WorkerPlan, lock: BoardLock, infos: Any = None) -> None:
    name_thread(f"{WORKER_THREAD}{worker_plan.worker}")
    worker_number, bench = worker_plan.worker, Workbench(worker_plan, plan.arena, lock)
    worker = Worker(bench)
    stages = worker_table(bench.words, worker_number)

    def prepare() -> None:
        if not plan.pool.in_threads:
            seed_worker(plan.pool.base_seed, worker_number)
        _set_worker_info(plan, worker_number, infos)
        if plan.pool.init_fn is not None:
            plan.pool.init_fn(worker_number)

    try:
        # threads that a data set starts by itself record with the first worker of their process
        is_first = worker_plan is plan.workers[0]
        with record_stages(stages, for_process=is_first), bench.fetcher.seeds or contextlib.nullcontext():
            worker.run(prepare)
    except BaseException:
        if not plan.pool.in_threads:
            raise
        # the other threads would go on, and nobody would notice that one is gone with the rows that it owes
        try:
            traceback.print_exc()
        finally:  # the exception is foreign code: it may not let itself be printed
            os._exit(1)
    finally:
        if bench.events is not None:
            bench.events.close()


def _set_worker_info(plan: HostPlan, worker: int, infos: Any) -> None:
    """Make `torch.utils.data.get_worker_info()` right in this worker."""
    module: Any = sys.modules.get("torch.utils.data._utils.worker")
    if module is None:
        return
    seed = plan.pool.base_seed + worker
    info = module.WorkerInfo(id=worker, num_workers=plan.num_workers, seed=seed, dataset=plan.pool.dataset)
    if infos is None:
        module._worker_info = info
    else:
        infos.info = info


class _ThreadWorkerInfo(threading.local):
    """Stands in for torch's WorkerInfo where workers are threads: each sees its own."""

    info: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.info, name)


def _thread_worker_infos() -> Any:
    module: Any = sys.modules.get("torch.utils.data._utils.worker")
    if module is None:
        return None
    module._worker_info = infos = _ThreadWorkerInfo()
    return infos


def _follow_parent(parent_pid: int) -> None:
    """End this process when the training process is gone, however it went.

    A closed pipe would not tell: processes that were forked meanwhile may hold its other end. PR_SET_PDEATHSIG
    would tell too much: it also fires when the thread that started us ends.
    """
    if has_green_threads():  # of one thread of the kernel's: while the worker waits, one that watches has no turn
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    try:
        parent = os.pidfd_open(parent_pid)
    except (OSError, AttributeError):
        parent = -1

    def watch() -> None:
        name_thread("headrace-watch")
        if parent >= 0:
            poller = select.poll()
            poller.register(parent, select.POLLIN)
            poller.poll()
        with contextlib.suppress(OSError):
            while parent < 0:
                os.kill(parent_pid, 0)  # asks whether it is there: /proc may not show it
                time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="headrace-watch", daemon=True).start()


def has_green_threads() -> bool:
    """Whether gevent or eventlet has patched the standard library: threads take turns, and only where one waits."""
    return not isinstance(select.select, BuiltinFunctionType)
