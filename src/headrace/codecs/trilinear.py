"""Trilinear resampling slab by slab, straight from the stored dtype, as torch's `interpolate` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .buffers import scratch

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # first and last + 1 of each axis

# What is in work at a time: small enough for a core's caches, large enough that two threads do not meet at the
# interpreter's lock after every few microseconds. 1 MiB and 8 MiB were slower, alone and in pairs.
_SLAB_BYTES = 4 << 20
# Columns of the last axis that one small matrix product makes: wider wastes multiplications by 0, narrower calls.
_BAND = 24
# An axis that shrinks by more than this: two gathered columns a result cost less than the matrix's zeros.
_MOST_SHRINK = 2.5
# OpenBLAS starts threads for a product above this, in every worker: stay below it.
_MOST_MULTIPLICATIONS = 1 << 18


@dataclass(frozen=True)
class Taps:
    """Where along one axis each result lies: between `low` and `high`, `weight` of the way."""

    low: npt.NDArray[np.intp]
    high: npt.NDArray[np.intp]
    weight: Floats
    is_identity: bool

    @classmethod
    def between(cls, num_in: int, num_out: int) -> Taps:
        """The taps of torch's `align_corners=False`, as it rounds them.

        It computes in float32 with one rounding at the end (a fused multiply-add); in float64 the product is exact.
        Places computed otherwise are up to 5e-5 away, which shows in the result.
        """
        scale = np.float64(np.float32(num_in) / np.float32(num_out))
        at = np.maximum(scale * (np.arange(num_out) + 0.5) - 0.5, 0.0).astype(np.float32)
        low = np.minimum(at.astype(np.intp), num_in - 1)
        high = np.minimum(low + 1, num_in - 1)
        return cls(low, high, (at - low).astype(np.float32), num_in == num_out)


@dataclass(frozen=True)
class Bounds:
    """Values are clipped to these: in the stored dtype where it can hold both, in float32 otherwise."""

    low: float
    high: float

    def fit(self, dtype: np.dtype[Any]) -> bool:
        if dtype.kind not in "iu":
            return False
        info = np.iinfo(dtype)
        return all(float(b).is_integer() and info.min <= b <= info.max for b in (self.low, self.high))


class Resampler:
    """Makes planes of a resampled box of one volume, (depth, height, width) in C order.

    No float copy of the volume exists: each slab gathers the rows it needs in the stored dtype, clips and converts
    those, and mixes them along the three axes. The last axis is a product with a narrow matrix, which also carries
    the slope of value * slope.
    """

    def __init__(
        self, stored: Array, box: Box, size: tuple[int, int, int], *, bounds: Bounds | None, slope: float
    ) -> None:
        if not stored.flags.c_contiguous:
            raise ValueError("a volume in C order is needed")
        self._stored = stored.reshape(-1, stored.shape[2])  # rows
        self._num_rows = stored.shape[1]
        self._box, self._bounds, self._slope = box, bounds, np.float32(slope)
        self._planes, self._rows, columns = (
            Taps.between(stop - start, num) for (start, stop), num in zip(box, size, strict=True)
        )
        self._columns = columns
        self._is_whole = stored.dtype.kind in "iub"  # whole numbers: always finite
        low = self._rows.low
        both = low if self._rows.is_identity else np.concatenate([low, self._rows.high])
        self._wanted_rows = box[1][0] + both
        width = box[2][1] - box[2][0]
        uses_bands = not columns.is_identity and width <= _MOST_SHRINK * size[2]
        self._bands = _bands(columns, slope) if uses_bands else []
        num_copies = 1 if self._planes.is_identity else 2
        self.slab_planes = max(1, min(size[0], _SLAB_BYTES // max(1, num_copies * len(both) * width * 4)))

    def make(self, first: int, last: int, out: Floats) -> None:
        """Write planes `first` up to `last` of the result into `out`, (planes, rows, columns)."""
        planes = self._planes
        at = planes.low[first:last]
        if not planes.is_identity:
            at = np.concatenate([at, planes.high[first:last]])
        mixed = self._gather(self._box[0][0] + at)
        if not planes.is_identity:
            mixed = _mix(mixed[: last - first], mixed[last - first :], planes.weight[first:last, None, None])
        if not self._rows.is_identity:
            num = len(self._rows.low)
            mixed = _mix(mixed[:, :num], mixed[:, num:], self._rows.weight[:, None])
        if self._columns.is_identity:
            np.multiply(mixed, self._slope, out=out)
        elif self._bands and (self._is_whole or np.isfinite(mixed).all()):
            for start, stop, first_in, last_in, matrix in self._bands:
                step = max(1, _MOST_MULTIPLICATIONS // matrix.size)
                for row in range(0, out.shape[1], step):
                    rows = slice(row, row + step)
                    np.matmul(mixed[:, rows, first_in:last_in], matrix, out=out[:, rows, start:stop])
        else:  # and 0 times infinity is no number: a product with a matrix would spread it over the whole band
            near, far = mixed.take(self._columns.low, axis=2), mixed.take(self._columns.high, axis=2)
            np.multiply(_mix(near, far, self._columns.weight), self._slope, out=out)

    def _gather(self, planes: npt.NDArray[np.intp]) -> Floats:
        """Return the wanted rows of some planes as float32, clipped."""
        rows = (planes[:, None] * self._num_rows + self._wanted_rows).ravel()
        stored, (start, stop) = self._stored, self._box[2]
        shape = (len(planes), len(self._wanted_rows), stored.shape[1])
        held = scratch("rows", len(rows) * stored.shape[1] * stored.itemsize).view(stored.dtype)
        # every index is in range: "clip" only spares numpy a second buffer
        np.take(stored, rows, axis=0, out=held.reshape(len(rows), -1), mode="clip")
        part = held.reshape(shape)[..., start:stop]
        bounds = self._bounds
        if bounds is not None and bounds.fit(stored.dtype):
            np.clip(part, stored.dtype.type(bounds.low), stored.dtype.type(bounds.high), out=part)
            bounds = None
        floats = scratch("floats", part.size * 4).view(np.float32).reshape(part.shape)
        np.copyto(floats, part, casting="unsafe")
        if bounds is not None:
            np.clip(floats, np.float32(bounds.low), np.float32(bounds.high), out=floats)
        return floats


def _mix(near: Floats, far: Floats, weight: Floats) -> Floats:
    """Return near + (far - near) * weight, in place of both."""
    far -= near
    far *= weight
    near += far
    return near


def _bands(taps: Taps, slope: float) -> list[tuple[int, int, int, int, Floats]]:
    """The interpolation along one axis as small matrices: (first result, last, first value, last, matrix)."""
    bands = []
    for start in range(0, len(taps.low), _BAND):
        stop = min(start + _BAND, len(taps.low))
        first, last = int(taps.low[start]), int(taps.high[stop - 1]) + 1
        matrix = np.zeros((last - first, stop - start))
        columns = np.arange(stop - start)
        matrix[taps.low[start:stop] - first, columns] += 1.0 - taps.weight[start:stop]
        matrix[taps.high[start:stop] - first, columns] += taps.weight[start:stop]
        bands.append((start, stop, first, last, (matrix * slope).astype(np.float32)))
    return bands
