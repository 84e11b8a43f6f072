"""How a process that is not our child ended: its exit code or signal, where the kernel still tells."""

import os
import select
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.model import Text
from headrace.signals.system import read_stat

from .processes import is_running


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
        self._fds: dict[int, int | None] = {}  # None: this kernel (before 5.3) has no descriptors of processes

    def hold(self, pid: int) -> None:
        if pid in self._fds:
            return
        try:
            self._fds[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            pass
        except (OSError, AttributeError):
            self._fds[pid] = None

    def wait(self, timeout_s: float) -> tuple[End, ...]:
        """Wait until one of them ends, at most so long; return those that have, and let them go."""
        poller = select.poll()
        for fd in self._fds.values():
            if fd is not None:
                poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)}
        gone = [pid for pid, fd in self._fds.items() if (not is_running(pid) if fd is None else fd in ready)]
        ends = tuple(End(pid=pid, status=_exit_status(pid)) for pid in gone)
        self._let_go(gone)
        return ends

    def close(self) -> None:
        self._let_go([*self._fds])

    def _let_go(self, pids: Iterable[int]) -> None:
        for fd in map(self._fds.pop, pids):
            if fd is not None:
                os.close(fd)


def _exit_status(pid: int) -> int | None:
    """How a process ended, as `wait` gives it, while its parent has not asked; None where we are not told."""
    stat = read_stat(pid)
    if stat is None or not stat.has_ended:
        return None
    try:
        is_told = os.geteuid() in (0, os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        is_told = False
    return stat.exit_status if is_told or stat.exit_status else None  # others are told 0 always
