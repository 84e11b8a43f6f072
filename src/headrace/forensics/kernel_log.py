"""What the kernel wrote about a process's death, where its log may be read (root, outside most containers)."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_RECORD_BYTES = 8192  # the kernel gives one record a read, never longer than this
_KILLED = re.compile(r"(?P<scope>Memory cgroup out of memory|Out of memory)[^:]*: Kill(?:ed)? process (?P<pid>\d+)\b")
_CONSTRAINT = re.compile(r"oom-kill:constraint=(?P<kind>\w+),.*oom_memcg=(?P<group>[^,]*),.*\bpid=(?P<pid>\d+),")
_FAULT = re.compile(r"(?:traps: )?\S+?\[(?P<pid>\d+)\]:? .*?(?:segfault|general protection|trap \w+|error).*")
_LIBRARY = re.compile(r" in (?P<library>[^\s\[]+)\[")


@dataclass(frozen=True, kw_only=True)
class KernelWord:
    """What the kernel's log says of one process."""

    line: str
    is_memory_kill: bool
    group: str | None = None  # the control group whose limit was hit; None: the whole machine, or not told
    library: str | None = None  # where a crash happened


class KernelLog:
    """New lines of the kernel's log since this was opened. `close()` may be called twice."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def open(cls, path: Path = Path("/dev/kmsg")) -> KernelLog | None:
        """Begin to follow the log; None where this process may not read it."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            os.lseek(fd, 0, os.SEEK_END)
        except OSError:
            os.close(fd)
            return None
        return cls(fd)

    def read_new(self) -> list[str]:
        """The lines written since the last call, without waiting."""
        lines: list[str] = []
        while self._fd >= 0:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:  # older records were overwritten meanwhile: go on with the next
                    continue
                break
            if not record:
                break
            # "priority,sequence,time,flags;text", and continuation lines that begin with a space
            text = record.decode("utf-8", "replace").partition(";")[2]
            lines.append(text.partition("\n")[0])
        return lines

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def __enter__(self) -> KernelLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def find_word(lines: Sequence[str], pid: int) -> KernelWord | None:
    """What these lines say of a process; None where they do not name it.

    >>> find_word(["Out of memory: Killed process 12 (python) total-vm:9kB, anon-rss:1kB"], 12).is_memory_kill
    True
    >>> find_word(["python[12]: segfault at 0 ip 0 sp 0 error 4 in libjpeg.so.8[7f0+1000]"], 12).library
    'libjpeg.so.8'
    """
    groups: dict[int, str] = {}
    for line in lines:
        constraint = _CONSTRAINT.search(line)
        if constraint and constraint["kind"] == "CONSTRAINT_MEMCG":
            groups[int(constraint["pid"])] = constraint["group"]
    for line in lines:
        killed = _KILLED.search(line)
        if killed and int(killed["pid"]) == pid:
            group = groups.get(pid) if killed["scope"].startswith("Memory") else None
            return KernelWord(line=line, is_memory_kill=True, group=group)
    for line in lines:
        fault = _FAULT.search(line)
        if fault and int(fault["pid"]) == pid:
            library = _LIBRARY.search(line)
            return KernelWord(line=line, is_memory_kill=False, library=library["library"] if library else None)
    return None
