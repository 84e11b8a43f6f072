"""Lines added to a file that several processes and hosts share."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from pathlib import Path

_log = logging.getLogger(__name__)

# A file system that has no locks, or a server without a lock service.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_LONGEST_LOCK_WAIT_S = 10.0  # a line takes less than a millisecond; a host that died may hold its lock for minutes
_LOOK_AGAIN_S = 0.002

_said: set[str] = set()


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, whole or not at all, whoever else is adding lines at the same time.

    One write to the end of the file, under `flock`, which Linux passes on to the server for NFS. If an earlier
    writer was killed in the middle of a line, what it left gets a line of its own. If this write fails half way (a
    full disk), what was written is taken back, and the `OSError` is raised. The line has been given to the system
    when this returns: a process that is killed then loses nothing; a machine that loses power may.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            is_locked = _lock(fd, path)
            try:
                if not _is_at(fd, path):
                    continue  # somebody put another file in its place, as an editor does: add to that one
                _add(fd, line, is_locked=is_locked)
                return
            finally:
                if is_locked:
                    # Not left to `close`: a child that was forked just now has the file open too, and with it the lock.
                    fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)


def _add(fd: int, line: bytes, *, is_locked: bool) -> None:
    size = os.fstat(fd).st_size
    is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    rest = memoryview((b"\n" if is_torn else b"") + line + b"\n")
    try:
        while rest:  # once round, but for a full disk
            rest = rest[os.write(fd, rest) :]
    except OSError:
        if is_locked:  # without the lock it might be another's line
            os.ftruncate(fd, size)
        raise


def _lock(fd: int, path: Path) -> bool:
    """Wait for the lock; return whether we have it. Without it lines may mix, and a sample must not wait for ever."""
    deadline = time.monotonic() + _LONGEST_LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in _NO_LOCKS:
                _say_once(path, f"its file system has no locks ({error.strerror})")
                return False
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
        if time.monotonic() > deadline:
            _say_once(path, f"somebody has held its lock for {_LONGEST_LOCK_WAIT_S:.0f} s")
            return False
        time.sleep(_LOOK_AGAIN_S)


def _say_once(path: Path, why: str) -> None:
    text = f"{path} is written without a lock, so lines of several processes may mix: {why}"
    if text not in _said:
        _said.add(text)
        _log.warning("%s", text)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
