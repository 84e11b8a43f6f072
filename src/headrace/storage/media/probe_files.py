"""Which files under a path a probe reads: existing ones, several, drawn at random, and never written to."""

from __future__ import annotations

import os
import random
import stat
import time
from collections import Counter
from dataclasses import dataclass, field

from headrace.errors import UnusableInput
from headrace.model import format_bytes

LARGE_BYTES = 8 << 20  # a file of which blocks can be read at random
_MOST_LOOKED_AT = 50_000  # entries of folders: a data set of a hundred million files must not be listed
_MOST_LARGE = 32
_MOST_SMALL = 8192
_FEWEST_SMALL = 32
_LEAST_SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class FoundFile:
    """A file to read: its first `size` bytes are data, without holes."""

    path: str
    size: int


@dataclass
class Found:
    """What a look through a folder has brought."""

    large: list[FoundFile] = field(default_factory=list)
    small: list[FoundFile] = field(default_factory=list)
    num_seen: int = 0
    is_all_seen: bool = True
    passed_over: Counter[str] = field(default_factory=Counter)


def find_files(path: str, *, seconds: float, seed: int) -> Found:
    """Find files to read at or below a path; raise `UnusableInput` where there are none, with what is there.

    Folders are gone through in random order until the time or the number of entries is used up, so that what is found
    is not always what was written first. Links are not followed.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise UnusableInput(f"cannot look at {path}: {error.strerror or error}") from error
    found, rng = Found(), random.Random(seed)
    if stat.S_ISDIR(status.st_mode):
        _look_through(path, found, rng, deadline=time.monotonic() + seconds)
    elif stat.S_ISREG(status.st_mode):
        _consider(path, found)
    else:
        raise UnusableInput(f"{path} is neither a file nor a folder", next_step="name a folder with data")
    if not found.large and not _is_enough(found.small):
        raise _too_little(path, found)
    found.large = _draw(found.large, _MOST_LARGE, rng)
    found.small = _draw(found.small, _MOST_SMALL, rng) if _is_enough(found.small) else []
    return found


def _look_through(folder: str, found: Found, rng: random.Random, *, deadline: float) -> None:
    pending = [folder]
    while pending:
        if found.num_seen >= _MOST_LOOKED_AT or time.monotonic() > deadline:
            found.is_all_seen = False
            return
        current = pending.pop(rng.randrange(len(pending)))
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    found.num_seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        _consider(entry.path, found)
                    if found.num_seen >= _MOST_LOOKED_AT or time.monotonic() > deadline:
                        found.is_all_seen = False
                        break
        except OSError:
            found.passed_over["unreadable folder"] += 1


def _consider(path: str, found: Found) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        found.passed_over["unreadable"] += 1
        return
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            found.passed_over["empty"] += 1
            return
        if size >= LARGE_BYTES:
            size = _data_until(fd, size)  # a hole is read as zeros, at no cost: it would look like a fast disk
            if size < LARGE_BYTES:
                found.passed_over["sparse"] += 1
                return
    finally:
        os.close(fd)
    (found.large if size >= LARGE_BYTES else found.small).append(FoundFile(path, size))


def _data_until(fd: int, size: int) -> int:
    """Where the first hole is; file systems that know of none say that it is at the end."""
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE)
    except OSError:
        return size


def _is_enough(small: list[FoundFile]) -> bool:
    return len(small) >= _FEWEST_SMALL and sum(file.size for file in small) >= _LEAST_SMALL_BYTES


def _draw(files: list[FoundFile], most: int, rng: random.Random) -> list[FoundFile]:
    return rng.sample(files, min(most, len(files)))


def _too_little(path: str, found: Found) -> UnusableInput:
    largest = max((file.size for file in found.small), default=0)
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    passed = {name.replace(" ", "_"): count for name, count in found.passed_over.items()}
    return UnusableInput(
        f"there is too little to read under {path}: it takes a file of {format_bytes(LARGE_BYTES)} or more, "
        f"or {_FEWEST_SMALL} smaller ones",
        entries_seen=found.num_seen,
        files=len(found.small),
        largest=format_bytes(largest),
        **passed,
        next_step=f"a folder with data, or `headrace storage {folder} --write-test 256`: it writes a file of 256 MiB "
        "there, reads it and removes it",
    )
