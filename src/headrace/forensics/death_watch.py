"""Notes, before a worker dies, what is needed to understand its death after it: kill counters and the kernel's log."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from headrace.signals.system import OomCounts, memory_groups, read_limits, read_oom_counts

from .deaths import DeathFacts, KernelWord, SampleInHand, ShmRoom, kill_count
from .memory import MemorySample

# A death is noticed within a fraction of a second, so a count this old is surely from before it; an older one would
# let the kill of another job in the same group, minutes ago, explain a SIGKILL of now.
_LOOK_BACK_S = 3.0
_EVERY_S = 1.0
_MOST_LINES = 400
_RECORD_BYTES = 8192  # the kernel gives one record a read, never longer than this
_KILLED = re.compile(r"(?P<scope>Memory cgroup out of memory|Out of memory)[^:]*: Kill(?:ed)? process (?P<pid>\d+)\b")
_CONSTRAINT = re.compile(r"oom-kill:constraint=(?P<kind>\w+),.*oom_memcg=(?P<group>[^,]*),.*\bpid=(?P<pid>\d+),")
_FAULT = re.compile(r"(?:traps: )?\S+?\[(?P<pid>\d+)\]:? .*?(?:segfault|general protection|trap \w+|error).*")
_LIBRARY = re.compile(r" in (?P<library>[^\s\[]+)\[")


class DeathWatch:
    """Follows the kernel's kill counters and log for one loader. `close()` may be called twice.

    Call `note(now_s)` about once a second (it returns at once when not due) and `facts(…)` when a worker is gone.
    """

    def __init__(self, now_s: float, *, root: Path = Path("/"), kernel_log: Path = Path("/dev/kmsg")) -> None:
        self._root = root
        self.groups = memory_groups(root)
        self._log = KernelLog.open(kernel_log)
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._counts: deque[tuple[float, OomCounts]] = deque([(now_s, read_oom_counts(self.groups, root))])
        self._claims: deque[float] = deque()  # when a kill of the counters was explained by a death

    def note(self, now_s: float) -> None:
        """Keep a recent count to compare with; free when called more often than once a second."""
        if now_s - self._counts[-1][0] < _EVERY_S:
            return
        self._counts.append((now_s, read_oom_counts(self.groups, self._root)))
        # the first that stays is the youngest of those that are old enough
        while len(self._counts) > 1 and now_s - self._counts[1][0] >= _LOOK_BACK_S:
            self._counts.popleft()
        while self._claims and self._claims[0] < self._counts[0][0]:
            self._claims.popleft()

    def facts(
        self,
        workers: tuple[int, ...],
        pid: int,
        exit_code: int | None,
        *,
        now_s: float,
        memory: tuple[MemorySample, ...] = (),
        samples: tuple[SampleInHand, ...] = (),
        has_begun: bool = True,
        stack: tuple[str, ...] = (),
        sent_by_guard: str | None = None,
    ) -> DeathFacts:
        """Everything known of a death, read now. Each kill that the kernel counted explains one death at most."""
        after = read_oom_counts(self.groups, self._root)
        before = self._less_claims(self._counts[0][1], after)
        if self._log is not None:
            self._lines.extend(self._log.read_new())
        kernel = find_word(self._lines, pid)
        is_kill = exit_code == -signal.SIGKILL and sent_by_guard is None
        if is_kill and (kill_count(after) or 0) > (kill_count(before) or 0):
            self._claims.append(now_s)
        _, cpu_limit = resource.getrlimit(resource.RLIMIT_CPU)
        return DeathFacts(
            workers=workers,
            pid=pid,
            exit_code=exit_code,
            oom_before=before,
            oom_after=after,
            memory=memory,
            limits=read_limits(self.groups),
            died_at_s=now_s,
            samples=samples,
            has_begun=has_begun,
            shm=read_shm_room(),
            kernel=kernel,
            stack=stack,
            sent_by_guard=sent_by_guard,
            cpu_limit_s=None if cpu_limit == resource.RLIM_INFINITY else float(cpu_limit),
        )

    def _less_claims(self, before: OomCounts, after: OomCounts) -> OomCounts:
        """The earlier counts, moved up by the kills that already explain a death."""
        ceiling = {kills.group: kills.kills for kills in after.groups}
        groups = []
        for kills in before.groups:
            most = ceiling.get(kills.group)
            if kills.kills is not None and most is not None:
                kills = replace(kills, kills=min(most, kills.kills + len(self._claims)))
            groups.append(kills)
        machine = before.machine
        if machine is not None and after.machine is not None:
            machine = min(after.machine, machine + len(self._claims))
        return OomCounts(groups=tuple(groups), machine=machine)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> DeathWatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def read_shm_room(path: Path = Path("/dev/shm")) -> ShmRoom | None:
    """How full /dev/shm is now; None where there is none."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return ShmRoom(free_bytes=stat.f_bavail * stat.f_frsize, total_bytes=stat.f_blocks * stat.f_frsize)


# ---------------------------------------------------------------------------------------- the kernel's log


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
