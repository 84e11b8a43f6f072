"""A file's pages in the page cache: dropping them, reading past them, and knowing whether they are there.

Three ways to read what is not in the cache, and what each proves:

- `O_DIRECT` goes past the page cache. Memory file systems take the flag and ignore it, and so does ZFS before 2.3.
- `posix_fadvise(DONTNEED)` drops a file's clean pages for anyone who may read it. Pages that are dirty, locked or
  mapped by somebody stay, so it needs a look afterwards: `mincore(2)`. It tells the truth only to who owns the file or
  may write it (since Linux 5.2 it says "all resident" to others); for others' files we do not know. (`cachestat(2)` is
  newer and needs no mapping, but it looks past the files of an overlay, whose pages lie elsewhere.)
- For any file on a block device `/proc/self/io` counts what this process had brought from storage (`read_bytes`): if
  it is as much as was read, nothing came from the cache. That needs no right to the file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

PAGE = mmap.PAGESIZE
_ALIGNMENT = 4096  # of a direct read: what any disk accepts
_IN_CACHE = bytes(byte & 1 for byte in range(256))  # only the lowest bit of what `mincore` says of a page is defined

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


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
    looked = found = 0
    for first, count in _pieces(-(-(offset + length - start) // PAGE)):
        seen = _count_cached(fd, start + first * PAGE, count)
        if seen is None:
            return None
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
    return os.access(f"/proc/self/fd/{fd}", os.W_OK)


def _count_cached(fd: int, offset: int, num_pages: int) -> int | None:
    length = num_pages * PAGE
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        pages = ctypes.create_string_buffer(num_pages)
        return pages.raw.translate(_IN_CACHE).count(1) if _libc.mincore(address, length, pages) == 0 else None
    finally:
        _libc.munmap(address, length)
