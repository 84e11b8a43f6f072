"""Volumes made ready for training: crop, clip, resize, normalise and convert in one pass, slab by slab."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .arrays import MAGIC, npz_member, view_array
from .buffers import Array, check_out, new_result, scratch
from .nifti_volume import is_nifti, nifti_stored
from .source import MAX_BYTES, Data, Source

Pair: TypeAlias = tuple[float, float]
Crop: TypeAlias = Sequence[tuple[int | None, int | None] | slice | None]

Floats = npt.NDArray[np.float32]
Box = tuple[tuple[int, int], ...]  # first and last + 1 of each of three axes

# What is in work at a time: small enough for a core's caches, large enough that two threads do not meet at the
# interpreter's lock after every few microseconds. 1 MiB and 8 MiB were slower, alone and in pairs.
_SLAB_BYTES = 4 << 20
# Columns of the last axis that one small matrix product makes: wider wastes multiplications by 0, narrower calls.
_BAND = 24
# An axis that shrinks by more than this: two gathered columns a result cost less than the matrix's zeros.
_MOST_SHRINK = 2.5
# OpenBLAS starts threads for a product above this, in every worker: stay below it.
_MOST_MULTIPLICATIONS = 1 << 18
_KINDS = "iubf"  # whole numbers, booleans, floats


def volume(
    data: Data,
    *,
    member: str | None = None,
    crop: Crop | None = None,
    clip: Pair | None = None,
    window: Pair | None = None,
    size: tuple[int, int, int] | None = None,
    normalise: Pair | None = None,
    dtype: npt.DTypeLike = np.float32,
    out: Array | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Array:
    """Return a volume ready for training, from an array or from the bytes or path of an NPZ, NPY or NIfTI file.

    The steps run in this order, whatever is asked for, and without a float copy of the whole volume:

    1. `crop`: for each axis (start, stop) or None for all of it, as in a slice.
    2. `clip=(low, high)`, or `window=(centre, width)`, which clips to the window and scales it to 0 .. 1.
    3. `size`: trilinear, as `torch.nn.functional.interpolate(..., mode="trilinear")` to 1e-5 of the values' range.
    4. `normalise=(mean, std)`: (value - mean) / std.
    5. `dtype`: whole numbers are rounded, and held within what the dtype can hold.

    `member` names the array of an NPZ that has several. A NIfTI's slope and intercept are applied.
    """
    is_array, kind = isinstance(data, np.ndarray) and data.ndim == 3, np.dtype(dtype)
    with Source(np.empty(0, np.uint8), name or "volume") if is_array else Source(data, name) as source:
        stored, scaling = np.asarray(data), (1.0, 0.0)
        if not is_array:
            with stage("volume decode") as timed:
                stored, scaling = _open(source, member, max_bytes)
                timed.nbytes, timed.note = stored.nbytes, f"shape={stored.shape}"
        if stored.ndim != 3:
            raise ValueError(f"{source.name}: a volume has three axes, this array has shape {stored.shape}")
        if stored.dtype.kind not in _KINDS or kind.kind not in _KINDS:
            raise TypeError(f"{source.name}: volumes are of whole numbers or floats, not {stored.dtype} to {kind}")
        with stage("volume process") as timed:
            line = _line(scaling, clip, window, normalise)
            box = _box(source, crop, stored.shape)
            inside = tuple(stop - start for start, stop in box)
            shape = tuple(size) if size is not None else inside
            if len(shape) != 3 or min(shape) < 1 or min(inside) < 1:
                raise ValueError(f"{source.name}: cannot make a volume of size {shape} from one of size {inside}")
            check_out(source.name, out, shape, kind)
            is_fortran = stored.flags.f_contiguous and not stored.flags.c_contiguous
            # the work goes along the order of memory, and so does the result unless there is a place for it
            result = new_result(shape, kind, order="F" if is_fortran else "C") if out is None else out
            if is_fortran:
                _run(stored.T, box[::-1], result.T, *line)
            else:
                _run(np.ascontiguousarray(stored), box, result, *line)
            timed.nbytes = result.nbytes
            return result


def _open(source: Source, member: str | None, max_bytes: int) -> tuple[Array, Pair]:
    """Return the stored array, which may be memory that is used again, and its slope and intercept."""
    start = bytes(source.read(0, min(source.size, 8)))
    if start.startswith(b"PK"):
        return npz_member(source, member, max_bytes), (1.0, 0.0)
    if member is not None:
        raise ValueError(f"{source.name}: member={member!r} is for NPZ files, and this is none")
    if start.startswith(MAGIC):
        return view_array(source, source.borrow(0, source.size), what="the volume", max_bytes=max_bytes), (1.0, 0.0)
    if is_nifti(start):
        return nifti_stored(source, max_bytes, keeps=False)
    raise source.damaged("not a volume: neither NPZ, NPY nor NIfTI", first_bytes=start.hex(" "))


def _run(stored: Array, box: Box, result: Array, bounds: Pair | None, slope: float, shift: float) -> None:
    depth = len(result)
    maker = _Resampler(stored, box, result.shape, bounds=bounds, slope=slope)
    step = maker.slab_planes
    is_direct = result.dtype == np.float32 and result.flags.c_contiguous
    whole = np.iinfo(result.dtype) if result.dtype.kind in "iu" else None
    for first in range(0, depth, step):
        last = min(depth, first + step)
        slab = place = result[first:last]
        if not is_direct:
            slab = scratch("slab", place.size * 4).view(np.float32).reshape(place.shape)
        maker.make(first, last, slab)
        if shift:
            slab += np.float32(shift)
        if whole is not None:
            np.rint(slab, out=slab)
            # float32 cannot hold the largest values of wide types: stay below them
            top = np.nextafter(np.float32(whole.max), np.float32(0)) if whole.bits > 24 else np.float32(whole.max)
            np.clip(slab, np.float32(whole.min), top, out=slab)
        if not is_direct:
            with np.errstate(over="ignore"):  # beyond float16 lies infinity, as in torch
                np.copyto(place, slab, casting="unsafe")


def _line(
    scaling: Pair, clip: Pair | None, window: Pair | None, normalise: Pair | None
) -> tuple[Pair | None, float, float]:
    """Fold the steps into one: bounds on the stored values, then one slope and one shift."""
    slope, shift = scaling
    if clip is not None and window is not None:
        raise ValueError("give clip= or window=, not both: a window clips already")
    bounds, limits = None, clip
    if window is not None:
        centre, width = window
        if not width > 0:
            raise ValueError(f"window={window!r}: give (centre, width) with a width above 0")
        limits = (centre - width / 2, centre + width / 2)
    if limits is not None:
        low, high = limits
        if not low <= high:
            raise ValueError(f"clip={limits!r}: the lower bound comes first")
        ends = (low - shift) / slope, (high - shift) / slope
        bounds = min(ends), max(ends)
        if window is not None:
            slope, shift = slope / (high - low), (shift - low) / (high - low)
    if normalise is not None:
        mean, std = normalise
        if not std > 0:
            raise ValueError(f"normalise={normalise!r}: give (mean, std) with a std above 0")
        slope, shift = slope / std, (shift - mean) / std
    return bounds, slope, shift


def _box(source: Source, crop: Crop | None, shape: tuple[int, ...]) -> Box:
    if crop is None:
        return tuple((0, n) for n in shape)
    if len(crop) != 3:
        raise ValueError(f"{source.name}: crop takes three parts, one for each axis, not {len(crop)}")
    box = []
    for part, num in zip(crop, shape, strict=True):
        cut = part if isinstance(part, slice) else slice(*(part or (None, None)))
        if cut.step not in (None, 1):
            raise ValueError(f"{source.name}: crop takes every value of a range, not every {cut.step}")
        start, stop, _ = cut.indices(num)
        box.append((start, max(start, stop)))
    return tuple(box)


@dataclass(frozen=True)
class _Taps:
    """Where along one axis each result lies: between `low` and `high`, `weight` of the way."""

    low: npt.NDArray[np.intp]
    high: npt.NDArray[np.intp]
    weight: Floats
    is_identity: bool

    @classmethod
    def between(cls, num_in: int, num_out: int) -> Self:
        """The taps of torch's `align_corners=False`, as it rounds them.

        It computes in float32 with one rounding at the end (a fused multiply-add); in float64 the product is exact.
        Places computed otherwise are up to 5e-5 away, which shows in the result.
        """
        scale = np.float64(np.float32(num_in) / np.float32(num_out))
        at = np.maximum(scale * (np.arange(num_out) + 0.5) - 0.5, 0.0).astype(np.float32)
        low = np.minimum(at.astype(np.intp), num_in - 1)
        high = np.minimum(low + 1, num_in - 1)
        return cls(low, high, (at - low).astype(np.float32), num_in == num_out)


class _Resampler:
    """Makes planes of a resampled box of one volume, (depth, height, width) in C order.

    Each slab gathers the rows it needs in the stored dtype, clips and converts those, and mixes them along the three
    axes. The last axis is a product with a narrow matrix, which also carries the slope of value * slope.
    """

    def __init__(self, stored: Array, box: Box, size: tuple[int, ...], *, bounds: Pair | None, slope: float) -> None:
        self._stored = stored.reshape(-1, stored.shape[2])  # rows
        self._num_rows = stored.shape[1]
        self._box, self._bounds, self._slope = box, bounds, np.float32(slope)
        self._planes, self._rows, self._columns = (
            _Taps.between(stop - start, num) for (start, stop), num in zip(box, size, strict=True)
        )
        self._is_whole = stored.dtype.kind in "iub"  # whole numbers: always finite
        # values are clipped in the stored dtype where it can hold both bounds, in float32 otherwise
        kind = np.iinfo(stored.dtype) if stored.dtype.kind in "iu" else None
        self._clips_stored = bounds is not None and (
            kind is not None and all(float(b).is_integer() and kind.min <= b <= kind.max for b in bounds)
        )
        low = self._rows.low
        both = low if self._rows.is_identity else np.concatenate([low, self._rows.high])
        self._wanted_rows = box[1][0] + both
        width = box[2][1] - box[2][0]
        uses_bands = not self._columns.is_identity and width <= _MOST_SHRINK * size[2]
        self._bands = _bands(self._columns, slope) if uses_bands else []
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
        floats = scratch("floats", part.size * 4).view(np.float32).reshape(part.shape)
        if self._clips_stored:
            _clip(part, self._bounds)
        np.copyto(floats, part, casting="unsafe")
        if not self._clips_stored:
            _clip(floats, self._bounds)
        return floats


def _clip(values: Array, bounds: Pair | None) -> None:
    if bounds is not None:
        np.clip(values, values.dtype.type(bounds[0]), values.dtype.type(bounds[1]), out=values)


def _mix(near: Floats, far: Floats, weight: Floats) -> Floats:
    """Return near + (far - near) * weight, in place of both."""
    far -= near
    far *= weight
    near += far
    return near


def _bands(taps: _Taps, slope: float) -> list[tuple[int, int, int, int, Floats]]:
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
