"""The memory of a tree of processes, shared pages counted once."""

import os
from pathlib import Path

import psutil


def tree_memory_bytes(pid: int) -> int | None:
    """Return what a process and all its descendants occupy, or None where the kernel does not tell.

    This is the sum of their PSS, with one correction: a shared-memory segment on its way from a worker to the loop
    is mapped by nobody for a while, but occupies memory all the same. So shared memory counts with what its segments
    have allocated where that is more than what is mapped.
    """
    private = mapped_shared = 0
    segments: dict[tuple[int, int], int] = {}
    for member in _tree(pid):
        try:
            pss, pss_shared = _proportional(member)
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        except OSError:
            return None
        private += pss - pss_shared
        mapped_shared += pss_shared
        segments.update(_shared_segments(member))
    return private + max(mapped_shared, sum(segments.values()))


def tree_page_faults(pid: int) -> int | None:
    """Return the page faults that a process and its living descendants have had, or None where /proc is missing."""
    total = 0
    for member in _tree(pid):
        try:
            stat = Path(f"/proc/{member}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            if member == pid:
                return None
            continue
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
        total += int(fields[7]) + int(fields[9])  # minor and major ones
    return total


def _tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _proportional(pid: int) -> tuple[int, int]:
    pss = pss_shared = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            pss = 1024 * int(line.split()[1])
        elif line.startswith("Pss_Shmem:"):
            pss_shared = 1024 * int(line.split()[1])
    return pss, pss_shared


def _shared_segments(pid: int) -> dict[tuple[int, int], int]:
    """Return the allocated bytes of each shared-memory file that a process holds open, by device and inode."""
    segments = {}
    folder = Path(f"/proc/{pid}/fd")
    try:
        for link in folder.iterdir():
            try:
                if os.readlink(link).startswith(("/dev/shm/", "/memfd:")):
                    entry = link.stat()
                    segments[entry.st_dev, entry.st_ino] = 512 * entry.st_blocks
            except FileNotFoundError:  # closed since we listed it
                continue
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return segments
