"""Which events a long recording keeps, so that its file stays under a limit: pure functions of what came.

The first quarter of the limit is kept whole. After that, bytes are rationed: what is left of the limit is spread over
the rest of a day, and later over four times the run's length so far, so a recording of any length stays under its
limit. Each (process, kind) of a drain gets the same ration, and those that need less leave the rest to others, so
rare events are kept and the many that are alike are thinned. Of those, the longest are kept, and the rest at even
distances. What is left out is summed up exactly, per process, kind and second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from .area import RECORD_BYTES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_WHOLE_SHARE = 0.25
_PLANNED_S = 86_400.0
_LATER = 4.0
_LONGEST_SHARE = 4  # one in so many of a thinned group is kept because it is long
_TOTALS_SHARE = 3  # one byte in so many of a ration is for sums
_MOST_TOTALS_CREDIT = 1 << 16
_MOST_ROWS = 4096
_SECOND_NS = 1_000_000_000


@cache
def totals_dtype() -> np.dtype[np.void]:
    """Exact sums of the events of one kind and process that began within a span of time."""
    import numpy as np

    return np.dtype(
        [
            ("start_ns", "<u8"),
            ("span_ns", "<u8"),
            ("duration_ns", "<u8"),
            ("longest_ns", "<u8"),
            ("value", "<i8"),
            ("count", "<u4"),
            ("kind", "<u4"),
        ]
    )


def rationed_rate(*, limit_bytes: int, written_bytes: int, elapsed_s: float) -> float | None:
    """Bytes a second that may still be written; None: all of them.

    >>> rationed_rate(limit_bytes=1000, written_bytes=100, elapsed_s=3.0) is None
    True
    >>> rationed_rate(limit_bytes=172_800, written_bytes=86_400, elapsed_s=0.0)
    1.0
    """
    if written_bytes < limit_bytes * _WHOLE_SHARE:
        return None
    return max(0, limit_bytes - written_bytes) / max(_PLANNED_S - elapsed_s, _LATER * elapsed_s)


def find_level(counts: Sequence[int], allowed: int) -> int:
    """The most that each group may keep so that all together keep at most `allowed`.

    >>> find_level([2, 100, 100], 42), find_level([1, 2], 10), find_level([5, 5], 1)
    (20, 2, 0)
    """
    left, level = allowed, 0
    ordered = sorted(counts)
    for done, count in enumerate(ordered):
        others = len(ordered) - done
        if count * others > left:
            return left // others
        left, level = left - count, count
    return level


def choose(durations: npt.NDArray[np.unsignedinteger], level: int) -> npt.NDArray[np.bool_]:
    """Which `level` events of a group are kept, or fewer: a quarter of them the longest, the rest evenly spread."""
    import numpy as np

    kept = np.zeros(len(durations), bool)
    longest = min(level, -(-level // _LONGEST_SHARE))
    if longest:
        kept[np.argpartition(durations, len(durations) - longest)[len(durations) - longest :]] = True
    if level > longest:
        kept[np.linspace(0, len(durations) - 1, level - longest).astype(np.int64)] = True
    return kept


@dataclass
class _Sum:
    count: int = 0
    duration_ns: int = 0
    longest_ns: int = 0
    value: int = 0

    def add(self, other: _Sum) -> None:
        self.count += other.count
        self.duration_ns += other.duration_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.value += other.value


class Thinner:
    """Keeps the account of a recording's bytes: what each drain may write, and the sums of what it left out."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.num_left_out = 0
        self._record_credit = 0.0
        self._totals_credit = 0.0
        self._last_s = 0.0
        self._span_ns = _SECOND_NS
        self._sums: dict[tuple[int, int, int], _Sum] = {}  # (process, kind, start)

    def thin(
        self, blocks: Sequence[tuple[int, npt.NDArray[np.void]]], *, written_bytes: int, elapsed_s: float
    ) -> list[npt.NDArray[np.void]]:
        """Return of each (process, records) those that are kept."""
        rate = rationed_rate(limit_bytes=self.limit_bytes, written_bytes=written_bytes, elapsed_s=elapsed_s)
        since, self._last_s = elapsed_s - self._last_s, elapsed_s
        if rate is None:
            return [block for _, block in blocks]
        grant = rate * max(0.0, since)
        self._totals_credit += grant / _TOTALS_SHARE
        spare = max(0.0, self._totals_credit - _MOST_TOTALS_CREDIT)
        self._totals_credit -= spare
        # a pause saves up for a minute, not for a burst that fills the file
        self._record_credit = min(self._record_credit + grant - grant / _TOTALS_SHARE + spare, rate * 60)
        allowed = int(self._record_credit / RECORD_BYTES)
        kept = self._keep(blocks, allowed)
        self._record_credit -= sum(map(len, kept)) * RECORD_BYTES
        return kept

    def _keep(self, blocks: Sequence[tuple[int, npt.NDArray[np.void]]], allowed: int) -> list[npt.NDArray[np.void]]:
        import numpy as np

        counts = [np.bincount(block["kind"], minlength=256) for _, block in blocks]
        level = find_level([int(n) for count in counts for n in count[count > 0]], allowed)
        kept = []
        for (process, block), count in zip(blocks, counts, strict=True):
            keep = np.ones(len(block), bool)
            for kind in np.flatnonzero(count > level):
                places = np.flatnonzero(block["kind"] == kind)
                keep[places] = choose(block["duration_ns"][places], level)
            if not keep.all():
                self._sum_up(process, block[~keep])
            kept.append(block[keep])
        return kept

    def _sum_up(self, process: int, block: npt.NDArray[np.void]) -> None:
        import numpy as np

        self.num_left_out += len(block)
        seconds = block["start_ns"] // np.uint64(self._span_ns)
        keys = np.stack([block["kind"].astype(np.uint64), seconds], axis=1)
        for (kind, second), part in _groups(keys, block):
            key = (process, kind, second * self._span_ns)
            found = _Sum(
                count=len(part),
                duration_ns=int(part["duration_ns"].sum(dtype=np.uint64)),
                longest_ns=int(part["duration_ns"].max()),
                value=int(part["value"].sum(dtype=np.int64)),
            )
            self._sums.setdefault(key, _Sum()).add(found)

    def take_totals(self, *, is_last: bool = False) -> dict[int, npt.NDArray[np.void]]:
        """The sums that may be written now, per process; `is_last`: all of them."""
        import numpy as np

        row_bytes = totals_dtype().itemsize
        cost = len(self._sums) * row_bytes
        if not self._sums or (cost > self._totals_credit and not is_last):
            while len(self._sums) > _MOST_ROWS:
                self._coarsen()
            return {}
        self._totals_credit -= cost
        rows: dict[int, list[tuple[int, ...]]] = {}
        for (process, kind, start), one in self._sums.items():
            row = (start, self._span_ns, one.duration_ns, one.longest_ns, one.value, one.count, kind)
            rows.setdefault(process, []).append(row)
        self._sums, self._span_ns = {}, _SECOND_NS
        return {process: np.array(found, totals_dtype()) for process, found in rows.items()}

    def _coarsen(self) -> None:
        """Sum up over twice the time: the file has no room for so many rows."""
        self._span_ns *= 2
        old, self._sums = self._sums, {}
        for (process, kind, start), one in old.items():
            key = (process, kind, start // self._span_ns * self._span_ns)
            self._sums.setdefault(key, _Sum()).add(one)


def _groups(
    keys: npt.NDArray[np.uint64], block: npt.NDArray[np.void]
) -> Iterator[tuple[tuple[int, int], npt.NDArray[np.void]]]:
    import numpy as np

    order = np.lexsort((keys[:, 1], keys[:, 0]))
    keys, block = keys[order], block[order]
    edges = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(block)], strict=True):
        yield (int(keys[start, 0]), int(keys[start, 1])), block[start:stop]
