"""Where a worker stands that does not come back: everything that can be seen of it from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.signals import StackFile, Stacks, ThreadStack, dump_with_py_spy, find_py_spy, format_stacks, read_stacks
from headrace.signals.system import (
    OpenFile,
    ProcessState,
    ThreadState,
    libraries_of,
    polled_descriptors,
    read_open_files,
    read_process,
    read_threads,
)

# long enough to see whether it computes and whether it waits for the GIL (which is asked for every 5 ms)
WATCH_S = 0.1
# threads of ours in every worker: they wait by design and hold nothing
_OWN_THREADS = ("headrace-watch",)
_NO_STACKS = Stacks(source="")


@dataclass(frozen=True, kw_only=True)
class StuckReport:
    """A process seen twice, `watched_s` apart, and its stacks. Pure values: `recognise` works on recorded ones too."""

    pid: int
    watched_s: float
    process: ProcessState | None  # None: it is gone
    first: tuple[ThreadState, ...] = ()
    threads: tuple[ThreadState, ...] = ()  # the second look, the process's first thread first
    libraries: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # by thread: on its native stack
    polled: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # by thread: descriptors it waits for
    files: tuple[OpenFile, ...] = ()
    stacks: Stacks = _NO_STACKS
    later_stacks: Stacks | None = None  # a moment later, where it computes: does it move?

    def thread(self, tid: int | None = None) -> ThreadState | None:
        """One thread of the second look; the process's first one unless told otherwise."""
        return next((t for t in self.threads if t.tid == (self.pid if tid is None else tid)), None)

    def earlier(self, thread: ThreadState) -> ThreadState | None:
        """The same thread in the first look."""
        return next((t for t in self.first if t.tid == thread.tid), None)

    def cpu_share(self, thread: ThreadState) -> float:
        """Share of a processor that a thread used between the two looks."""
        before = self.earlier(thread)
        return max(0.0, thread.cpu_s - before.cpu_s) / self.watched_s if before and self.watched_s > 0 else 0.0

    def switches_per_s(self, thread: ThreadState) -> float:
        """How often a thread went to sleep of its own accord."""
        before = self.earlier(thread)
        if before is None or self.watched_s <= 0:
            return 0.0
        return (thread.voluntary_switches - before.voluntary_switches) / self.watched_s

    def others(self, thread: ThreadState) -> tuple[ThreadState, ...]:
        """The threads beside one, without those that every worker of ours has."""
        return tuple(t for t in self.threads if t.tid != thread.tid and t.name not in _OWN_THREADS)

    def file_in_hand(self, thread: ThreadState) -> OpenFile | None:
        """The file of the system call that a thread is in."""
        if thread.call is None:
            return None
        fd = next(iter(self.polled.get(thread.tid, ())), thread.call.descriptor)
        return next((file for file in self.files if file.fd == fd), None)

    def stack(self, thread: ThreadState, stacks: Stacks | None = None) -> ThreadStack | None:
        """The calls of a thread, where the stacks tell which they are."""
        known = (self.stacks if stacks is None else stacks).threads
        exact = next((stack for stack in known if stack.tid == thread.tid), None)
        if exact is None and thread.tid == self.pid:
            exact = next((stack for stack in known if stack.is_main and stack.tid is None), None)
        return exact


def look_at(
    pid: int,
    thread_ids: tuple[int, ...] | None = None,
    *,
    stack_file: StackFile | None = None,
    use_py_spy: bool = True,
    watch_s: float = WATCH_S,
    root: Path = Path("/"),
) -> StuckReport:
    """See where a process stands, in about `watch_s` (longer where py-spy is asked). Changes nothing about it.

    `thread_ids`: the threads whose waits are of interest, where workers share a process; else its first one. Works for
    a process that has not come to its first sample, and for one of which little may be seen: the rest is left out.
    """
    first = read_threads(pid, root=root)
    start_s = time.monotonic()
    if first:
        time.sleep(watch_s)
    threads = read_threads(pid, root=root)
    watched_s = time.monotonic() - start_s
    process = read_process(pid, root=root)
    if process is None or not threads:
        return StuckReport(pid=pid, watched_s=watched_s, process=None)
    # a thread in uninterruptible sleep may hold its address space locked: to look into that would hang us too
    waiting = [t for t in threads if t.tid in (thread_ids or (pid,)) and all(other.state != "D" for other in threads)]
    calls = {t.tid: t.call for t in waiting if t.call is not None}
    stacks, later = _take_stacks(pid, threads[0], stack_file, use_py_spy=use_py_spy)
    return StuckReport(
        pid=pid,
        watched_s=watched_s,
        process=process,
        first=first,
        threads=threads,
        libraries={tid: libraries_of(pid, call, root=root) for tid, call in calls.items()},
        polled={tid: polled_descriptors(pid, call, root=root) for tid, call in calls.items()},
        files=read_open_files(pid, root=root),
        stacks=stacks,
        later_stacks=later,
    )


def _take_stacks(
    pid: int, main: ThreadState, stack_file: StackFile | None, *, use_py_spy: bool
) -> tuple[Stacks, Stacks | None]:
    """Stacks of a process, and a second time where it runs."""
    if main.state in "ZX":
        return Stacks(source="", problem="it has ended"), None
    stands_still = main.state in "TtD"  # a signal would wait, and a debugger would wait for it
    problems = []
    if use_py_spy and find_py_spy() is not None:
        found = dump_with_py_spy(pid, pauses=not stands_still)
        if found.threads:
            return found, None
        problems.append(found.problem)
    if stack_file is not None and not stands_still:
        found = read_stacks(pid, stack_file)
        if found.threads:
            later = read_stacks(pid, stack_file) if main.state == "R" else None
            return found, later
        problems.append(found.problem)
    if stands_still and not problems:
        problems.append(f"a process in state {main.state} does not answer")
    return Stacks(source="", problem="; ".join(problem for problem in problems if problem)), None


def format_report(report: StuckReport) -> str:
    """Everything that was seen, for the log."""
    if report.process is None:
        return f"process {report.pid}: gone"
    count = len(report.threads)
    lines = [f"process {report.pid}: {count} {'thread' if count == 1 else 'threads'}"]
    for thread in report.threads:
        call = f", in {thread.call.name}" if thread.call else ""
        channel = f", waits in {thread.wait_channel}" if thread.wait_channel else ""
        share = f", {report.cpu_share(thread):.0%} of a processor"
        lines.append(f"  {thread.tid} {thread.name}: {thread.state}{call}{channel}{share}")
        if thread.tid in report.libraries and thread.kernel_stack:
            lines.append(f"    kernel: {' < '.join(thread.kernel_stack)}")
        if report.libraries.get(thread.tid):
            lines.append(f"    libraries on its stack: {', '.join(report.libraries[thread.tid])}")
    for file in report.files:
        if file.kind in ("file", "socket") and not file.path.startswith(("/dev/", "/memfd:")):
            size = f" of {file.size}" if file.size is not None else ""
            system = f" ({file.file_system})" if file.file_system else ""
            lines.append(f"  open: {file.fd} {file.path}{system}, at {file.position}{size}")
    if report.stacks.threads:
        lines.append(f"  Python stacks ({report.stacks.source}), innermost call first:")
        lines += [f"    {line}" for line in format_stacks(report.stacks.threads).splitlines()]
    elif report.stacks.problem:
        lines.append(f"  no Python stacks: {report.stacks.problem}")
    return "\n".join(lines)
