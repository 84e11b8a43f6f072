"""Which bytes of a fixed range are free: first fit, in whole pages. Pure."""

from __future__ import annotations

from bisect import bisect_left

PAGE = 4096


def page_down(size: int) -> int:
    return size // PAGE * PAGE


def page_up(size: int) -> int:
    return -(-size // PAGE) * PAGE


class Space:
    """Takes and gives back runs of pages; neighbours that are free are one run again."""

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, page_down(size))]

    @property
    def free_bytes(self) -> int:
        return sum(size for _, size in self._free)

    def take(self, size: int) -> int | None:
        """The start of a run of at least `size` bytes; None where no run is that long."""
        size = page_up(size)
        for at, (start, room) in enumerate(self._free):
            if room >= size:
                self._free[at : at + 1] = [(start + size, room - size)] if room > size else []
                return start
        return None

    def give_back(self, start: int, size: int) -> None:
        """What `take` gave, whole."""
        size = page_up(size)
        at = bisect_left(self._free, (start, 0))
        if at < len(self._free) and self._free[at][0] == start + size:
            size += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == start:
            at -= 1
            before, room = self._free.pop(at)
            start, size = before, room + size
        self._free.insert(at, (start, size))
