"""The processes of a loader: started, replaced, sent home, ended."""

import contextlib
import errno
import logging
import multiprocessing.process
import os
import resource
import select
import signal
import time
import traceback
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import wait as wait_for
from typing import Any

from headrace.errors import NotSupported
from headrace.signals import StackFile

from .memory import ENDED, Arena, ArenaPlan, Board, BoardLock, Head, Ledger, Record, Region, Task, Work
from .pipes import Pipes
from .uninterrupted import signals_later
from .worker import HostPlan, PoolPlan, WorkerPlan, ask_to_go, has_green_threads, reopen_record, reset_record, run_host

_log = logging.getLogger(__name__)

# how long a worker may take to finish the sample in hand before it is ended by force, as in torch's loader
GRACE_S = 5.0

_started: weakref.WeakSet[Any] = weakref.WeakSet()  # processes of all pools


def _disown(processes: Iterable[Any]) -> None:
    """Let multiprocessing forget processes: it would end what it takes for running children when this one exits."""
    getattr(multiprocessing.process, "_children", set()).difference_update(processes)


os.register_at_fork(after_in_child=lambda: _disown(_started))


@dataclass
class _Host:
    process: Any
    workers: tuple[int, ...]
    stacks: StackFile
    pidfd: int = -1  # of a fork server's child, whose sentinel tells of the server's end as well

    def is_gone(self, timeout_s: float = 0) -> bool:
        """Whether the process has ended: its sentinel tells, where a script reaped it; or the kernel, where a process
        that it left behind holds the sentinel open.
        """
        if self.pidfd >= 0:
            return bool(wait_for([self.pidfd], timeout_s))
        deadline = time.monotonic() + timeout_s
        while not wait_for([self.process.sentinel], max(0.0, min(0.05, deadline - time.monotonic()))):
            if not self.process.is_alive():
                return True
            if time.monotonic() >= deadline:
                return False
        return True

    def end_left_alone(self) -> bool:
        """End a process whose fork server is gone: it lives, though its sentinel denies it. False: it has ended.

        Nobody could say any more how it ends, and who takes its place takes its number.
        """
        if self.pidfd < 0 or self.is_gone():
            return False
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.is_gone(GRACE_S)
        return True

    def close_files(self) -> None:
        self.stacks.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def close(self) -> int | None:
        """Let go of a process that has ended; returns its exit code, None where somebody else reaped it."""
        self.close_files()
        deadline = time.monotonic() + 1.0
        while (code := self.process.exitcode) is None and time.monotonic() < deadline:
            try:
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            time.sleep(0.0002)  # it has closed its files, and is about to be gone
        if code is None:
            _disown([self.process])  # or whoever has its number by then would be ended
            return None
        self.process.join()
        return int(code)


@dataclass(frozen=True)
class Loss:
    """A process that ended without being asked to."""

    workers: tuple[int, ...]
    exit_code: int | None
    pid: int
    stack: tuple[str, ...] = ()  # where its Python code crashed, innermost first

    @property
    def as_torch_says(self) -> str:
        """What torch's loader says of such an end: people and their scripts look for these words."""
        code = self.exit_code
        if code is not None and code < 0:
            how = f"is killed by signal: {signal.strsignal(-code) or -code}"
        else:
            how = "exited unexpectedly" + (f" with exit code {code}" if code is not None else "")
        return f"DataLoader worker (pid {self.pid}) {how}"


