"""The pipes between a training process and its workers: work out, answers back."""

import contextlib
import fcntl
import os
import sys
import termios
from collections import deque

from headrace.signals.system import Fd

from .memory import RESULT_BYTES, WORK_BYTES, Head, Result, Task, Work

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_MOST_RESULTS = 2048


class Pipes:
    """The training process's ends. Workers share one pipe, or have each their own for an iterable data set."""

    def __init__(self, words: memoryview, *, is_shared: bool) -> None:
        self._words = words
        self._backlog: deque[bytes] = deque()
        self._own: dict[int, tuple[Fd, Fd]] = {}  # by worker; the read end is closed once its process has it
        self._shared: tuple[Fd, Fd] | None = None
        self._urgent: tuple[Fd, Fd] | None = None
        self.urgent_source: Fd | None = None
        if is_shared:
            self._shared, self._urgent = _pipe(), _pipe()
            self.urgent_source = self._urgent[0]
            for end in (self._shared[1], *self._urgent):
                os.set_blocking(end.fd, False)
        # what went into the pipes last: with the number of unread bytes it tells what no worker has taken yet
        self._written: deque[bytes] = deque(maxlen=_PIPE_BYTES // WORK_BYTES)
        self._written_urgent: deque[bytes] = deque(maxlen=_PIPE_BYTES // WORK_BYTES)
        self.answers, self.answers_to = _pipe()  # of which workers have the second
        os.set_blocking(self.answers.fd, False)

    # ------------------------------------------------------------------------------------ a worker's ends

    def open_for(self, worker: int) -> None:
        """Make sure that a worker has something to read from; what waited in a pipe of its own is gone with it."""
        if self._shared is None:
            if worker in self._own:
                self._own[worker][1].close()
            self._own[worker] = _pipe()

    def source_of(self, worker: int) -> Fd:
        """Where a worker reads its work."""
        return self._shared[0] if self._shared is not None else self._own[worker][0]

    def started(self, worker: int) -> None:
        """A worker's process has its ends: ours of a pipe of its own is of no use any more."""
        if self._shared is None:
            self._own[worker][0].close()

    # ------------------------------------------------------------------------------------ talk

    def send(self, work: Work, *, worker: int = -1) -> None:
        """Give work to whichever worker is free, or to a certain one."""
        if worker >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._own[worker][1].fd, work.pack())
            return
        self._backlog.append(work.pack())

    def flush(self) -> None:
        """Write what fits into the pipe; the rest follows when workers have made room."""
        if self._shared is None or not self._backlog:
            return
        fd = self._shared[1].fd
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
        self._words[Head.REISSUED] = 1
        message = work.pack()
        try:
            os.write(self._urgent[1].fd, message)
        except BlockingIOError:  # tens of thousands wait there: it may as well wait with the rest
            self._backlog.appendleft(message)
            return
        self._written_urgent.append(message)
        self._words[Head.URGENT] = 1
        # workers that sleep at the other pipe do not see that word
        self._backlog.appendleft(Work(-1, 0, 0, Task.LOOK).pack())

    def send_again(self, work: Work) -> None:
        """Give out what was given out before, behind all that waits."""
        self._words[Head.REISSUED] = 1
        self.send(work)

    def send_first(self, work: Work) -> None:
        """Give work out before what has not been written to the pipe yet."""
        self._words[Head.REISSUED] = 1
        self._backlog.appendleft(work.pack())

    def unread(self) -> list[Work]:
        """Work that no worker has taken yet."""
        waiting = list(self._backlog)
        for pipe, written in ((self._shared, self._written), (self._urgent, self._written_urgent)):
            if pipe is not None:
                count = _unread_bytes(pipe[0].fd) // WORK_BYTES
                waiting += list(written)[len(written) - count :]
        if self._urgent is not None and not _unread_bytes(self._urgent[0].fd):
            self._words[Head.URGENT] = 0
        return [*map(Work.unpack, waiting)]

    def receive(self) -> list[Result]:
        """Answers that have come, without waiting."""
        results: list[Result] = []
        while True:
            try:
                data = os.read(self.answers.fd, RESULT_BYTES * _MOST_RESULTS)
            except BlockingIOError:
                return results
            results += Result.unpack_all(data)
            if len(data) < RESULT_BYTES * _MOST_RESULTS:
                return results

    # ------------------------------------------------------------------------------------ end

    def wake(self, count: int) -> None:
        """Tell `count` workers to end, whatever waits for them, and let none be blocked by answers nobody read."""
        self._backlog.clear()
        message = Work(-1, 0, 0, Task.RETIRE).pack()
        fds = [own[1].fd for own in self._own.values()]
        if self._shared is not None:
            fds = [self._shared[1].fd] * count
        for fd in fds:
            with contextlib.suppress(OSError):
                os.set_blocking(fd, False)
                os.write(fd, message)
        with contextlib.suppress(OSError):
            while os.read(self.answers.fd, 1 << 16):
                pass

    def close(self) -> None:
        for pipe in (self._shared or (), self._urgent or (), (self.answers, self.answers_to), *self._own.values()):
            for end in pipe:
                end.close()


def _pipe() -> tuple[Fd, Fd]:
    read_end, write_end = os.pipe()
    with contextlib.suppress(OSError):  # an unprivileged user has a limit on pipe memory; the default size works too
        fcntl.fcntl(write_end, _F_SETPIPE_SZ, _PIPE_BYTES)
    return Fd(read_end), Fd(write_end)


def _unread_bytes(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)
