"""Point clouds from `.bin` and `.npy`, with the points that are wanted taken straight from the read buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .claims import MAX_BYTES, check_claim
from .npy_array import MAGIC, view_array
from .output import check_out, hand_out
from .scratch import new_result, result_memory, scratch
from .source import Data, Source

Array = npt.NDArray[Any]
Choice = npt.ArrayLike | Callable[[int], npt.ArrayLike]


def points(
    data: Data,
    *,
    columns: int = 4,
    dtype: npt.DTypeLike = "<f4",
    choose: Choice | None = None,
    out: Array | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Array:
    """Return a point cloud (points, columns) from raw numbers (KITTI's `.bin`) or an `.npy` file.

    `choose` are indices of points, in any order and as often as you like, or a function that gets the number of points
    and returns them (`lambda n: rng.integers(0, n, 16384)`): only these are copied, into `out` if given. Without it
    a cloud in memory is returned as a view. `columns` and `dtype` describe a `.bin`; an `.npy` says it itself.
    """
    with Source(data, name) as source, stage("points decode") as timed:
        if source.size > max_bytes:
            check_claim(source, source.size, held=source.size, max_bytes=max_bytes, what="the point cloud")
        magic = bytes(source.read(0, min(len(MAGIC), source.size))) if not source.is_file else b""
        if source.is_file:
            # chosen points: read into memory that is kept, so that only they are copied; all: read them into place
            buffer = scratch("points", source.size) if choose is not None else result_memory(source.size)
            source.read_into(buffer, 0)
            held, magic = buffer.data, bytes(buffer[: len(MAGIC)])
        else:
            held = source.whole()
        if magic == MAGIC:
            cloud = view_array(source, held, what="the point cloud", max_bytes=max_bytes)
            if cloud.ndim != 2:
                raise source.damaged("a point cloud has two axes, points and columns", shape=cloud.shape)
        else:
            cloud = _raw(source, held, columns, np.dtype(dtype))
        result = hand_out(source, cloud, out) if choose is None else _take(source, cloud, choose, out)
        timed.nbytes = result.nbytes
        return result


def _raw(source: Source, held: memoryview, columns: int, dtype: np.dtype[Any]) -> Array:
    if columns < 1 or dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"columns={columns}, dtype={dtype}: a point is at least one number")
    if held.nbytes % (columns * dtype.itemsize):
        raise source.damaged(
            "the point cloud is cut short, or its points have another form",
            size=f"{held.nbytes} bytes",
            a_point=f"{columns} x {dtype.name}, {columns * dtype.itemsize} bytes",
        )
    if not held.nbytes:
        return np.empty((0, columns), dtype)
    flat = np.frombuffer(held, dtype)
    return (flat if flat.flags.aligned else flat.copy()).reshape(-1, columns)


def _take(source: Source, cloud: Array, choose: Choice, out: Array | None) -> Array:
    chosen = np.asarray(choose(len(cloud)) if callable(choose) else choose)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise TypeError(f"choose takes whole numbers along one axis, not {chosen.dtype} of shape {chosen.shape}")
    chosen = chosen.astype(np.intp, copy=False)
    # as unsigned numbers, those below 0 are the largest: one look finds both ends
    if chosen.size and chosen.view(np.uintp).max() >= len(cloud):
        raise IndexError(
            f"{source.name}: choose asks for points {chosen.min()} to {chosen.max()}, there are {len(cloud)}"
        )
    shape = (len(chosen), cloud.shape[1])
    check_out(source, out, shape, cloud.dtype)
    if not len(chosen):
        return np.empty(shape, cloud.dtype) if out is None else out
    if out is None:
        out = new_result(shape, cloud.dtype)
    if out.dtype == cloud.dtype and out.flags.c_contiguous:
        # the indices were checked above: "clip" only spares numpy a second buffer
        return cloud.take(chosen, axis=0, out=out, mode="clip")
    return hand_out(source, cloud.take(chosen, axis=0, mode="clip"), out)
