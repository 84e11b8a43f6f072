"""A file descriptor that child processes get too."""

from __future__ import annotations

import contextlib
import os
from multiprocessing import reduction


class Fd:
    """A file descriptor that travels to a child process under every start method, and is closed once."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __getstate__(self) -> object:
        return reduction.DupFd(self.fd)

    def __setstate__(self, state: object) -> None:
        self.fd = state.detach()  # type: ignore[attr-defined]  # one of multiprocessing's own handle classes

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()
