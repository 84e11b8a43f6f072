"""What the kernel says of the threads of another process: state, where it waits, what it used."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from .kernel_files import read_text
from .system_calls import call_name

_FUTEX_PRIVATE, _FUTEX_COMMAND = 0x80, 0x7F
_STACK_BYTES = 32 << 10
_MOST_SMALL = 1 << 16
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Call:
    """The system call that a thread is in."""

    name: str
    args: tuple[int, ...]
    stack_pointer: int
    code_pointer: int

    @property
    def is_lock_wait(self) -> bool:
        """Waits for another thread, without an end of its own: a futex without a timeout."""
        return self.name == "futex" and self.args[1] & _FUTEX_COMMAND in (0, 9) and not self.args[3]

    @property
    def is_private(self) -> bool:
        """Of a futex: only threads of the same process can end the wait."""
        return self.name == "futex" and bool(self.args[1] & _FUTEX_PRIVATE)


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """One thread at one moment."""

    tid: int
    name: str
    state: str  # R running, S sleeping, D uninterruptible, T stopped, t traced, Z ended
    wait_channel: str  # the kernel function in which it sleeps; "" where it runs or this is hidden
    call: Call | None
    kernel_stack: tuple[str, ...]  # innermost first; only root sees it
    cpu_s: float
    major_faults: int
    voluntary_switches: int


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """What holds for the whole process."""

    parent_pid: int
    tracer_pid: int
    rss_bytes: int
    swap_bytes: int
    is_frozen: bool  # by a control group
    is_forked: bool  # from its parent without a new program: it has the parent's memory, but one thread of it


def read_threads(
    pid: int, *, root: Path = Path("/"), thread_ids: tuple[int, ...] | None = None
) -> tuple[ThreadState, ...]:
    """The threads of a process, its first one first; empty where it is gone."""
    folder = root / f"proc/{pid}/task"
    try:
        tids = sorted((int(name) for name in os.listdir(folder)), key=lambda tid: (tid != pid, tid))
    except OSError:
        return ()
    threads = (_read_thread(folder / str(tid), tid) for tid in tids if thread_ids is None or tid in thread_ids)
    return tuple(thread for thread in threads if thread is not None)


def read_moment(pid: int, tid: int | None = None, *, root: Path = Path("/")) -> tuple[str, Call | None] | None:
    """State and system call of one thread (the first one unless told otherwise): two small files, for many looks.

    None where it is gone. Without the right to attach there is no call.
    """
    folder = root / f"proc/{pid}/task/{pid if tid is None else tid}"
    fields = read_text(folder / "stat").rpartition(")")[2].split()
    return (fields[0], _parse_call(read_text(folder / "syscall"))) if fields else None


def _read_thread(folder: Path, tid: int) -> ThreadState | None:
    # "pid (name) state ppid …": the name may hold anything, also brackets
    head, _, tail = read_text(folder / "stat").rpartition(")")
    fields = tail.split()
    if len(fields) < 13:
        return None
    status = read_status(folder)
    channel = read_text(folder / "wchan").strip()
    return ThreadState(
        tid=tid,
        name=head.partition("(")[2],
        state=fields[0],
        wait_channel="" if channel == "0" else channel,
        call=_parse_call(read_text(folder / "syscall")),
        kernel_stack=_parse_kernel_stack(read_text(folder / "stack")),
        cpu_s=_cpu_s(folder, fields),
        major_faults=int(fields[9]),
        voluntary_switches=int(status.get("voluntary_ctxt_switches", "0")),
    )


def _cpu_s(folder: Path, fields: list[str]) -> float:
    """Processor time so far: exact from the scheduler where it tells, else in ticks of 10 ms."""
    exact = read_text(folder / "schedstat").split()
    if exact and exact[0].isdigit():
        return int(exact[0]) / 1e9
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def read_process(pid: int, *, root: Path = Path("/")) -> ProcessState | None:
    """Parent, tracer, memory of a process; None where it is gone."""
    status = read_status(root / f"proc/{pid}")
    if "PPid" not in status:
        return None
    parent = int(status["PPid"])
    own, parents = _program_place(root, pid), _program_place(root, parent)
    return ProcessState(
        parent_pid=parent,
        tracer_pid=int(status.get("TracerPid", "0")),
        rss_bytes=_kilobytes(status.get("VmRSS")),
        swap_bytes=_kilobytes(status.get("VmSwap")),
        is_frozen=_is_frozen(pid, root),
        is_forked=own is not None and own == parents,
    )


def _is_frozen(pid: int, root: Path) -> bool:
    """Whether a control group, v1 or v2, holds the process: newer kernels show its threads as if they slept."""
    for line in read_text(root / f"proc/{pid}/cgroup").splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        own = path.lstrip("/")
        if "freezer" in controllers.split(","):
            if read_text(root / "sys/fs/cgroup/freezer" / own / "freezer.state").strip() in ("FROZEN", "FREEZING"):
                return True
        elif not controllers:
            for top in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
                if "frozen 1" in read_text(root / top / own / "cgroup.events"):
                    return True
    return False


def read_status(folder: Path) -> dict[str, str]:
    """The fields of a `status` file."""
    pairs = (line.partition(":") for line in read_text(folder / "status").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def catches(pid: int, number: int, *, root: Path = Path("/")) -> bool:
    """Whether a process has a handler for a signal: else a real-time signal would end it."""
    mask = int(read_status(root / f"proc/{pid}").get("SigCgt", "0"), 16)
    return bool(mask >> (number - 1) & 1)


def libraries_of(pid: int, call: Call, *, root: Path = Path("/")) -> tuple[str, ...]:
    """Shared libraries in whose code a waiting thread is, innermost first: its code pointer, then its stack.

    The stack is searched for addresses of code, so that no debugger is needed; an address that a finished call left
    there counts too. A parent may read this of its child (`ptrace_scope` 1 allows it).
    """
    code = _code_mappings(root, pid)
    found: dict[str, None] = {}

    def note(address: int) -> None:
        for start, end, name in code:
            if start <= address < end:
                found.setdefault(name)
                return

    note(call.code_pointer)
    data = _read_memory(root, pid, call.stack_pointer, _STACK_BYTES)
    for (address,) in struct.iter_unpack("Q", data[: len(data) // 8 * 8]):
        # an int that was stored over the lower half of an old pointer (the futex's own operation, say) is no address,
        # and where a library is mapped across a multiple of 4 GiB it would look like one
        if address & 0xFFFFFFFF >= _MOST_SMALL:
            note(address)
    return tuple(found)


def polled_descriptors(pid: int, call: Call, *, root: Path = Path("/")) -> tuple[int, ...]:
    """The descriptors that a thread waits for in `poll`; empty where it is in another call."""
    if call.name not in ("poll", "ppoll"):
        return ()
    data = _read_memory(root, pid, call.args[0], 8 * min(call.args[1], 16))
    return tuple(fd for fd, _ in struct.iter_unpack("ii", data[: len(data) // 8 * 8]) if fd >= 0)


def _read_memory(root: Path, pid: int, address: int, size: int) -> bytes:
    """A piece of another process's memory; empty where that is not allowed."""
    with contextlib.suppress(OSError, ValueError, OverflowError), open(root / f"proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(address)
        return memory.read(size)
    return b""


def _code_mappings(root: Path, pid: int) -> list[tuple[int, int, str]]:
    found = []
    for line in read_text(root / f"proc/{pid}/maps").splitlines():
        fields = line.split(maxsplit=5)
        name = os.path.basename(fields[5]) if len(fields) == 6 else ""
        if "x" in fields[1] and (".so" in name or name.startswith("python")):
            start, _, end = fields[0].partition("-")
            found.append((int(start, 16), int(end, 16), name))
    return found


def _parse_call(text: str) -> Call | None:
    """Number, six arguments, stack and code pointer; "running", or -1 outside of any call (a page fault)."""
    fields = text.split()
    if len(fields) < 9 or not fields[0].isdigit():
        return None
    number, *args, stack_pointer, code_pointer = fields
    name = call_name(int(number))
    return Call(
        name=name,
        args=tuple(int(arg, 16) for arg in args),
        stack_pointer=int(stack_pointer, 16),
        code_pointer=int(code_pointer, 16),
    )


def _parse_kernel_stack(text: str) -> tuple[str, ...]:
    """Function names of "[<0>] futex_wait+0x1/0x2" lines."""
    lines = (line.partition("]")[2].strip().partition("+")[0] for line in text.splitlines())
    return tuple(line for line in lines if line)


def _program_place(root: Path, pid: int) -> tuple[str, str] | None:
    """Where the program's code and first stack lie: the same in parent and child only without an `exec` between."""
    fields = read_text(root / f"proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 26 or fields[25] in ("0", "1"):  # hidden from us
        return None
    return fields[23], fields[25]


def _kilobytes(text: str | None) -> int:
    return int(text.split()[0]) * 1024 if text else 0
