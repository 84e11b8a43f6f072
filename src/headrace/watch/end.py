"""How a process that is not our child ended: its exit code or signal, where the kernel still tells."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
from dataclasses import dataclass

from headrace.model import Text

from .processes import exit_status

# Linux 6.13: what a pidfd knows of its process; 6.15: also how it ended, after it is gone. linux/pidfd.h
_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_INFO = struct.Struct("=QQ11Ii")  # mask, cgroup, pid, tgid, ppid, 8 ids, exit code
_INFO_EXIT = 1 << 3


@dataclass(frozen=True, kw_only=True)
class End:
    """How a process ended; without a status where nobody but its parent could know."""

    pid: int
    status: int | None = None  # as `wait` gives it

    @property
    def signal_number(self) -> int | None:
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None

    @property
    def is_known_good(self) -> bool:
        return self.exit_code == 0

    @property
    def is_known_bad(self) -> bool:
        return self.status is not None and not self.is_known_good

    def text(self) -> Text:
        """Say it in a few words that follow the name of the process."""
        if self.signal_number is not None:
            try:
                name = signal.Signals(self.signal_number).name
            except ValueError:
                name = str(self.signal_number)
            return Text(f"was ended by signal {name}", f"被信号 {name} 终止")
        if self.exit_code is not None:
            return Text(f"ended with exit code {self.exit_code}", f"已结束，退出码 {self.exit_code}")
        return Text("has ended (how, only its parent knows)", "已结束（结束方式只有它的父进程知道）")


class EndWatch:
    """Holds on to processes, so that their ends are noticed at once and told afterwards."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}

    def __enter__(self) -> EndWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self, pid: int) -> None:
        """Watch one more process; one that is gone already, or that this system cannot watch, is left out."""
        if pid not in self._fds:
            with contextlib.suppress(OSError, AttributeError):
                self._fds[pid] = os.pidfd_open(pid)

    def wait(self, timeout_s: float) -> tuple[End, ...]:
        """Wait until one of them ends, at most so long; return those that have, and let them go."""
        poller = select.poll()
        for fd in self._fds.values():
            poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)}
        ended = []
        for pid, fd in list(self._fds.items()):
            if fd in ready:
                ended.append(End(pid=pid, status=_status(pid, fd)))
                os.close(self._fds.pop(pid))
        return tuple(ended)

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _status(pid: int, fd: int) -> int | None:
    """Ask the pidfd, then the process's last line in /proc, which is there until its parent has asked."""
    buffer = bytearray(_INFO.size)
    struct.pack_into("=Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(fd, _GET_INFO, buffer)
        fields = _INFO.unpack(buffer)
        if fields[0] & _INFO_EXIT:
            return int(fields[13])
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL, errno.ESRCH, errno.EPERM, errno.ENOSYS):
            raise
    return exit_status(pid)
