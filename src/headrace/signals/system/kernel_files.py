"""Reading the small files of /proc and /sys, any of which may be gone; our own, locked, unnamed, unwritable."""

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from multiprocessing import reduction
from pathlib import Path

_PIECE = 1 << 16
LOCK_IS_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR)
_LOOK_AGAIN_S = 0.001


class Fd:
    """A file descriptor that travels to a child process under every start method, and is closed once."""

    fd = -1

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


def anonymous_file(name: str, folder: str | None = None) -> int:
    """A file without a name: in memory, or, where a sandbox refuses memfd_create, an unlinked one in a folder."""
    try:
        return os.memfd_create(name, os.MFD_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
        fd, path = tempfile.mkstemp(prefix=f"{name}-", dir=folder)
        os.unlink(path)
        return fd


def read_start(path: Path | str, size: int) -> bytes:
    """The first bytes of a file, all from 64 KiB on, none if unreadable. (`open()` costs more than the kernel.)"""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = [os.read(fd, size)]
        while pieces[-1] and size >= _PIECE:  # of a long file the kernel gives a page at a time
            pieces.append(os.read(fd, _PIECE))
        return b"".join(pieces)
    except OSError:  # its process ended meanwhile
        return b""
    finally:
        os.close(fd)


def read_text(path: Path | str) -> str:
    """A whole file's text; empty where it cannot be read."""
    return read_start(path, _PIECE).decode("utf-8", "replace")


def read_int(path: Path | str) -> int | None:
    """A file of one whole number; None for "max" and the like."""
    text = read_text(path).strip()
    return int(text) if text.isdigit() else None


def read_table(path: Path | str) -> dict[str, int]:
    """Lines of "name value"; what is no whole number is left out."""
    pairs = (line.partition(" ") for line in read_text(path).splitlines())
    return {name: int(value) for name, _, value in pairs if value.strip().isdigit()}


def find_number(table: str, start: str) -> int | None:
    """The number of the line with that start ("pswpin ", "VmSwap:"), without splitting the others; None: no such."""
    _, _, rest = f"\n{table}".partition(f"\n{start}")
    value = rest.partition("\n")[0].split()[:1]
    return int(value[0]) if value and value[0].isdigit() else None


def find_bytes(table: str, start: str) -> int | None:
    """The same, of a line that tells kilobytes."""
    number = find_number(table, start)
    return None if number is None else number * 1024


def lock_file(fd: int, longest_s: float) -> OSError | None:
    """Wait for a file's `flock`; None when we have it, else why not: it was held all that time, or something else."""
    deadline = time.monotonic() + longest_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except OSError as error:
            if error.errno not in LOCK_IS_HELD or time.monotonic() > deadline:
                return error
        time.sleep(_LOOK_AGAIN_S)


def why_unwritable(path: str | os.PathLike[str]) -> OSError | None:
    """What the system would say to whoever writes a file there, which may not be there yet; None: nothing."""
    path = os.path.join(os.path.dirname(path), os.readlink(path)) if os.path.islink(path) else path
    folder = os.path.join(os.path.dirname(path) or ".", "")
    written = path if os.path.exists(path) else folder
    try:
        if os.access(written, os.W_OK) and (written == folder or not os.path.isdir(path)):
            return None
        is_read_only = os.statvfs(written).f_flag & os.ST_RDONLY
    except OSError as error:  # there is no such folder
        return error
    number = errno.EISDIR if os.path.isdir(path) else errno.EROFS if is_read_only else errno.EACCES
    return OSError(number, os.strerror(number))
