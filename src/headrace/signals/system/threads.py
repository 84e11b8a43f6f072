"""What the kernel says of the threads of another process: state, where it waits, what it used."""

import contextlib
import os
import platform
import re
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .kernel_files import read_text
from .processes import read_schedule, read_stat

_FUTEX_PRIVATE, _FUTEX_COMMAND = 0x80, 0x7F
_STACK_BYTES = 32 << 10
_MOST_SMALL = 1 << 16
_ON_A_FILE = {
    *("read", "pread64", "readv", "preadv", "write", "recvfrom", "recvmsg", "recvmmsg", "connect", "accept", "accept4"),
    *("fcntl", "flock", "fsync", "fdatasync", "getdents64", "fstat"),
}
# Names of the system calls in which a data set may wait, by processor and number.
_CALLS = {
    "x86_64": """
        0 read 1 write 2 open 4 stat 5 fstat 6 lstat 7 poll 17 pread64 19 readv 23 select 34 pause 35 nanosleep
        42 connect 43 accept 45 recvfrom 47 recvmsg 61 wait4 72 fcntl 73 flock 74 fsync 75 fdatasync 202 futex
        208 io_getevents 217 getdents64 230 clock_nanosleep 232 epoll_wait 247 waitid 257 openat 262 newfstatat
        270 pselect6 271 ppoll 281 epoll_pwait 288 accept4 295 preadv 299 recvmmsg 332 statx 426 io_uring_enter
    """,
    "aarch64": """
        4 io_getevents 22 epoll_pwait 25 fcntl 32 flock 56 openat 61 getdents64 63 read 64 write 65 readv
        67 pread64 69 preadv 72 pselect6 73 ppoll 79 newfstatat 80 fstat 82 fsync 83 fdatasync 95 waitid 98 futex
        101 nanosleep 115 clock_nanosleep 202 accept 203 connect 207 recvfrom 212 recvmsg 242 accept4 243 recvmmsg
        260 wait4 291 statx 426 io_uring_enter
    """,
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """The system call that a thread is in."""

    name: str
    args: tuple[int, ...]
    stack_pointer: int
    code_pointer: int

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the file that it works on; None where its first argument is none."""
        return self.args[0] if self.name in _ON_A_FILE else None

    @property
    def waits_for_thread(self) -> bool:
        """Whether only another thread of the same process can end it: a private futex without a timeout."""
        is_wait = self.name == "futex" and self.args[1] & _FUTEX_COMMAND in (0, 9) and not self.args[3]
        return is_wait and bool(self.args[1] & _FUTEX_PRIVATE)

    def libraries(self, pid: int, *, root: Path = Path("/")) -> tuple[str, ...]:
        """Shared libraries in whose code a waiting thread is, innermost first: its code pointer, then its stack."""
        # The stack is searched for addresses of code, so that no debugger is needed; one that a finished call left
        # there counts too. A parent may read this of its child (`ptrace_scope` 1 allows it).
        code = []
        for line in read_text(root / f"proc/{pid}/maps").splitlines():
            fields = line.split(maxsplit=5)
            name = os.path.basename(fields[5]) if len(fields) == 6 else ""
            if "x" in fields[1] and (".so" in name or name.startswith("python")):
                first, _, last = fields[0].partition("-")
                code.append((int(first, 16), int(last, 16), name))
        data = _read_memory(root, pid, self.stack_pointer, _STACK_BYTES)
        # an int that was stored over the lower half of an old pointer (the futex's own operation, say) is no address,
        # and where a library is mapped across a multiple of 4 GiB it would look like one
        words = (word for (word,) in struct.iter_unpack("Q", data[: len(data) // 8 * 8]))
        on_stack = (word for word in words if word & 0xFFFFFFFF >= _MOST_SMALL)
        found = (name for at in (self.code_pointer, *on_stack) for start, end, name in code if start <= at < end)
        return tuple(dict.fromkeys(found))

    def polled(self, pid: int, *, root: Path = Path("/")) -> tuple[int, ...]:
        """The descriptors that a thread waits for in `poll`; empty where it is in another call."""
        if self.name not in ("poll", "ppoll"):
            return ()
        data = _read_memory(root, pid, self.args[0], 8 * min(self.args[1], 16))
        return tuple(fd for fd, _ in struct.iter_unpack("ii", data[: len(data) // 8 * 8]) if fd >= 0)


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


def read_threads(
    pid: int, *, root: Path = Path("/"), thread_ids: tuple[int, ...] | None = None
) -> tuple[ThreadState, ...]:
    """The threads of a process, its first one first; empty where it is gone."""
    try:
        tids = sorted((int(name) for name in os.listdir(root / f"proc/{pid}/task")), key=lambda tid: (tid != pid, tid))
    except OSError:
        return ()
    threads = (_read_thread(root, pid, tid) for tid in tids if thread_ids is None or tid in thread_ids)
    return tuple(thread for thread in threads if thread is not None)


def read_moment(pid: int, tid: int | None = None, *, root: Path = Path("/")) -> tuple[str, Call | None] | None:
    """State, and where we may see it system call, of one thread (else the first); None where it is gone."""
    tid = pid if tid is None else tid
    stat = read_stat(pid, tid=tid, root=root)
    return (stat.state, _parse_call(read_text(root / f"proc/{pid}/task/{tid}/syscall"))) if stat is not None else None


def _read_thread(root: Path, pid: int, tid: int) -> ThreadState | None:
    stat = read_stat(pid, tid=tid, root=root)
    if stat is None:
        return None
    folder = root / f"proc/{pid}/task/{tid}"
    channel, exact = read_text(folder / "wchan").strip(), read_schedule(pid, tid=tid, root=root)
    return ThreadState(
        tid=tid,
        name=stat.name,
        state=stat.state,
        wait_channel="" if channel == "0" else channel,
        call=_parse_call(read_text(folder / "syscall")),
        kernel_stack=tuple(re.findall(r"\] *([^\s+]+)", read_text(folder / "stack"))),  # [<0>] futex_wait+0x1/0x2
        cpu_s=exact[0] if exact else stat.cpu_s,  # from the scheduler where it tells, else in ticks of 10 ms
    )


def _read_memory(root: Path, pid: int, address: int, size: int) -> bytes:
    """A piece of another process's memory; empty where that is not allowed."""
    with contextlib.suppress(OSError, ValueError, OverflowError), open(root / f"proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(address)
        return memory.read(size)
    return b""


def _parse_call(text: str) -> Call | None:
    """Number, six arguments, stack and code pointer; "running", or -1 outside of any call (a page fault)."""
    fields = text.split()
    if len(fields) < 9 or not fields[0].isdigit():
        return None
    number, *args, stack_pointer, code_pointer = fields
    return Call(
        name=call_name(int(number)),
        args=tuple(int(arg, 16) for arg in args),
        stack_pointer=int(stack_pointer, 16),
        code_pointer=int(code_pointer, 16),
    )


@cache
def call_name(number: int, machine: str = "") -> str:
    """The name of a system call; "call 999" for one that is not in the table.

    >>> call_name(202, "x86_64"), call_name(98, "aarch64"), call_name(999, "x86_64")
    ('futex', 'futex', 'call 999')
    """
    words = _CALLS.get(machine or platform.machine(), "").split()
    return dict(zip(words[::2], words[1::2], strict=True)).get(str(number), f"call {number}")
