"""Which parts of files a probe reads, and in which order."""

from __future__ import annotations

import itertools
import os
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .probe_reads import Job, NextJob, read_extent

_MOST_BLOCKS = 1 << 16  # places that are drawn: the order of a file of terabytes is not made whole


@dataclass(frozen=True)
class OpenedFile:
    """A file that is open for reading, through the page cache and, where that works, past it."""

    path: str
    size: int
    fd: int
    direct_fd: int | None

    def fd_for(self, *, is_direct: bool) -> int:
        return self.direct_fd if is_direct and self.direct_fd is not None else self.fd


class RandomBlocks:
    """Blocks of the files in random order; when all were read, they come again."""

    def __init__(self, files: Sequence[OpenedFile], size: int, rng: random.Random, *, is_direct: bool) -> None:
        self.has_repeated = False
        ends = list(itertools.accumulate(file.size // size for file in files))
        drawn = rng.sample(range(ends[-1]), min(_MOST_BLOCKS, ends[-1]))
        self._places: list[tuple[OpenedFile, int]] = []
        for number in drawn:
            which = bisect_right(ends, number)
            self._places.append((files[which], (number - (ends[which - 1] if which else 0)) * size))
        self._size, self._is_direct = size, is_direct
        self._numbers = itertools.count()  # `next` of it is one step of the interpreter: readers need no lock
        if not is_direct:
            for file in files:
                os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)

    def __repr__(self) -> str:
        return f"RandomBlocks({len(self._places)} of {self._size} bytes)"

    def jobs(self, limit: int) -> NextJob:
        """Return a source of jobs, for any number of readers, that ends after so many."""
        taken = itertools.count()

        def take(_: int) -> Job | None:
            if next(taken) >= limit:
                return None
            number = next(self._numbers)
            if number >= len(self._places):
                self.has_repeated = True
            file, offset = self._places[number % len(self._places)]
            return read_extent(file.fd_for(is_direct=self._is_direct), offset, self._size, file.path)

        return take


def in_lanes(files: Sequence[OpenedFile], size: int, *, num_lanes: int, most_each: int, is_direct: bool) -> NextJob:
    """Return a source of jobs in which each reader goes in order through blocks that no other one reads."""
    lanes = [itertools.islice(_lane(files, size, lane, num_lanes), most_each) for lane in range(num_lanes)]

    def take(reader: int) -> Job | None:
        place = next(lanes[reader], None)
        if place is None:
            return None
        file, offset = place
        return read_extent(file.fd_for(is_direct=is_direct), offset, size, file.path)

    return take


def in_turn(jobs: Sequence[Job]) -> NextJob:
    """Return a source of these jobs, each given out once, to whichever reader comes."""
    numbers = itertools.count()

    def take(_: int) -> Job | None:
        number = next(numbers)
        return jobs[number] if number < len(jobs) else None

    return take


def _lane(files: Sequence[OpenedFile], size: int, lane: int, num_lanes: int) -> Iterator[tuple[OpenedFile, int]]:
    """One reader's blocks: its own files where there are enough of them, else its part of each file."""
    has_own = len(files) >= num_lanes
    for file in files[lane::num_lanes] if has_own else files:
        num_blocks = file.size // size
        part, parts = (0, 1) if has_own else (lane, num_lanes)
        for number in range(part * num_blocks // parts, (part + 1) * num_blocks // parts):
            yield file, number * size
