"""Which events a long recording keeps, so that its file stays under a limit: pure functions of what came.

The first quarter of the limit is kept whole, then bytes are rationed (`docs/reference/run-directory.md`). Each
(process, kind) of a drain gets the same ration; what one does not need, the next drain has: the rare are kept.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .area import RECORD_BYTES

_WHOLE_SHARE = 0.25
_PLANNED_S = 86_400.0
_LATER = 4.0
_LONGEST_SHARE = 4  # one in so many of a thinned group is kept because it is long


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


def choose(durations: npt.NDArray[np.unsignedinteger], level: int) -> npt.NDArray[np.bool_]:
    """Which `level` events of a group are kept, or fewer: a quarter of them the longest, the rest evenly spread."""
    kept = np.zeros(len(durations), bool)
    longest = min(level, -(-level // _LONGEST_SHARE))
    if longest:
        kept[np.argpartition(durations, len(durations) - longest)[len(durations) - longest :]] = True
    if level > longest:
        kept[np.linspace(0, len(durations) - 1, level - longest).astype(np.int64)] = True
    return kept


class Thinner:
    """Keeps the account of a recording's bytes: what each drain may write."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.num_left_out = 0
        self._credit = 0.0
        self._last_s = 0.0

    def thin(
        self, blocks: Sequence[npt.NDArray[np.void]], *, written_bytes: int, elapsed_s: float
    ) -> Sequence[npt.NDArray[np.void]]:
        """Return of the records of each process those that are kept."""
        rate = rationed_rate(limit_bytes=self.limit_bytes, written_bytes=written_bytes, elapsed_s=elapsed_s)
        since, self._last_s = elapsed_s - self._last_s, elapsed_s
        if rate is None:
            return blocks
        # a pause saves up for a minute, not for a burst that fills the file
        self._credit = min(self._credit + rate * max(0.0, since), rate * 60)
        counts = [np.bincount(block["kind"], minlength=256) for block in blocks]
        level = int(self._credit / RECORD_BYTES) // max(1, int(np.count_nonzero(counts)))
        kept = []
        for block, count in zip(blocks, counts, strict=True):
            keep = np.ones(len(block), bool)
            for kind in np.flatnonzero(count > level):
                places = np.flatnonzero(block["kind"] == kind)
                keep[places] = choose(block["duration_ns"][places], level)
            kept.append(block[keep])
        num_kept = sum(map(len, kept))
        self._credit -= num_kept * RECORD_BYTES
        self.num_left_out += sum(map(len, blocks)) - num_kept
        return kept
