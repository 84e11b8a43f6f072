"""Which loose files to bring into the page cache next. Pure: no files, threads or clocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class FilePlan:
    """Files in the order of their need, `depth` of them at a time, no more than `ahead_bytes` before their use.

    More than that would push others out of the cache before they are used.
    """

    def __init__(self, *, depth: int, ahead_bytes: int) -> None:
        self.depth, self._ahead_bytes = depth, ahead_bytes
        self._wanted: deque[tuple[int, str]] = deque()
        self._ahead: dict[int, int] = {}  # batch -> bytes that were brought for it
        self._passed = -1
        self.in_flight = 0

    @property
    def is_held_up(self) -> bool:
        return bool(self._wanted)

    def add(self, seq: int, paths: Iterable[str]) -> None:
        """Plan the files of a batch, in the order of their need. `seq` grows from batch to batch."""
        if seq > self._passed:
            self._wanted.extend((seq, path) for path in paths)

    def passed(self, seq: int) -> None:
        """All batches up to this one are over."""
        if seq <= self._passed:
            return
        self._passed = seq
        while self._wanted and self._wanted[0][0] <= seq:
            self._wanted.popleft()
        for over in [s for s in self._ahead if s <= seq]:
            del self._ahead[over]

    def next_files(self) -> list[tuple[int, str]]:
        """What to begin now."""
        begun = []
        while self._wanted and self.in_flight < self.depth and sum(self._ahead.values()) < self._ahead_bytes:
            begun.append(self._wanted.popleft())
            self.in_flight += 1
        return begun

    def done(self, seq: int, size: int) -> None:
        self.in_flight -= 1
        if seq > self._passed:
            self._ahead[seq] = self._ahead.get(seq, 0) + size
