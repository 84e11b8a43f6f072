"""Bringing a file's pages out of the page cache, and knowing whether they are.

Three ways to read what is not in the cache, and what each proves:

- `O_DIRECT` goes past the page cache. Memory file systems take the flag and ignore it, and so does ZFS before 2.3.
- `posix_fadvise(DONTNEED)` drops a file's clean pages for anyone who may read it. Pages that are dirty, locked or
  mapped by somebody stay, so it needs a look afterwards.
- The look: `cachestat(2)` (Linux 6.5) or `mincore(2)`. Both tell the truth only to who owns the file or may write it
  (since 5.2 mincore says "all resident" to others); for others' files we do not know.

And for any file on a block device `/proc/self/io` counts what this process had brought from storage (`read_bytes`):
if it is as much as was read, nothing came from the cache. That needs no right to the file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

PAGE = mmap.PAGESIZE
_CACHESTAT = 451  # the number on every architecture
_ALIGNMENT = 4096  # of a direct read: what any disk accepts

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent"))


def drop_from_cache(fd: int, offset: int = 0, length: int = 0) -> None:
    """Ask the kernel to let go of a file's pages; `length` 0: to the end. Whether it did is `cached_share`'s to say."""
    try:
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass  # not every file system takes advice; the look afterwards tells


def cached_share(fd: int, offset: int, length: int) -> float | None:
    """The share of a range that is in the page cache; None where the kernel does not tell us."""
    if length <= 0:
        return 0.0
    if not _may_look(fd):
        return None
    start = offset - offset % PAGE
    num_pages = -(-(offset + length - start) // PAGE)
    cached = _cachestat(fd, start, num_pages * PAGE)
    if cached:
        return min(1.0, cached / num_pages)
    # None of them: true, or an overlay, whose files have their pages elsewhere; `mincore` looks there, at a mapping.
    looked, found = 0, 0
    for first, count in _pieces(num_pages):
        seen = _mincore(fd, start + first * PAGE, count)
        if seen is None:
            return None if cached is None else 0.0
        looked, found = looked + count, found + seen
    return found / looked


def open_direct(path: str) -> int | None:
    """Open a file for reads past the page cache; None where that does not work. Reads are multiples of 4096 bytes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:  # EINVAL: this file system does not know it
        return None
    with mmap.mmap(-1, _ALIGNMENT) as buffer:
        try:
            os.preadv(fd, [buffer], 0)
        except OSError:
            os.close(fd)
            return None
    return fd


def fetched_bytes(proc_root: Path = Path("/proc")) -> int | None:
    """What this process had brought from block devices so far, by all of its threads; None: not counted here."""
    try:
        lines = (proc_root / "self/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _pieces(num_pages: int) -> list[tuple[int, int]]:
    """All pages, or of a large range some pieces of it: the look costs a byte a page."""
    most, piece = (1 << 30) // PAGE, (64 << 20) // PAGE
    if num_pages <= most:
        return [(0, num_pages)]
    return [(part * (num_pages - piece) // 3, piece) for part in range(4)]


def _may_look(fd: int) -> bool:
    """Whether the kernel tells us the truth about a file's pages: to its owner, and to who may write it."""
    if os.fstat(fd).st_uid == os.geteuid() or os.geteuid() == 0:
        return True
    try:
        return os.access(f"/proc/self/fd/{fd}", os.W_OK)
    except OSError:
        return False


def _cachestat(fd: int, offset: int, length: int) -> int | None:
    counts = _Counts()
    wanted = _Range(offset, length)
    code = _libc.syscall(_CACHESTAT, fd, ctypes.byref(wanted), ctypes.byref(counts), 0)
    return int(counts.cached) if code == 0 else None


def _mincore(fd: int, offset: int, num_pages: int) -> int | None:
    length = num_pages * PAGE
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        pages = ctypes.create_string_buffer(num_pages)
        if _libc.mincore(address, length, pages) != 0:
            return None
        return sum(byte & 1 for byte in pages.raw)
    finally:
        _libc.munmap(address, length)
