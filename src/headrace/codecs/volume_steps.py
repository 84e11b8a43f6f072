"""Volumes made ready for training: crop, clip, resize, normalise and convert in one pass, slab by slab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .buffers import check_out, new_result, scratch
from .nifti_volume import is_nifti, nifti_stored
from .npz_archive import npz_member
from .plain_arrays import MAGIC, view_array
from .source import MAX_BYTES, Data, Source
from .trilinear import Bounds, Box, Resampler

Array: TypeAlias = npt.NDArray[Any]
Pair: TypeAlias = tuple[float, float]
Crop: TypeAlias = Sequence[tuple[int | None, int | None] | slice | None]

_KINDS = "iubf"  # whole numbers, booleans, floats


@dataclass(frozen=True)
class _Line:
    """value * slope + shift, with bounds for the value before."""

    bounds: Bounds | None
    slope: float
    shift: float


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
    if isinstance(data, np.ndarray) and data.ndim == 3:
        with Source(np.empty(0, np.uint8), name or "volume") as source:
            return _process(source, data, (1.0, 0.0), crop, clip, window, size, normalise, np.dtype(dtype), out)
    with Source(data, name) as source:
        with stage("volume decode") as timed:
            stored, scaling = _open(source, member, max_bytes)
            timed.nbytes, timed.note = stored.nbytes, f"shape={stored.shape}"
        return _process(source, stored, scaling, crop, clip, window, size, normalise, np.dtype(dtype), out)


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


def _process(
    source: Source,
    stored: Array,
    scaling: Pair,
    crop: Crop | None,
    clip: Pair | None,
    window: Pair | None,
    size: tuple[int, int, int] | None,
    normalise: Pair | None,
    dtype: np.dtype[Any],
    out: Array | None,
) -> Array:
    if stored.ndim != 3:
        raise ValueError(f"{source.name}: a volume has three axes, this array has shape {stored.shape}")
    if stored.dtype.kind not in _KINDS or dtype.kind not in _KINDS:
        raise TypeError(f"{source.name}: volumes are of whole numbers or floats, not {stored.dtype} to {dtype}")
    with stage("volume process") as timed:
        line = _line(scaling, clip, window, normalise)
        box = _box(source, crop, stored.shape)
        inside = tuple(stop - start for start, stop in box)
        shape = tuple(size) if size is not None else inside
        if len(shape) != 3 or min(shape) < 1 or min(inside) < 1:
            raise ValueError(f"{source.name}: cannot make a volume of size {shape} from one of size {inside}")
        check_out(source.name, out, shape, dtype)
        is_fortran = stored.flags.f_contiguous and not stored.flags.c_contiguous
        # the work goes along the order of memory, and so does the result unless there is a place for it
        result = new_result(shape, dtype, order="F" if is_fortran else "C") if out is None else out
        if is_fortran:
            _run(stored.T, box[::-1], result.T, line)
        else:
            _run(np.ascontiguousarray(stored), box, result, line)
        timed.nbytes = result.nbytes
        return result


def _run(stored: Array, box: tuple[tuple[int, int], ...], result: Array, line: _Line) -> None:
    depth, height, width = result.shape
    fixed: Box = (box[0], box[1], box[2])
    maker = Resampler(stored, fixed, (depth, height, width), bounds=line.bounds, slope=line.slope)
    step = maker.slab_planes
    is_direct = result.dtype == np.float32 and result.flags.c_contiguous
    whole = np.iinfo(result.dtype) if result.dtype.kind in "iu" else None
    for first in range(0, depth, step):
        last = min(depth, first + step)
        place = result[first:last]
        if is_direct:
            slab = place
        else:
            slab = scratch("slab", place.size * 4).view(np.float32).reshape(place.shape)
        maker.make(first, last, slab)
        if line.shift:
            slab += np.float32(line.shift)
        if whole is not None:
            np.rint(slab, out=slab)
            # float32 cannot hold the largest values of wide types: stay below them
            top = np.nextafter(np.float32(whole.max), np.float32(0)) if whole.bits > 24 else np.float32(whole.max)
            np.clip(slab, np.float32(whole.min), top, out=slab)
        if not is_direct:
            with np.errstate(over="ignore"):  # beyond float16 lies infinity, as in torch
                np.copyto(place, slab, casting="unsafe")


def _line(scaling: Pair, clip: Pair | None, window: Pair | None, normalise: Pair | None) -> _Line:
    """Fold the steps into one: bounds on the stored values, then one slope and one shift."""
    slope, shift = scaling
    if clip is not None and window is not None:
        raise ValueError("give clip= or window=, not both: a window clips already")
    limits = clip
    if window is not None:
        centre, width = window
        if not width > 0:
            raise ValueError(f"window={window!r}: give (centre, width) with a width above 0")
        limits = (centre - width / 2, centre + width / 2)
    bounds = None
    if limits is not None:
        low, high = limits
        if not low <= high:
            raise ValueError(f"clip={limits!r}: the lower bound comes first")
        ends = sorted([(low - shift) / slope, (high - shift) / slope])
        bounds = Bounds(ends[0], ends[1])
    if window is not None and limits is not None:
        slope, shift = slope / (limits[1] - limits[0]), (shift - limits[0]) / (limits[1] - limits[0])
    if normalise is not None:
        mean, std = normalise
        if not std > 0:
            raise ValueError(f"normalise={normalise!r}: give (mean, std) with a std above 0")
        slope, shift = slope / std, (shift - mean) / std
    return _Line(bounds, slope, shift)


def _box(source: Source, crop: Crop | None, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
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
