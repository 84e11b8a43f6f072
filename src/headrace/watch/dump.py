"""Everything that can be seen of a run that hangs: stacks, wait channels, open files, locks, of every process."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model import format_bytes, utc_now
from headrace.signals import Stacks, dump_with_py_spy, format_stacks
from headrace.signals.system import ThreadState, read_open_files, read_text, read_threads

from .processes import ProcessFacts, Role
from .session import Cast

_MOST_FILES = 64
_LONGEST_LINE = 200


def dump_run(cast: Cast) -> str:
    """Write down all processes of a training. Native stacks stop each process for a moment, one after the other."""
    lines = [f"headrace watch --dump, {utc_now()}", ""]
    for process in cast.processes:
        lines += [*_process(process, cast), ""]
    locks = list(_locks({process.pid for process in cast.processes}))
    if locks:
        lines += ["file locks of these processes (/proc/locks):", *(f"  {line}" for line in locks)]
    return "\n".join(lines).rstrip() + "\n"


def _process(process: ProcessFacts, cast: Cast) -> Iterable[str]:
    role = cast.roles[process.pid]
    rank = "" if process.rank is None else f", rank {process.rank}"
    yield f"=== {role.value} {process.pid} ({process.name}){rank}, parent {process.parent_pid}: {process.command_line}"
    threads = read_threads(process.pid)
    if not threads:
        yield "  it is gone"
        return
    stands_still = any(thread.state in "TtD" for thread in threads)
    if process.is_python:
        stacks = _stacks(process.pid, native=not stands_still and role in (Role.TRAINER, Role.WORKER))
        if stacks.threads:
            yield f"  stacks ({stacks.source}), innermost call first:"
            # a C++ template's name may take a screen
            yield from (f"    {line[:_LONGEST_LINE]}" for line in format_stacks(stacks.threads).splitlines())
        else:
            yield f"  no Python stacks: {stacks.problem}"
    yield f"  threads ({len(threads)}):"
    yield from (f"    {_thread(thread)}" for thread in threads)
    yield from _files(process.pid)


def _stacks(pid: int, *, native: bool) -> Stacks:
    """Native where allowed; what pauses a process and fails is tried without a pause."""
    found = dump_with_py_spy(pid, native=True) if native else Stacks(source="")
    return found if found.threads else dump_with_py_spy(pid, native=False, pauses=False)


def _thread(thread: ThreadState) -> str:
    parts = [f"{thread.tid} {thread.name}: state {thread.state}, {thread.cpu_s:.2f} s of processor time"]
    if thread.call is not None:
        parts.append(f"in {thread.call.name}{' without a timeout' if thread.call.is_lock_wait else ''}")
    if thread.wait_channel:
        parts.append(f"waits in {thread.wait_channel}")
    if thread.kernel_stack:
        parts.append(f"kernel: {' < '.join(thread.kernel_stack[:6])}")
    return ", ".join(parts)


def _files(pid: int) -> Iterable[str]:
    files = read_open_files(pid)
    if files:
        yield f"  open files ({len(files)}):"
    for file in files[:_MOST_FILES]:
        size = f" of {format_bytes(file.size)}" if file.size is not None else ""
        system = f", {file.file_system}" if file.file_system else ""
        yield f"    {file.fd} {file.path}, at {file.position}{size}{system}"
    if len(files) > _MOST_FILES:
        yield f"    and {len(files) - _MOST_FILES} more"


def _locks(pids: set[int]) -> Iterable[str]:
    for line in read_text("/proc/locks").splitlines():
        fields = line.replace("-> ", "").split()
        if len(fields) > 4 and fields[4].isdigit() and int(fields[4]) in pids:
            yield line
