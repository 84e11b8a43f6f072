"""Trilinear resampling slab by slab, straight from the stored dtype, as torch's `interpolate` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

# What is in work at a time should stay in a core's second-level cache, and be enough that two threads do not meet at
# the interpreter's lock after every step.
_SLAB_BYTES = 1 << 20
# columns of the last axis that one small matrix product makes: wider wastes multiplications by 0, narrower calls
_BAND = 32


@dataclass(frozen=True)
class Taps:
    """Where along one axis each result lies: between `low` and `high`, `weight` of the way."""

    low: npt.NDArray[np.intp]
    high: npt.NDArray[np.intp]
    weight: Floats
    is_identity: bool

    @classmethod
    def between(cls, num_in: int, num_out: int) -> Taps:
        """The taps of torch's `align_corners=False`, in its own precision: in float32, rounding is part of it."""
        scale = np.float32(num_in) / np.float32(num_out)
        at = scale * (np.arange(num_out, dtype=np.float32) + np.float32(0.5)) - np.float32(0.5)
        at = np.maximum(at, np.float32(0))
        low = np.minimum(at.astype(np.intp), num_in - 1)
        high = np.minimum(low + 1, num_in - 1)
        return cls(low, high, (at - low).astype(np.float32), num_in == num_out)


class Resampler:
    """Resamples one volume, (depth, height, width) in C order, to another size, slab by slab.

    `clip` bounds the stored values, in their own dtype where it can hold the bounds; then value * slope + shift is
    resampled. The slope is folded into the last matrix product, the shift added at the end, for weights sum to 1.
    """

    def __init__(self, shape: tuple[int, int, int], size: tuple[int, int, int]) -> None:
        self.taps = [Taps.between(n, m) for n, m in zip(shape, size, strict=True)]
        self.shape, self.size = shape, size
        rows, columns = self.taps[1], self.taps[2]
        # both neighbours of each row, or every row once
        self._rows = np.arange(shape[1]) if rows.is_identity else np.concatenate([rows.low, rows.high])
        self._row_weight = rows.weight[:, None]
        self._bands = [] if columns.is_identity else list(_bands(columns))
        held = len(self._rows) * shape[2] * 4
        self.num_planes = max(1, min(size[0], _SLAB_BYTES // max(1, 2 * held)))

    def slab(self, volume: Array, first: int, last: int, gather: _Gather, slope: float, out: Floats) -> None:
        """Write planes `first` to `last` of the result."""
        planes, num = self.taps[0], last - first
        low = gather.planes(volume, planes.low[first:last], self._rows)
        if planes.is_identity:
            mixed = low
        else:
            high = gather.planes(volume, planes.high[first:last], self._rows, is_second=True)
            high -= low
            high *= planes.weight[first:last, None, None]
            low += high
            mixed = low
        if not self.taps[1].is_identity:
            num_rows = self.size[1]
            near, far = mixed[:, :num_rows], mixed[:, num_rows:]
            far -= near
            far *= self._row_weight
            near += far
            mixed = near
        if not self._bands:
            np.multiply(mixed, np.float32(slope), out=out)
            return
        for start, stop, first_in, last_in, matrix in self._bands:
            # (planes x rows) x few columns times a small matrix: the interpolation along the last axis
            np.matmul(mixed[..., first_in:last_in], matrix * np.float32(slope), out=out[..., start:stop])
        del num


def _bands(taps: Taps) -> list[tuple[int, int, int, int, Floats]]:
    bands = []
    for start in range(0, len(taps.low), _BAND):
        stop = min(start + _BAND, len(taps.low))
        first, last = int(taps.low[start]), int(taps.high[stop - 1]) + 1
        matrix = np.zeros((last - first, stop - start), np.float32)
        columns = np.arange(stop - start)
        np.add.at(matrix, (taps.low[start:stop] - first, columns), 1 - taps.weight[start:stop])
        np.add.at(matrix, (taps.high[start:stop] - first, columns), taps.weight[start:stop])
        bands.append((start, stop, first, last, matrix))
    return bands