class Pool:
    """Workers of one loader. `close()` ends them all and may be called twice."""

    def __init__(self, plan: PoolPlan) -> None:
        self.plan = plan
        if has_green_threads() and (plan.in_threads or not hasattr(select, "poll")):
            what = "gevent or eventlet has patched the threads and waits of this process: workers would wait for ever"
            raise NotSupported(what, next_step="backend='process' with gevent, num_workers=0 with eventlet")
        _raise_fd_limit()
        self.arena_plan = ArenaPlan.for_budget(
            plan.budget_bytes, room_bytes=plan.room_bytes, num_workers=plan.num_workers
        )
        self.arena = Arena.create(self.arena_plan.total)
        self.arena.most_bytes = plan.budget_bytes
        self.board = Board(self.arena.bytes)
        # one for the whole process: a record lock belongs to it, and a second holder's release would be ours too
        self.lock = BoardLock(self.arena.fd.fileno())
        self.ledger = Ledger(self.arena, self.lock)
        self.keep_stats(plan.keeps_stats)
        self.region = Region(self.arena, self.arena_plan.main_start, self.arena_plan.main_bytes)
        self.num_workers = 0
        self.most_workers = 0  # numbers ever given out: records up to here are in use
        self._hosts: list[_Host] = []
        self._left: list[Any] = []  # the processes that were there at the end
        self._free_numbers = list(range(self.arena_plan.num_regions))
        self._reserved: list[tuple[int, ...]] = []
        self.pipes = Pipes(self.board.words, is_shared=not plan.is_iterable)
        self.losses: list[Loss] = []
        self._recycled: set[int] = set()
        self._undead: list[_Host] = []  # killed, and not gone yet
        self._poller = select.poll()
        self._poller.register(self.pipes.answers.fd, select.POLLIN)
        self._sentinels: dict[int, _Host] = {}
        self._ending = 0  # workers told to retire that have not ended yet
        self._is_closed = False
        self.asleep_s = 0.0  # waiting for workers
        self.is_at_rest = True  # an exception that comes now leaves nothing half done: nobody has begun, or it sleeps
        self._owner_pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process started the workers; False in a forked child, which may not talk to them."""
        return self._owner_pid == os.getpid()

    def grow(self, count: int, *, is_spare: bool = False) -> bool:
        self.reserve(count)
        return self.launch(is_spare=is_spare)

    @property
    def num_free(self) -> int:
        """How many more workers there may be; those that were told to go count until they are gone."""
        return len(self._free_numbers)

    def reserve(self, count: int) -> None:
        """Number `count` more workers and open their pipes, so that work can be sent before they run."""
        if count > len(self._free_numbers):
            raise ValueError(f"this loader can have {self.arena_plan.num_regions} workers at most")
        numbers = [self._free_numbers.pop(0) for _ in range(count)]
        self.num_workers += count
        self.most_workers = max(self.most_workers, *(n + 1 for n in numbers))
        self.board.words[Head.NUM_RECORDS] = self.most_workers
        for number in numbers:
            reset_record(self.board.words, number)
            self.pipes.open_for(number)
        self._reserved += [tuple(numbers)] if self.plan.in_threads else [(n,) for n in numbers]

    def launch(self, *, is_spare: bool = False) -> bool:
        """Start the processes of reserved workers; one that cannot be is as if never reserved.

        False: that is so, and the others go on without it, for `is_spare` says that they can.
        """
        while self._reserved:
            with signals_later():  # a process that is started and known to nobody would stay
                try:
                    self._start_host(self._reserved[0])
                except NotSupported as error:
                    unused = [worker for workers in self._reserved for worker in workers]
                    self._reserved.clear()
                    self.num_workers -= len(unused)
                    self._free_numbers = sorted([*self._free_numbers, *unused])
                    for worker in unused:
                        reopen_record(self.board.words, worker, state=ENDED)
                    if not is_spare or self.plan.is_iterable or self.num_workers < 1:
                        raise
                    _log.warning("%s\n  workers that go on: %d", str(error), self.num_workers)  # its traceback holds us
                    return False
                del self._reserved[0]
        return True

    def _start_host(self, workers: tuple[int, ...]) -> None:
        plan, places = self.plan, self.arena_plan
        shared = replace(plan, context=None)  # which may not travel
        stacks = StackFile.create()
        plans = tuple(
            WorkerPlan(
                pool=shared,
                worker=worker,
                work=self.pipes.source_of(worker),
                urgent=self.pipes.urgent_source,
                results=self.pipes.answers_to,
                region_start=places.regions_start + worker * places.region_bytes,
                region_bytes=places.region_bytes,
            )
            for worker in workers
        )
        host_plan = HostPlan(shared, self.arena, stacks, plans, num_workers=self.num_workers, parent_pid=os.getpid())
        name = "headrace-loader" if plan.in_threads else f"headrace-worker-{workers[0]}"
        process = plan.context.Process(target=run_host, args=(host_plan,), name=name, daemon=True)
        try:
            process.start()
        except (OSError, EOFError) as error:
            if (why := _why_not_started(error, plan.context.get_start_method())) is None:
                raise
            what, next_step = f"no process could be started for worker {workers[0]}: {why[0]}", why[1]
            raise NotSupported(what, reason=getattr(error, "strerror", error), next_step=next_step) from error
        _started.add(process)
        for worker in workers:
            self.pipes.started(worker)
        host = _Host(process, workers, stacks)
        if plan.context.get_start_method() == "forkserver":
            with contextlib.suppress(OSError, AttributeError):  # it has ended; a kernel without them
                host.pidfd = os.pidfd_open(process.pid)
        self._hosts.append(host)
        self._sentinels[process.sentinel] = host
        self._poller.register(process.sentinel, select.POLLIN)

    def shrink(self, count: int) -> None:
        """Let `count` workers end, each after what it has in hand."""
        self.num_workers -= count
        self._ending += count
        for _ in range(count):
            self.pipes.send(Work(-1, 0, 0, Task.RETIRE))

    def replace(self, workers: tuple[int, ...]) -> bool:
        """Start new processes in the place of lost workers, under the same numbers; False as `launch` says it."""
        for worker in workers:
            reopen_record(self.board.words, worker)
            self.pipes.open_for(worker)
        self._reserved += [workers] if self.plan.in_threads else [(w,) for w in workers]
        return self.launch(is_spare=True)

    def recycle(self, worker: int) -> None:
        """Let a worker end after its chunk and start it anew: its memory is the kernel's again."""
        self._recycled.add(worker)
        ask_to_go(self.board.words, worker)

    def running(self) -> dict[int, int]:
        """The process of each worker."""
        return {worker: host.process.pid for host in self._hosts for worker in host.workers}

    @property
    def processes(self) -> list[Any]:
        """The processes in the order of their workers; once it is closed, those that were there until then."""
        return self._left or [host.process for host in sorted(self._hosts, key=lambda host: host.workers)]

    def thread_ids(self, worker: int) -> tuple[int, ...] | None:
        """The thread of a worker, where several share a process."""
        tid = self.board.words[Board.record_at(worker) + Record.THREAD]
        return (tid,) if self.plan.in_threads and tid else None

    def stacks_of(self, pid: int) -> StackFile | None:
        """The file into which a process writes its stacks when it is asked to."""
        return next((host.stacks for host in self._hosts if host.process.pid == pid), None)

    def abandon(self, pid: int) -> bool:
        """Count a process as lost that was killed and does not end; False where there is none such any more."""
        for host in self._hosts:
            if host.process.pid == pid:
                self._undead.append(host)
                self._poller.unregister(host.process.sentinel)
                del self._sentinels[host.process.sentinel]
                self._hosts.remove(host)
                self.losses.append(Loss(host.workers, None, pid))
                return True
        return False

    def region_of(self, worker: int) -> Region:
        """The region of a worker that is gone, to put it in order."""
        places = self.arena_plan
        return Region(self.arena, places.regions_start + worker * places.region_bytes, places.region_bytes)

    def trim(self) -> None:
        """Let every worker return the pages of blocks that nobody uses to the kernel: only the owner may."""
        self.board.words[Head.TRIM] += 1
        self.region.trim()
        for worker in range(self.most_workers):
            if worker in self._free_numbers:  # of those that were sent home, nobody else can
                self.region_of(worker).trim()
        for worker in self.running():
            self.pipes.send(Work(-1, 0, 0, Task.LOOK), worker=worker if self.plan.is_iterable else -1)
        self.pipes.flush()

    def keep_stats(self, is_on: bool) -> None:
        self.board.words[Head.RECORD] = int(is_on)

    def wait(self, timeout_s: float) -> None:
        """Sleep until an answer comes or a process ends. One that ended unasked is added to `losses`."""
        self.is_at_rest = timeout_s > 0  # or this is a look in the middle of something else
        began = time.perf_counter()
        ready = self._poller.poll(timeout_s * 1000)
        self.asleep_s += time.perf_counter() - began
        self.is_at_rest = False
        if self._is_closed:  # by another thread: who ends now was asked to
            raise ValueError("the workers were ended while an answer was waited for")
        for fd, _ in ready:
            host = self._sentinels.get(fd)
            if host is not None:
                with signals_later():  # it may be replaced
                    self._note_end(host)

    def _note_end(self, host: _Host) -> None:
        self._poller.unregister(host.process.sentinel)
        del self._sentinels[host.process.sentinel]
        self._hosts.remove(host)
        ended = {w for w in host.workers if self.board.words[Board.record_at(w) + Record.STATE] == ENDED}
        pid, crash, is_left = host.process.pid, tuple(str(f) for f in host.stacks.crash()), host.end_left_alone()
        code = host.close()
        if is_left:
            _log.warning("the fork server has ended: worker process %d, which it can no longer tell of, was ended", pid)
            code = None
        is_done = code in (None, 0) and len(ended) == len(host.workers)  # a worker says so as the last thing it does
        if is_done and self._recycled >= ended:
            self._recycled -= ended
            self.replace(host.workers)
        elif is_done and self._ending >= len(ended):
            self._ending -= len(ended)
            self._free_numbers = sorted([*self._free_numbers, *ended])
        else:
            self.losses.append(Loss(host.workers, 0 if is_done else code, pid, crash))

    def close(self, *, grace_s: float = GRACE_S) -> None:
        """End all workers: each after the sample in hand, by force after the grace, or on Ctrl-C."""
        with signals_later() as came:
            if self._is_closed or not self.is_ours:
                return
            self._is_closed = True
            self.board.words[Head.STOP] = 1
            try:
                self.pipes.wake(len(self._hosts) + sum(len(h.workers) for h in self._hosts))
                deadline = time.monotonic() + grace_s
                for host in self._hosts:
                    while not host.is_gone(0.05) and time.monotonic() < deadline and signal.SIGINT not in came:
                        pass
            finally:
                self._end_by_force()
                self.pipes.close()
                self.arena.close()

    def _end_by_force(self) -> None:
        for stop in ("terminate", "kill"):
            alive = [h for h in self._hosts if not h.is_gone()]
            for host in alive:
                _log.warning("%s did not end in time: %s", host.process.name, stop)
                with contextlib.suppress(OSError):
                    getattr(host.process, stop)()
            for host in alive:
                host.is_gone(1.0)
        for host in [*self._hosts, *self._undead]:
            if host.is_gone():
                host.close()
            host.close_files()
        self._left = self.processes
        self._hosts.clear()
        self._undead.clear()
        self._sentinels.clear()


def _why_not_started(error: OSError | EOFError, start_method: str) -> tuple[str, str] | None:
    """Why there is no process, and what to do; None where the error says it, or is one of the data set's own."""
    if any(os.path.basename(one.filename) == "reduction.py" for one in traceback.extract_tb(error.__traceback__)):
        return None  # it comes from pickling
    # the second where it is the fork server that may have no more
    if isinstance(error, (BlockingIOError, EOFError)) or error.errno == errno.ENOMEM:
        next_step = "fewer num_workers=, or a higher limit: `ulimit -u`, pids.max of the control group"
        return "this user or control group may have no more", next_step
    if start_method == "forkserver" and error.errno != errno.EMFILE:
        next_step = "TMPDIR= a folder that can be written to, or multiprocessing_context='spawn'"
        return "the fork server needs a socket in a temporary folder", next_step
    return None


def _raise_fd_limit() -> None:
    """Let this process, and the workers that it starts, open as many files as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _log.info("the limit on open files was raised from %d to %d", soft, hard)
