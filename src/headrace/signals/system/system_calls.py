"""Names of the system calls in which a data set may wait, by processor."""

from __future__ import annotations

import platform

_TABLES = {
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


def _parse(text: str) -> dict[int, str]:
    words = text.split()
    return dict(zip(map(int, words[::2]), words[1::2], strict=True))


_NAMES = {machine: _parse(table) for machine, table in _TABLES.items()}


def call_name(number: int, machine: str = "") -> str:
    """The name of a system call; "call 999" for one that is not in the table.

    >>> call_name(202, "x86_64"), call_name(98, "aarch64"), call_name(999, "x86_64")
    ('futex', 'futex', 'call 999')
    """
    return _NAMES.get(machine or platform.machine(), {}).get(number, f"call {number}")
