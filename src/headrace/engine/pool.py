"""The processes of a loader and the pipes to them: starts, grows, shrinks, listens, ends."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import resource
import select
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..signals import StackFile
from .arena import Arena, Fd
from .blocks import Region
from .board import BOARD_BYTES, ENDED, MAX_WORKERS, Board, BoardLock, Head, Record
from .host import HostPlan, run_host
from .messages import RESULT_BYTES, WORK_BYTES, Result, Task, Work, unpack_results, unpack_work
from .worker import WorkerPlan

_log = logging.getLogger(__name__)

_MIB, _GIB = 1 << 20, 1 << 30
_MOST_ADDRESSES = 8 << 40
# how long a worker may take to finish the sample in hand before it is ended by force, as in torch's loader
GRACE_S = 5.0
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_MOST_RESULTS = 2048


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """What every worker of a pool shares."""

    dataset: Any
    collate: Callable[[Any], Any] | None
    init_fn: Callable[[int], None] | None
    context: Any  # a multiprocessing context
    base_seed: int
    is_iterable: bool
    is_batched: bool
    drop_last: bool
    uses_slots: bool
    has_getitems: bool
    in_threads: bool
    copies_dataset: bool
    record: bool
    budget_bytes: int
    goes_on: bool = False  # workers report a failing sample alone and go on with the others


@dataclass
class _Host:
    process: Any
    workers: tuple[int, ...]
    stacks: StackFile


@dataclass(frozen=True)
class Loss:
    """A process that ended without being asked to."""

    workers: tuple[int, ...]
    exit_code: int | None
    pid: int
    stack: tuple[str, ...] = ()  # where its Python code crashed, innermost first


@dataclass(frozen=True)
class ArenaPlan:
    """Where things lie in the arena's address space (pages exist only once they are written)."""

    main_start: int
    main_bytes: int
    slots_start: int
    slots_bytes: int
    regions_start: int
    region_bytes: int
    total: int

    @classmethod
    def for_budget(cls, budget_bytes: int) -> ArenaPlan:
        def round_up(size: int) -> int:
            return -(-size // _MIB) * _MIB

        main_start = round_up(BOARD_BYTES)
        slots_start = main_start + _GIB
        # several times the budget, for slots may be laid out anew while old ones are still held
        slots_bytes = round_up(4 * budget_bytes + 64 * _MIB)
        regions_start = slots_start + slots_bytes
        # a process has 128 TiB of addresses, and a training several loaders, each mapped by all that are forked later
        region_bytes = min(round_up(2 * budget_bytes + 64 * _MIB), _MOST_ADDRESSES // MAX_WORKERS)
        total = regions_start + MAX_WORKERS * region_bytes
        return cls(main_start, _GIB, slots_start, slots_bytes, regions_start, region_bytes, total)


class Pool:
    """Workers of one loader. `close()` ends them all and may be called twice."""

    def __init__(self, plan: PoolPlan) -> None:
        self.plan = plan
        _raise_fd_limit()
        self.arena_plan = ArenaPlan.for_budget(plan.budget_bytes)
        self.arena = Arena.create(self.arena_plan.total)
        self.arena.most_bytes = plan.budget_bytes
        self.board = Board(self.arena.bytes)
        # one for the whole process: a record lock belongs to it, and a second holder's release would be ours too
        self.lock = BoardLock(self.arena.fd.fileno())
        self.record(plan.record)
        self.region = Region(self.arena, self.arena_plan.main_start, self.arena_plan.main_bytes)
        self.num_workers = 0
        self.most_workers = 0  # numbers ever given out: records up to here are in use
        self._hosts: list[_Host] = []
        self._free_numbers = list(range(MAX_WORKERS))
        self._backlog: deque[bytes] = deque()
        self._own_work: dict[int, Fd] = {}  # worker -> write end, for iterable data sets
        self._own_sources: dict[int, Fd] = {}  # their read ends, until the process has them
        self._reserved: list[tuple[int, ...]] = []
        self._shared_work = _pipe() if not plan.is_iterable else None
        if self._shared_work is not None:
            os.set_blocking(self._shared_work[1].fileno(), False)
        self._urgent = _pipe() if not plan.is_iterable else None
        if self._urgent is not None:
            for end in self._urgent:
                os.set_blocking(end.fileno(), False)
        # what went into the pipes last: with the number of unread bytes it tells what no worker has taken yet
        self._written: deque[bytes] = deque(maxlen=_PIPE_BYTES // WORK_BYTES)
        self._written_urgent: deque[bytes] = deque(maxlen=_PIPE_BYTES // WORK_BYTES)
        self.losses: list[Loss] = []
        self._recycled: set[int] = set()
        self._undead: list[_Host] = []  # killed, and not gone yet
        self._results = _pipe()
        os.set_blocking(self._results[0].fileno(), False)
        self._poller = select.poll()
        self._poller.register(self._results[0].fileno(), select.POLLIN)
        self._sentinels: dict[int, _Host] = {}
        self._ending = 0  # workers told to retire that have not ended yet
        self._is_closed = False
        self._owner_pid = os.getpid()

    # ------------------------------------------------------------------------------------ size

    def grow(self, count: int) -> None:
        """Start `count` more workers."""
        self.reserve(count)
        self.launch()

    def reserve(self, count: int) -> None:
        """Number `count` more workers and open their pipes, so that work can be sent before they run."""
        if count > len(self._free_numbers):
            raise ValueError(f"a loader can have {MAX_WORKERS} workers at most")
        numbers = [self._free_numbers.pop(0) for _ in range(count)]
        self.num_workers += count
        self.most_workers = max(self.most_workers, *(n + 1 for n in numbers))
        for number in numbers:
            self.board.reset_record(number, start_ns=time.perf_counter_ns())
            if self._shared_work is None:
                self._own_sources[number], self._own_work[number] = _pipe()
        self._reserved += [tuple(numbers)] if self.plan.in_threads else [(n,) for n in numbers]

    def launch(self) -> None:
        """Start the processes of reserved workers."""
        reserved, self._reserved = self._reserved, []
        for workers in reserved:
            self._start_host(workers)

    def _start_host(self, workers: tuple[int, ...]) -> None:
        plan, places = self.plan, self.arena_plan
        sources = [self._shared_work[0] if self._shared_work else self._own_sources.pop(w) for w in workers]
        plans = tuple(
            WorkerPlan(
                worker=worker,
                work=source,
                urgent=self._urgent[0] if self._urgent else None,
                results=self._results[1],
                region_start=places.regions_start + worker * places.region_bytes,
                region_bytes=places.region_bytes,
                largest_block=min(plan.budget_bytes, places.region_bytes // 2),
                is_iterable=plan.is_iterable,
                is_batched=plan.is_batched,
                drop_last=plan.drop_last,
                uses_slots=plan.uses_slots,
                has_getitems=plan.has_getitems,
                goes_on=plan.goes_on,
            )
            for worker, source in zip(workers, sources, strict=True)
        )
        stacks = StackFile.create()
        host_plan = HostPlan(
            arena=self.arena,
            stacks=stacks,
            workers=plans,
            in_threads=plan.in_threads,
            copies_dataset=plan.copies_dataset,
            dataset=plan.dataset,
            collate=plan.collate,
            init_fn=plan.init_fn,
            num_workers=self.num_workers,
            base_seed=plan.base_seed,
            parent_pid=os.getpid(),
        )
        name = "headrace-loader" if plan.in_threads else f"headrace-worker-{workers[0]}"
        process = plan.context.Process(target=run_host, args=(host_plan,), name=name, daemon=True)
        process.start()
        if self._shared_work is None:
            for source in sources:
                source.close()
        host = _Host(process, workers, stacks)
        self._hosts.append(host)
        self._sentinels[process.sentinel] = host
        self._poller.register(process.sentinel, select.POLLIN)

    def shrink(self, count: int) -> None:
        """Let `count` workers end, each after what it has in hand."""
        self.num_workers -= count
        self._ending += count
        for _ in range(count):
            self.send(Work(-1, 0, 0, Task.RETIRE))

    def replace(self, workers: tuple[int, ...]) -> None:
        """Start new processes in the place of lost workers, under the same numbers."""
        for worker in workers:
            self.board.reopen_record(worker, start_ns=time.perf_counter_ns())
            if self._shared_work is None:  # what waits in its pipe goes with it
                self._own_work[worker].close()
                self._own_sources[worker], self._own_work[worker] = _pipe()
        self._reserved += [workers] if self.plan.in_threads else [(w,) for w in workers]
        self.launch()

    def recycle(self, worker: int) -> None:
        """Let a worker end after its chunk and start it anew: its memory is the kernel's again."""
        self._recycled.add(worker)
        self.board.words[Board.record_at(worker) + Record.GO] = 1

    def running(self) -> dict[int, int]:
        """The process of each worker."""
        return {worker: host.process.pid for host in self._hosts for worker in host.workers}

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
                self._poller.unregister(host.process.sentinel)
                del self._sentinels[host.process.sentinel]
                self._hosts.remove(host)
                self._undead.append(host)
                self.losses.append(Loss(host.workers, None, pid))
                return True
        return False

    def region_of(self, worker: int) -> Region:
        """The region of a worker that is gone, to put it in order."""
        places = self.arena_plan
        return Region(self.arena, places.regions_start + worker * places.region_bytes, places.region_bytes)

    def record(self, is_on: bool) -> None:
        """Let workers keep times and histograms, or not."""
        self.board.words[Head.RECORD] = int(is_on)

    # ------------------------------------------------------------------------------------ talk

    def send(self, work: Work, *, worker: int = -1) -> None:
        """Give work to whichever worker is free, or to a certain one."""
        if worker >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._own_work[worker].fileno(), work.pack())
            return
        self._backlog.append(work.pack())

    def flush(self) -> None:
        """Write what fits into the pipe; the rest follows when workers have made room."""
        if self._shared_work is None or not self._backlog:
            return
        fd = self._shared_work[1].fileno()
        while self._backlog:
            count = min(len(self._backlog), 128)  # 3 KiB: below PIPE_BUF, so written whole or not at all
            data = b"".join(self._backlog[i] for i in range(count))
            try:
                os.write(fd, data)
            except BlockingIOError:
                if count == 1:
                    return
                try:
                    os.write(fd, self._backlog[0])
                except BlockingIOError:
                    return
                count = 1
            for _ in range(count):
                self._written.append(self._backlog.popleft())

    def send_urgent(self, work: Work) -> None:
        """Give work to the next worker that is free, before all that waits."""
        assert self._urgent is not None
        message = work.pack()
        try:
            os.write(self._urgent[1].fileno(), message)
        except BlockingIOError:  # tens of thousands wait there: it may as well wait with the rest
            self._backlog.appendleft(message)
            return
        self._written_urgent.append(message)
        self.board.words[Head.URGENT] = 1
        # workers that sleep at the other pipe do not see that word
        self._backlog.appendleft(Work(-1, 0, 0, Task.LOOK).pack())

    def send_first(self, work: Work) -> None:
        """Give work out before what has not been written to the pipe yet."""
        self._backlog.appendleft(work.pack())

    def unread(self) -> list[Work]:
        """Work that no worker has taken yet."""
        waiting = list(self._backlog)
        for pipe, written in ((self._shared_work, self._written), (self._urgent, self._written_urgent)):
            if pipe is not None:
                count = _unread_bytes(pipe[0].fileno()) // WORK_BYTES
                waiting += list(written)[len(written) - count :]
        if self._urgent is not None and not _unread_bytes(self._urgent[0].fileno()):
            self.board.words[Head.URGENT] = 0
        return [unpack_work(message) for message in waiting]

    def receive(self) -> list[Result]:
        """Answers that have come, without waiting."""
        try:
            data = os.read(self._results[0].fileno(), RESULT_BYTES * _MOST_RESULTS)
        except BlockingIOError:
            return []
        results = unpack_results(data)
        while len(data) == RESULT_BYTES * _MOST_RESULTS:
            try:
                data = os.read(self._results[0].fileno(), RESULT_BYTES * _MOST_RESULTS)
            except BlockingIOError:
                break
            results += unpack_results(data)
        return results

    def wait(self, timeout_s: float) -> None:
        """Sleep until an answer comes or a process ends. One that ended unasked is added to `losses`."""
        for fd, _ in self._poller.poll(timeout_s * 1000):
            host = self._sentinels.get(fd)
            if host is not None:
                self._note_end(host)

    def _note_end(self, host: _Host) -> None:
        self._poller.unregister(host.process.sentinel)
        del self._sentinels[host.process.sentinel]
        self._hosts.remove(host)
        host.process.join()
        ended = [w for w in host.workers if self.board.words[Board.record_at(w) + Record.STATE] == ENDED]
        code, pid = host.process.exitcode, host.process.pid
        host.process.close()
        crash = tuple(str(frame) for frame in host.stacks.crash())
        host.stacks.close()
        if code == 0 and len(ended) == len(host.workers) and self._recycled >= set(ended):
            self._recycled -= set(ended)
            self.replace(host.workers)
            return
        if code == 0 and len(ended) == len(host.workers) and self._ending >= len(ended):
            self._ending -= len(ended)
            self._free_numbers = sorted([*self._free_numbers, *ended])
            return
        self.losses.append(Loss(host.workers, code, pid, crash))

    # ------------------------------------------------------------------------------------ end

    @property
    def pids(self) -> list[int]:
        return [host.process.pid for host in self._hosts]

    def close(self, *, grace_s: float = GRACE_S) -> None:
        """End all workers: each after the sample in hand, by force after the grace."""
        if self._is_closed or self._owner_pid != os.getpid():
            return
        self._is_closed = True
        self.board.words[Head.STOP] = 1
        try:
            self._wake_all()
            deadline = time.monotonic() + grace_s
            for host in self._hosts:
                host.process.join(max(0.0, deadline - time.monotonic()))
        finally:
            self._end_by_force()
            for fd in (
                *(self._shared_work or ()),
                *(self._urgent or ()),
                *self._results,
                *self._own_work.values(),
                *self._own_sources.values(),
            ):
                fd.close()
            self.arena.close()

    def _wake_all(self) -> None:
        self._backlog.clear()
        wake = Work(-1, 0, 0, Task.RETIRE).pack()
        fds = [own.fileno() for own in self._own_work.values()]
        if self._shared_work is not None:
            fds = [self._shared_work[1].fileno()] * (len(self._hosts) + sum(len(h.workers) for h in self._hosts))
        for fd in fds:
            with contextlib.suppress(OSError):
                os.set_blocking(fd, False)
                os.write(fd, wake)
        # a worker may be blocked because nobody read its answers
        with contextlib.suppress(OSError):
            while os.read(self._results[0].fileno(), 1 << 16):
                pass

    def _end_by_force(self) -> None:
        for stop in ("terminate", "kill"):
            alive = [h for h in self._hosts if h.process.is_alive()]
            for host in alive:
                _log.warning("%s did not end within %.0f s: %s", host.process.name, GRACE_S, stop)
                with contextlib.suppress(OSError):
                    getattr(host.process, stop)()
            for host in alive:
                host.process.join(1.0)
        for host in [*self._hosts, *self._undead]:
            with contextlib.suppress(ValueError):
                if not host.process.is_alive():
                    host.process.close()
            host.stacks.close()
        self._hosts.clear()
        self._undead.clear()
        self._sentinels.clear()


def _pipe() -> tuple[Fd, Fd]:
    read_end, write_end = os.pipe()
    with contextlib.suppress(OSError):  # an unprivileged user has a limit on pipe memory; the default size works too
        fcntl.fcntl(write_end, _F_SETPIPE_SZ, _PIPE_BYTES)
    return Fd(read_end), Fd(write_end)


def _unread_bytes(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)


def _raise_fd_limit() -> None:
    """Let this process, and the workers that it starts, open as many files as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _log.info("the limit on open files was raised from %d to %d", soft, hard)
